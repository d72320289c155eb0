"""Prompts of one's own: JSON lines with ``prompt`` (text) or ``messages``.

Further keys: ``id`` (else a digest), ``category`` (else the file's name), ``kind`` (one of the six
strata), ``max_tokens``, ``source``, ``licence`` or ``license``, and those of a workload's prompt
that say how it is judged: ``judgement``, ``checks``, ``schema``, ``tools``, ``constrained``,
``typical``. Unknown keys are errors, so that a misspelt one is not silently without effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from slipstream.lab.importers.questions import IMPORTED, MOST_TOKENS, Format, Question, question_id
from slipstream.measure.workload import WorkloadMessage, content_digest


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """The keys, with their types."""

    id: str | int | None = None
    category: str = ""
    kind: Literal[
        "repetitive", "chat", "reasoning", "long_input", "structured", "prose", "imported"
    ] = IMPORTED
    prompt: str | None = None
    messages: tuple[WorkloadMessage, ...] = ()
    max_tokens: int = MOST_TOKENS
    source: str = ""
    licence: str = ""
    license: str = ""
    judgement: Literal["exact", "schema", "tools", "rubric"] = "exact"
    checks: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] = ()
    constrained: bool = False
    typical: bool = False


_KEYS: Final = _Line.__struct_fields__
_JUDGING: Final = ("judgement", "checks", "schema", "tools", "constrained", "typical")


def _parse(value: Mapping[str, Any], path: Path) -> Question:
    for key in value:
        if key not in _KEYS:
            near = difflib.get_close_matches(key[:64], _KEYS, 1, 0.0)[0]
            raise ValueError(f"`{key[:64]}`; did you mean `{near}`?")
    try:
        line = msgspec.convert(value, _Line)
    except msgspec.ValidationError as problem:
        raise ValueError(str(problem)) from None
    if (line.prompt is None) == (not line.messages):
        raise ValueError("not one of `prompt` and `messages`")
    if not 1 <= line.max_tokens <= MOST_TOKENS:
        raise ValueError(f"`max_tokens` {line.max_tokens}, not from 1 to {MOST_TOKENS}")
    messages = line.messages or (WorkloadMessage("user", line.prompt or ""),)
    digest = content_digest(messages)[:12]
    return Question(
        id=question_id({"id": digest if line.id is None else line.id}, "id"),
        category=line.category or path.stem,
        messages=messages,
        kind=line.kind,
        source=line.source or path.name,
        licence=line.licence or line.license or "unknown",
        max_tokens=line.max_tokens,
        keys={key: getattr(line, key) for key in _JUDGING},
    )


FORMAT: Final = Format("jsonl", _parse, prefixed=False)
