"""Outputs of a run by digest, and where one leaves the output of ``none``."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from slipstream.errors import RequestError
from slipstream.lab.client.answer import calls_text
from slipstream.lab.client.asking import Answered
from slipstream.lab.contract.plan import ComparisonRule
from slipstream.lab.contract.records import Divergence
from slipstream.lab.evidence.output_verdict import (
    DIVERGED,
    EQUAL,
    NOT_COMPARED,
    cause,
    first_divergence,
)

FOLDER: Final = "outputs"
_MOST_BYTES: Final = 64 << 20
_RESTORE: Final = "Restore the run's folder as it was written."


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request gave.

    Attributes:
        ids: empty where the runtime does not return them.
        reasoning, tool_calls: where the runtime keeps them apart from the text.
        tops: for each token the likeliest ones (id or text, log-probability), where asked for.
    """

    text: str
    ids: tuple[int, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, str], ...] = ()
    tops: tuple[tuple[tuple[int | str, float], ...], ...] = ()

    @property
    def whole_text(self) -> str:
        """What equality is taken of where texts are compared."""
        return self.reasoning + self.text + calls_text(self.tool_calls)

    @property
    def judged_text(self) -> str:
        """What a judgement looks at: the calls where a server keeps them apart, else the text."""
        return calls_text(self.tool_calls) or self.text

    def gap(self, at: int) -> float | None:
        """Difference of the two best log-probabilities at a token; None = not told."""
        if at >= len(self.tops):
            return None
        best = sorted((logprob for _, logprob in self.tops[at]), reverse=True)
        gap = best[0] - best[1] if len(best) > 1 else math.nan
        return gap if math.isfinite(gap) else None


def output_of(answer: Answered) -> Output:
    """What an answer leaves in ``outputs/``."""
    return Output(
        text=answer.text,
        ids=answer.ids,
        reasoning=answer.reasoning,
        tool_calls=answer.tool_calls,
        tops=answer.tops,
    )


def save(folder: Path, output: Output) -> str:
    """Write it to ``outputs/`` once; returns its path below ``folder``. Same output, same file."""
    raw = msgspec.json.encode(output, order="deterministic")
    name = f"{FOLDER}/{hashlib.sha256(raw).hexdigest()[:32]}.json"
    path = folder / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    return name


def load(folder: Path, name: str) -> Output:
    """The output that a record names.

    Raises:
        RequestError: the name leads out of ``outputs/``, or the file is missing, changed or no
            output.
    """
    inside = name.startswith(f"{FOLDER}/") and "/" not in name[len(FOLDER) + 1 :]
    path = folder / name
    if not inside or not path.is_file() or path.stat().st_size > _MOST_BYTES:
        raise RequestError(f"an output `{name[:128]}` of the run", "no such file", _RESTORE)
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest()[:32] != path.stem:
        raise RequestError(f"`{name}` as the run wrote it", "another content", _RESTORE)
    try:
        return msgspec.json.decode(raw, type=Output)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise RequestError(f"an output in `{name}`", str(problem), _RESTORE) from None


def compared(
    baseline: Output,
    output: Output,
    rule: ComparisonRule,
    tolerance: float,
    logits: Output | None = None,
) -> tuple[str, Divergence | None]:
    """``equal``, ``diverged`` with the place, or ``""`` where the rule has nothing to compare.

    An output that is a part of the other diverges where the shorter one ends.

    Args:
        tolerance: a gap of the baseline's two best log-probabilities below it is a near-tie.
        logits: the baseline's output once more, with log-probabilities; used as far as it agrees.
    """
    ours: Sequence[object] = output.ids if rule == "ids" else output.whole_text
    theirs: Sequence[object] = baseline.ids if rule == "ids" else baseline.whole_text
    if rule == "ids" and not (ours and theirs):
        # Without any token there are no ids either: two empty texts are the same output.
        empty = not (ours or theirs or output.whole_text or baseline.whole_text)
        return (EQUAL, None) if empty else (NOT_COMPARED, None)
    at = first_divergence(theirs, ours)
    if at is None:
        return EQUAL, None
    gap = _gap(baseline, logits, at) if rule == "ids" else None
    both = rule == "ids" and at < min(len(baseline.ids), len(output.ids))
    tokens = (baseline.ids[at], output.ids[at]) if both else None
    return DIVERGED, Divergence(at=at, gap=gap, cause=cause(gap, tolerance), tokens=tokens)


def _gap(baseline: Output, logits: Output | None, at: int) -> float | None:
    """Of the baseline at a token; only where the pass with log-probabilities came to it too."""
    if logits is None or logits.ids[:at] != baseline.ids[:at]:
        return None
    return logits.gap(at)
