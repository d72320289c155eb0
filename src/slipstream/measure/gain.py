"""What speculation could give on a measured curve t(R), by acceptance rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ACCEPTANCE_RATES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Gain:
    """The best draft length among the measured row counts.

    Attributes:
        acceptance: probability that a draft token is accepted, independently of the others.
        draft_tokens: of every draft; 0 = do not draft.
        tokens_per_pass: expected.
        speed_up: over one row per pass.
    """

    acceptance: float
    draft_tokens: int
    tokens_per_pass: float
    speed_up: float


def expected_gain(ms: Mapping[int, float], acceptance: float) -> Gain:
    """The best gain of a free drafter that drafts in every step.

    A pass of R rows verifies R - 1 draft tokens and emits (1 - a^R) / (1 - a) tokens on average
    (Leviathan et al. 2023, equation 1).

    Args:
        ms: row count -> milliseconds of a pass; one row must be among them.
        acceptance: in [0, 1).

    Raises:
        ValueError: one row was not measured, or the rate is out of range.
    """
    if 1 not in ms or not 0 <= acceptance < 1:
        raise ValueError("a gain needs the time of one row and a rate in [0, 1)")
    best = Gain(acceptance, 0, 1.0, 1.0)
    for rows, elapsed in sorted(ms.items()):
        tokens = (1 - acceptance**rows) / (1 - acceptance)
        speed_up = tokens * ms[1] / elapsed
        if speed_up > best.speed_up:
            best = Gain(acceptance, rows - 1, tokens, speed_up)
    return best


def expected_gains(ms: Mapping[int, float]) -> list[Gain]:
    """One for each of ``ACCEPTANCE_RATES``; none without the time of one row."""
    return [expected_gain(ms, rate) for rate in ACCEPTANCE_RATES] if 1 in ms else []
