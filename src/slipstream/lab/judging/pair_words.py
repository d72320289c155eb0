"""Ratios of pairs of blocks in words; of fewer than five pairs there is no interval to tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from slipstream.lab.evidence.definitions import Figure


class Paired(Protocol):
    """A ratio over pairs of blocks, with its interval where there is one."""

    @property
    def figure(self) -> Figure: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...


def counted_pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def ratio_text(made: Paired, digits: int = 3) -> str:
    """``1.250 [1.208, 1.301]``; of few pairs ``1.250 (1.208 to 1.301, 3 pairs)``, extremes."""
    found = made.figure
    values = {"ratio": found.median, "least": found.least, "most": found.most, "pairs": found.n}
    if made.low is not None and made.high is not None:
        values |= {"low": made.low, "high": made.high}
    return values_text(values, digits)


def values_text(values: Mapping[str, float], digits: int = 3) -> str:
    """As ``ratio_text``, from the values of the time gate."""

    def shown(name: str) -> str:
        return f"{values[name]:.{digits}f}"

    if "low" in values and "high" in values:
        return f"{shown('ratio')} [{shown('low')}, {shown('high')}]"
    count = int(values["pairs"])
    extremes = f"{shown('least')} to {shown('most')}, " if count > 1 else ""
    return f"{shown('ratio')} ({extremes}{counted_pairs(count)})"
