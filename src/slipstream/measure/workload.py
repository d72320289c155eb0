"""Frozen prompts by stratum and task: reading and checking workloads/*.jsonl."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from slipstream.errors import InputError, RequestError
from slipstream.paths import read_file

STRATA = ("repetitive", "chat", "reasoning", "long_input", "structured", "prose")
TASKS: Mapping[str, str] = MappingProxyType(
    {
        **{stratum: stratum for stratum in STRATA},
        "code_edit": "repetitive",
        "csv_to_json": "structured",
        "code": "structured",
        "random": "prose",
    }
)
"""Task -> its stratum. Every task has a file of its name."""
_MAX_FILE_BYTES = 64 << 20


class WorkloadMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: str
    content: str


class WorkloadPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One frozen prompt; the keys are described in workloads/README.md.

    How an output is judged is only carried here: ``lab.tasks.judgements`` knows what it means.
    """

    id: str
    stratum: str
    messages: tuple[WorkloadMessage, ...]
    max_tokens: int
    source: str
    licence: str
    sha256: str
    task: str = ""
    judgement: Literal["exact", "schema", "tools", "rubric"] = "exact"
    checks: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] = ()
    constrained: bool = False
    typical: bool = False

    def __post_init__(self) -> None:
        if not self.task:
            msgspec.structs.force_setattr(self, "task", self.stratum)

    def chat_messages(self) -> list[dict[str, str]]:
        return [{"role": m.role, "content": m.content} for m in self.messages]

    def chat_tools(self) -> list[dict[str, Any]] | None:
        """``tools`` as templates and OpenAI's API expect them; None = it offers none."""
        return [{"type": "function", "function": tool} for tool in self.tools] or None


def content_digest(messages: Iterable[WorkloadMessage]) -> str:
    """SHA-256 of the compact JSON of the messages, keys sorted, UTF-8."""
    plain = [{"role": m.role, "content": m.content} for m in messages]
    text = json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _bad(path: Path, number: int, found: str) -> InputError:
    return RequestError(
        f"a workload prompt in line {number} of {path.name}",
        found,
        "See workloads/README.md for the keys; a changed text needs a new id and hash.",
    )


def _parse(path: Path, number: int, line: bytes) -> WorkloadPrompt:
    try:
        prompt = msgspec.json.decode(line, type=WorkloadPrompt)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise _bad(path, number, str(problem)) from None
    if prompt.task != path.stem:
        raise _bad(path, number, f"task {prompt.task!r} in the file of {path.stem!r}")
    if TASKS.get(prompt.task) != prompt.stratum:
        raise _bad(path, number, f"task {prompt.task!r} in stratum {prompt.stratum!r}")
    if content_digest(prompt.messages) != prompt.sha256:
        raise _bad(path, number, f"{prompt.id} with a text that does not match its sha256")
    return prompt


def read_task(path: Path) -> list[WorkloadPrompt]:
    """Every prompt of one file.

    Raises:
        RequestError: the file is missing or empty, a line is malformed, a hash does not match, or
            an id occurs twice.
    """
    lines = read_file(path, "a workload file", _MAX_FILE_BYTES).splitlines()
    prompts = [_parse(path, n, line) for n, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise RequestError(f"a prompt in {path.name}", "an empty file", "Name another folder.")
    if len({p.id for p in prompts}) != len(prompts):
        raise RequestError("unique prompt ids", f"a repeated id in {path.name}", "Rename one.")
    return prompts


def read_workloads(
    directory: Path, tasks: Iterable[str] = STRATA
) -> dict[str, list[WorkloadPrompt]]:
    """The named files of a workload directory, in the order asked for.

    Args:
        tasks: a stratum's name stands for its first file, not for its other tasks.
    """
    return {name: read_task(directory / f"{name}.jsonl") for name in tasks}
