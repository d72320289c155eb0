"""Comparing what two sides answered, and saying where they part."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slipstream.lab.client import told
from slipstream.lab.conformance.outcomes import Request

LOGPROB_TOLERANCE: Final = 0.1
"""Nats by which a token's log-probability may differ: the rounding of other kernels, no more."""
_AROUND: Final = 12


@dataclass(frozen=True)
class Output:
    """Something that must be the same without speculation.

    Attributes:
        label: which of a check's outputs.
        value: what is compared.
        request: that it answers.
        basis: text that it belongs to; where that differs it cannot be compared, and the texts are
            compared by ``greedy``.
    """

    label: str
    value: Any
    request: Request
    basis: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Outputs with the same key are compared."""
        return self.label, self.basis


Differ = Callable[[Any, Any], str]
"""(with, without) -> how they differ; empty = they do not."""


def differ(here: Any, there: Any) -> str:
    """Texts by their first differing character, anything else as a whole."""
    if here == there:
        return ""
    if isinstance(here, str) and isinstance(there, str):
        return f"from character {parting(here, there)} on: {_around(here, there)}"
    return f"{_plain(here)} against {_plain(there)}"


def parting(here: str, there: str) -> int:
    """Index of the first character that differs, or the length of the shorter text."""
    pairs = enumerate(zip(here, there, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(here), len(there)))


def _around(here: str, there: str) -> str:
    place = parting(here, there)
    start = max(place - _AROUND, 0)
    return " against ".join(repr(text[start : place + _AROUND]) for text in (here, there))


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:160]


def differ_in_logprobs(
    here: Sequence[tuple[str, float]], there: Sequence[tuple[str, float]]
) -> str:
    """Tokens must be equal, their log-probabilities within the tolerance."""
    for place, (mine, other) in enumerate(zip(here, there, strict=False)):
        if mine[0] != other[0]:
            return f"at token {place}: {mine[0]!r} against {other[0]!r}"
        if abs(mine[1] - other[1]) > LOGPROB_TOLERANCE:
            return f"at token {place} {mine[0]!r}: {mine[1]:.3f} against {other[1]:.3f}"
    return "" if len(here) == len(there) else f"{len(here)} tokens against {len(there)}"


def gap_at(entries: Sequence[Mapping[str, Any]], character: int) -> float | None:
    """Difference of the two best log-probabilities of the token that holds a character."""
    seen = 0
    for entry in entries:
        seen += len(told.text(entry.get("token")))
        if seen > character:
            tops = [
                told.mapping(top).get("logprob") for top in told.items(entry.get("top_logprobs"))
            ]
            found = sorted((v for v in map(told.logarithm, tops) if v is not None), reverse=True)
            return found[0] - found[1] if len(found) > 1 else None
    return None
