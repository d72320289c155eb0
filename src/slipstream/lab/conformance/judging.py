"""From one check on two sides to its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from slipstream.lab.conformance.asking import Asker, Side
from slipstream.lab.conformance.checks import Check, Room
from slipstream.lab.conformance.comparing import Output, gap_at, parting
from slipstream.lab.conformance.outcomes import (
    CheckResult,
    ContractError,
    Outcome,
    RefusedError,
    Request,
    UnmeasuredError,
)
from slipstream.lab.conformance.recognising import Sides

NEAR_TIE: Final = 0.05
"""Nats between the two likeliest tokens, below which another order of sums may swap them."""
_TOPS: Final = 2


@dataclass(frozen=True)
class Tried:
    """One check on one side; ``fault`` and ``unmeasured`` exclude each other."""

    outputs: Sequence[Output] = ()
    fault: ContractError | None = None
    unmeasured: str = ""
    drafted: int | None = None


class Said(NamedTuple):
    """A part of a result."""

    outcome: Outcome
    found: str
    request: Request | None = None


class Difference(NamedTuple):
    """Two outputs that should be the same."""

    mine: Output
    other: Output
    how: str


def judged(check: Check, room: Room, sides: Sides, timeout_s: float) -> CheckResult:
    """A check made with speculation and, where that tells something, without."""
    here = tried(check, sides.on, room, timeout_s)
    there = None
    if sides.off is not None and check.both and (here.fault is not None or here.outputs):
        there = tried(check, sides.off, room, timeout_s)
    alone = _alone(here, there)
    compared = _not_compared(check, here, sides)
    if there is not None and sides.off is not None:
        compared = _against(check, here, there, room, sides.off, timeout_s)
    final = _final(check, alone, compared)
    return CheckResult(
        check=check.name,
        outcome=final.outcome,
        expected=check.expected,
        found=final.found,
        request=None if final.request is None else dict(final.request),
        drafted=here.drafted,
        comparison=compared.outcome,
        compared=compared.found,
    )


def _final(check: Check, alone: Said, compared: Said) -> Said:
    if alone.outcome != "passed":
        return alone
    if compared.outcome == "failed" or (check.compares and compared.outcome != "passed"):
        return compared
    return alone


def tried(check: Check, side: Side, room: Room, timeout_s: float) -> Tried:
    """A check on one side, whatever the server does."""
    asker = Asker(side, timeout_s)
    try:
        outputs = check.run(asker, room)
    except ContractError as fault:
        return Tried(fault=fault, drafted=asker.drafted)
    except UnmeasuredError as reason:
        return Tried(unmeasured=str(reason), drafted=asker.drafted)
    return Tried(outputs, drafted=asker.drafted)


def _alone(here: Tried, there: Tried | None) -> Said:
    """What the check says of the side with speculation."""
    if here.unmeasured:
        return Said("not measurable", here.unmeasured)
    fault = here.fault
    if fault is None:
        return Said("passed", "as expected")
    if not isinstance(fault, RefusedError):
        return Said("failed", fault.found, fault.request)
    if there is not None and there.fault is None and not there.unmeasured:
        found = f"refused with speculation and not without: {fault.found}"
        return Said("failed", found, fault.request)
    return Said("not measurable", f"refused: {fault.found}", fault.request)


def _not_compared(check: Check, here: Tried, sides: Sides) -> Said:
    if not check.both:
        return Said("not measurable", "made with speculation alone")
    if sides.off is None:
        return Said("not measurable", sides.without)
    return Said("not measurable", here.unmeasured or "passed; it has no output to compare")


def _against(
    check: Check, here: Tried, there: Tried, room: Room, off: Side, timeout_s: float
) -> Said:
    """The two sides beside each other."""
    if there.unmeasured:
        return Said("not measurable", f"without speculation: {there.unmeasured}")
    if there.fault is not None:
        too = " too" if here.fault is not None else ""
        return Said("not measurable", f"without speculation it fails{too}: {there.fault.found}")
    if here.fault is not None:
        return Said("failed", "without speculation it passes")
    difference = _difference(check, here.outputs, there.outputs)
    if difference is None:
        return _same(here.outputs, there.outputs)
    again = tried(check, off, room, timeout_s)
    if again.fault or again.unmeasured or _difference(check, again.outputs, there.outputs):
        return Said("not measurable", "without speculation it does not repeat itself")
    cause = _cause(difference, Asker(off, timeout_s)) if check.compares else ""
    return Said("failed", f"{difference.how}{cause}", difference.mine.request)


def _same(here: Sequence[Output], there: Sequence[Output]) -> Said:
    """Nothing differs, of what could be compared."""
    if {mine.key for mine in here} & {other.key for other in there}:
        return Said("passed", "the same")
    return Said("not measurable", "the texts differ, so what belongs to them cannot be compared")


def _difference(check: Check, here: Sequence[Output], there: Sequence[Output]) -> Difference | None:
    """The first output that differs, of those that belong to the same text."""
    others = {other.key: other for other in there}
    for mine in here:
        other = others.pop(mine.key, None)
        if other is None and not mine.basis:
            return Difference(mine, mine, f"{mine.label}: there is none without speculation")
        if other is not None and (how := check.differ(mine.value, other.value)):
            found = f"{mine.label}: differs from that without speculation {how}"
            return Difference(mine, other, found)
    left = next((other for other in others.values() if not other.basis), None)
    if left is None:
        return None
    return Difference(left, left, f"{left.label}: there is none with speculation")


def _cause(difference: Difference, asker: Asker) -> str:
    """How near the two likeliest tokens are where texts part; empty = not told."""
    here, there = difference.mine.value, difference.other.value
    if not isinstance(here, str) or not isinstance(there, str):
        return ""
    body: dict[str, Any] = dict(difference.other.request["body"])
    try:
        reply = asker.answer(body | {"logprobs": True, "top_logprobs": _TOPS})
    except ContractError:
        return ""
    if reply.text != there:
        return ""
    gap = gap_at(reply.entries or (), parting(here, there))
    if gap is None:
        return ""
    kind = "a near-tie" if gap < NEAR_TIE else "no near-tie"
    return f"; the two likeliest tokens there are {gap:.3f} nats apart: {kind}"
