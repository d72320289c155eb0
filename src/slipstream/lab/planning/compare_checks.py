"""What a plan that compares two builds must be: two builds, two conditions, the rest fixed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from slipstream.lab.contract.plan import ConditionPlan, Plan
from slipstream.lab.planning.plan_faults import Fault, did_you_mean
from slipstream.lab.planning.plan_lines import Place

_PLACE: Final = "comparison"
_LENGTHS: Final = ("n_max", "n_min", "size_m")
"""Endings of the parameters that set how long a draft is, and so the rows of a step."""


def comparison_faults(plan: Plan) -> Iterator[Fault]:
    """What is wrong with ``[comparison]``; nothing where the plan has none."""
    asked = plan.comparison
    if asked.builds:
        yield from _builds(plan)
        yield from _conditions(plan)
    elif asked.inside or asked.outside or asked.same_build:
        remedy = 'Write builds = ["a", "b"], or leave out the table.'
        yield Fault((_PLACE, "builds"), "to name A and B", "nothing", remedy)


def _builds(plan: Plan) -> Iterator[Fault]:
    builds, place = plan.comparison.builds, (_PLACE, "builds")
    if len(builds) != 2 or len(set(builds)) != 2:
        yield Fault(place, "to be two runtimes, A and B", f"{list(builds)!r:.70}", "Name two.")
        return
    for name in builds:
        if name not in plan.runtimes:
            remedy = did_you_mean(name, plan.runtimes)
            yield Fault(place, "to be two of `runtimes`", f"`{name:.60}`", remedy)
            return
    others = [name for name in plan.runtimes if name not in builds]
    if others:
        found = f"`{others[0]}` beside them"
        yield Fault(("runtimes",), "to be the two builds alone", found, "Leave it out.")
    if plan.rollback:
        remedy = "Leave it out: both builds run every condition."
        yield Fault(("rollback",), "to be empty in a comparison", f"`{plan.rollback}`", remedy)
    yield from _same_start(plan)


def _same_start(plan: Plan) -> Iterator[Fault]:
    """Builds are identified by their files, and started alike."""
    a, b = (plan.runtimes[name] for name in plan.comparison.builds)
    for name, runtime in zip(plan.comparison.builds, (a, b), strict=True):
        if runtime.kind == "openai":
            expected = "to be a program that the lab starts, as its build is known by its file"
            yield Fault(("runtimes", name), expected, "kind openai", "Name its binary.")
    for part in ("flags", "device"):
        one, two = getattr(a, part), getattr(b, part)
        if a.kind == b.kind and one != two:
            place: Place = ("runtimes", plan.comparison.builds[1], part)
            expected = f"to be the {part} of `{plan.comparison.builds[0]}`"
            yield Fault(place, expected, f"{two!r:.60}", "Only the build may differ.")


def _conditions(plan: Plan) -> Iterator[Fault]:
    asked, known = plan.comparison, {c.name: c for c in plan.conditions}
    for part in ("inside", "outside"):
        name = getattr(asked, part)
        if name not in known:
            expected, found = "to name a condition", f"`{name:.60}`"
            yield Fault((_PLACE, part), expected, found, did_you_mean(name, known))
            return
    if asked.inside == asked.outside:
        found = f"`{asked.inside}` again"
        yield Fault((_PLACE, "outside"), "to be another condition", found, "Name another.")
        return
    others = [name for name in known if name not in (asked.inside, asked.outside)]
    if others:
        found = f"`{others[0]}` beside them"
        yield Fault(("conditions",), "to be the two compared ones", found, "Leave it out.")
    yield from _apart(plan, known[asked.inside], known[asked.outside])


def _apart(plan: Plan, inside: ConditionPlan, outside: ConditionPlan) -> Iterator[Fault]:
    """Rows in ranges that do not meet, and nothing else that differs."""
    place: Place = ("conditions", plan.conditions.index(outside))
    for part in ("stage", "method", "draft"):
        one, two = getattr(inside, part), getattr(outside, part)
        if one != two:
            expected = f"to be `{one}` as in `{inside.name}`"
            yield Fault((*place, part), expected, f"`{two}`", "Only rows may differ.")
    if changed := _changed(inside, outside):
        expected = f"to be as in `{inside.name}`, but for the length of drafts"
        yield Fault((*place, "parameters"), expected, ", ".join(changed), "Only rows may differ.")
    if not _disjoint(inside.rows_range, outside.rows_range):
        expected = f"to be a range that does not meet that of `{inside.name}`"
        found = f"{list(outside.rows_range)} and {list(inside.rows_range)}"
        yield Fault((*place, "rows_range"), expected, found, "Give both: [least, most].")


def _changed(inside: ConditionPlan, outside: ConditionPlan) -> list[str]:
    keys = sorted({*inside.parameters, *outside.parameters})
    return [
        key
        for key in keys
        if inside.parameters.get(key) != outside.parameters.get(key)
        and not key.replace("-", "_").endswith(_LENGTHS)
    ]


def _disjoint(inside: tuple[int, int], outside: tuple[int, int]) -> bool:
    if (0, 0) in (inside, outside):
        return False
    (_, most), (least, last) = inside, outside
    return 0 < most < least or 0 < last < inside[0]
