"""What a folder of workloads says beside its prompts: questions, and judgements of frozen lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from slipstream.errors import RequestError
from slipstream.measure.workload import STRATA, WorkloadPrompt
from slipstream.paths import read_file

VERSION: Final = 3
_MOST_BYTES: Final = 4 << 20
_FileT = TypeVar("_FileT", bound=msgspec.Struct)


class Strata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``strata.json``.

    Attributes:
        questions: stratum, task or ``imported`` -> the question that its report section answers.
    """

    version: Literal[3]
    questions: dict[str, str]

    def question(self, workload: str, kind: str) -> str:
        """Its own, else that of its kind."""
        return self.questions.get(workload) or self.questions[kind]


class Judgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of the same names of ``WorkloadPrompt``."""

    judgement: Literal["exact", "schema", "tools", "rubric"]
    checks: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] = ()


class Judgements(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``judgements.json``: judgements of prompts whose lines were frozen before version 3."""

    version: Literal[3]
    prompts: dict[str, Judgement]

    def applied(self, prompt: WorkloadPrompt) -> WorkloadPrompt:
        """The prompt with its judgement.

        Raises:
            RequestError: its own line says how it is judged as well.
        """
        given = self.prompts.get(prompt.id)
        if given is None:
            return prompt
        if prompt.judgement != "exact" or prompt.checks or prompt.schema or prompt.tools:
            raise RequestError(
                f"one judgement of {prompt.id}",
                "one in its line and one in judgements.json",
                "Remove one of them.",
            )
        return msgspec.structs.replace(prompt, **msgspec.structs.asdict(given))


def read_strata(folder: Path) -> Strata:
    """
    Raises:
        RequestError: the file is missing or malformed, or a stratum has no question.
    """
    strata = _read(folder / "strata.json", Strata)
    missing = [name for name in (*STRATA, "imported") if not strata.questions.get(name)]
    if missing:
        raise RequestError("a question of every stratum", f"none of {missing[0]}", "Add it.")
    return strata


def read_judgements(folder: Path) -> Judgements:
    """None of any prompt, where the folder has no such file; errors as ``read_strata``."""
    path = folder / "judgements.json"
    return _read(path, Judgements) if path.exists() else Judgements(version=VERSION, prompts={})


def _read(path: Path, kind: type[_FileT]) -> _FileT:
    expected = f"{path.name} of version {VERSION}, as workloads/README.md describes it"
    content = read_file(path, expected, _MOST_BYTES)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise RequestError(expected, f"{path}: {problem}", "Correct the file.") from None
