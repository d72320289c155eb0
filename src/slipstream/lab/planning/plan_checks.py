"""What a plan's values must be beyond their types: ranges, references, what belongs together."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from typing import Final

from slipstream.errors import OptionError
from slipstream.lab.contract.plan import SAME, WORDS, Artifact, Plan, RuntimePlan
from slipstream.lab.planning.compare_checks import comparison_faults
from slipstream.lab.planning.condition_checks import (
    MOST_CONDITIONS,
    condition_faults,
    expanded_faults,
)
from slipstream.lab.planning.plan_faults import Fault, did_you_mean
from slipstream.lab.planning.plan_lines import Place, dotted
from slipstream.lab.planning.plan_ranges import range_faults
from slipstream.lab.planning.plan_sampling import sampling_faults
from slipstream.lab.planning.plan_texts import text_faults
from slipstream.measure.workload import TASKS
from slipstream.paths import shown

PAIRING_PARTS: Final = ("tokenizer", "vocabulary", "template", "architecture")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAMES_ARE: Final = "to be 1 to 64 letters, digits, `-`, `_` or `.`, as it is part of file names"
_PAGE_KEYS: Final = ("url", "commit", "at")


def faults(plan: Plan) -> Iterator[Fault]:
    """All of them, in the order of the plan."""
    yield from _names(plan)
    yield from range_faults(plan)
    yield from text_faults(plan)
    for name, runtime in plan.runtimes.items():
        yield from _runtime(("runtimes", name), runtime)
    for key, draft in plan.drafts.items():
        yield from _pairing(("drafts", key, "pairing"), draft)
    for index, condition in enumerate(plan.conditions):
        yield from condition_faults(("conditions", index), condition, plan)
    yield from comparison_faults(plan)
    yield from expanded_faults(plan)
    yield from _workloads(plan)
    yield from _arrivals(plan)
    yield from sampling_faults(plan)
    yield from _pages(plan)


def check_plan(plan: Plan) -> None:
    """
    Raises:
        OptionError: values of a plan contradict each other; the first of them.
    """
    for fault in faults(plan):
        place = f"`{dotted(fault.place)}`"
        raise OptionError(f"{place} {fault.expected}", fault.found, fault.remedy)


def _names(plan: Plan) -> Iterator[Fault]:
    places: list[tuple[Place, str]] = [(("name",), plan.name)]
    places += [(("runtimes", name), name) for name in plan.runtimes]
    places += [(("drafts", name), name) for name in plan.drafts]
    places += [(("conditions", i, "name"), c.name) for i, c in enumerate(plan.conditions)]
    for place, name in places:
        if not _NAME.fullmatch(name):
            yield Fault(place, _NAMES_ARE, f"{name!r:.70}", "Choose another name.")
    if len(plan.conditions) > MOST_CONDITIONS:
        found = f"{len(plan.conditions)}"
        yield Fault(("conditions",), f"to be at most {MOST_CONDITIONS}", found, "Split the plan.")
    yield from _free_names(places)
    yield from _tenants(plan)
    seen: set[str] = set()
    for i, condition in enumerate(plan.conditions):
        if condition.name in seen:
            found = f"`{condition.name}` again"
            yield Fault(("conditions", i, "name"), "to be unique", found, "Rename one.")
        seen.add(condition.name)
    if not plan.runtimes:
        found = "none"
        yield Fault(("runtimes",), "to name a program", found, "Add `[runtimes.slipstream]`.")
    yield from _rollback(plan)


def _free_names(places: Iterable[tuple[Place, str]]) -> Iterator[Fault]:
    """No name is a word of the lab's own: records and reports could not tell the two apart."""
    for place, name in places:
        if name.lower() in WORDS and place != ("name",) and not _is_baseline(place, name):
            expected = "to be free: it is a word of the lab's own"
            yield Fault(place, expected, f"`{name}`", f"Call it `my-{name}`, for example.")


def _is_baseline(place: Place, name: str) -> bool:
    """``none`` may be listed among the conditions (of the stage ``none``)."""
    return place[0] == "conditions" and name == "none"


def _tenants(plan: Plan) -> Iterator[Fault]:
    names = plan.tenants.names
    for index, name in enumerate(names):
        place: Place = ("tenants", "names", index)
        if not _NAME.fullmatch(name):
            yield Fault(place, _NAMES_ARE, f"{name!r:.70}", "Choose another name.")
        elif name in names[:index]:
            yield Fault(place, "to be unique", f"`{name}` again", "Rename one.")


def _rollback(plan: Plan) -> Iterator[Fault]:
    known = (*plan.runtimes, SAME)
    if plan.rollback and plan.rollback not in known:
        remedy = did_you_mean(plan.rollback, known)
        expected = f"to be one of `runtimes`, or `{SAME}`"
        yield Fault(("rollback",), expected, f"`{shown(plan.rollback)}`", remedy)
    if SAME in plan.runtimes:
        expected = "to be free: it is a word of `rollback`"
        yield Fault(("runtimes", SAME), expected, f"`{SAME}`", "Choose another name.")


def _runtime(place: Place, runtime: RuntimePlan) -> Iterator[Fault]:
    given = [name for name in ("binary", "python", "url") if getattr(runtime, name)]
    wanted = {"slipstream": (), "llama-server": ("binary", "python"), "openai": ("url",)}
    readers = wanted[runtime.kind]
    for name in given:
        if name not in readers:
            expected = f"only where a runtime of kind {runtime.kind} reads it"
            yield Fault((*place, name), expected, "a value", f"Leave out `{name}`.")
    if readers and sum(name in readers for name in given) != 1:
        expected = f"to have one of {', '.join(readers)} (kind {runtime.kind})"
        yield Fault(place, expected, ", ".join(given) or "none", f"Give `{readers[0]}`.")
    if runtime.kind == "openai" and runtime.flags:
        found = shown(" ".join(runtime.flags))
        remedy = "Leave them out; the server runs already."
        yield Fault((*place, "flags"), "only for programs that the lab starts", found, remedy)


def _pairing(place: Place, draft: Artifact) -> Iterator[Fault]:
    for part, source in draft.pairing.items():
        if part not in PAIRING_PARTS:
            expected = f"to have the keys {', '.join(PAIRING_PARTS)}"
            yield Fault(place, expected, f"`{shown(part)}`", did_you_mean(part, PAIRING_PARTS))
        elif not source.strip():
            yield Fault((*place, part), "to name its source", "nothing", "Give a page or a paper.")


def _workloads(plan: Plan) -> Iterator[Fault]:
    if len(set(plan.strata)) != len(plan.strata):
        yield Fault(("strata",), "to be unique", "a name twice", "Remove one.")
    for index, name in enumerate(plan.strata):
        if name not in TASKS:
            remedy = did_you_mean(name, TASKS)
            expected = f"to be one of {', '.join(TASKS)}"
            yield Fault(("strata", index), expected, f"`{shown(name)}`", remedy)
    if not plan.strata and not plan.imports:
        yield Fault(("strata",), "to name a workload", "none", "See workloads/README.md.")


def _arrivals(plan: Plan) -> Iterator[Fault]:
    arrivals = plan.arrivals
    if (arrivals.kind == "poisson") != (arrivals.rate_per_s > 0):
        expected = "to be above 0 for Poisson arrivals, and 0 for others"
        found = f"{arrivals.rate_per_s} with kind {arrivals.kind}"
        yield Fault(("arrivals", "rate_per_s"), expected, found, "Correct one of them.")
    if (arrivals.kind == "recorded") != bool(arrivals.file):
        expected = "to be a file for recorded arrivals, and empty for others"
        found = f"{arrivals.file!r:.60} with kind {arrivals.kind}"
        yield Fault(("arrivals", "file"), expected, found, "Correct one of them.")
    for name in arrivals.mix:
        if name not in plan.strata and not plan.imports:
            remedy = did_you_mean(name, plan.strata)
            found = f"`{shown(name)}`"
            yield Fault(("arrivals", "mix", name), "to be one of `strata`", found, remedy)
    if arrivals.mix and sum(arrivals.mix.values()) <= 0:
        yield Fault(("arrivals", "mix"), "to give someone a share", "only zeros", "Correct it.")


def _pages(plan: Plan) -> Iterator[Fault]:
    for index, page in enumerate(plan.question.pages):
        place: Place = ("question", "pages", index)
        for key in page:
            if key not in _PAGE_KEYS:
                expected = f"to have the keys {', '.join(_PAGE_KEYS)}"
                yield Fault(place, expected, f"`{shown(key)}`", did_you_mean(key, _PAGE_KEYS))
        if not page.get("url") or not _zoned(page.get("at", "")):
            expected = "to have a `url` and the date-time with zone of reading it in `at`"
            remedy = 'For example at = "2026-11-30T12:00:00+00:00"; a `commit` where there is one.'
            yield Fault(place, expected, f"{dict(page)!r:.70}", remedy)


def _zoned(text: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
