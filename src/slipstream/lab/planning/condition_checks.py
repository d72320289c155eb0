"""What a plan's conditions must be: known methods of their stage, a draft model, one sweep."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from slipstream import plugin_names
from slipstream.errors import OptionError
from slipstream.lab.contract.methods import canonical, spellings
from slipstream.lab.contract.plan import ConditionPlan, Plan
from slipstream.lab.planning.plan_faults import Fault, did_you_mean
from slipstream.lab.planning.plan_lines import Place
from slipstream.lab.planning.ready_made import expanded
from slipstream.options import METHODS, SpeculationOptions, from_mapping

NONE: Final = "none"
TRAINED: Final = ("draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "medusa")
"""Methods whose drafter was trained for one target."""
NEED_DRAFT: Final = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")
"""Methods that have a file of their own; heads of draft-mtp may lie in the target's."""
_NOT_ASKED: Final[Mapping[str, str]] = {
    "none": "Without drafting there is `none` alone, which is always measured; leave it out.",
    "slots": "Every condition that survives at one slot runs at the plan's `arrivals.slots`.",
    "sampler": "Every condition that survives runs with the plan's `sampling.sampler` afterwards.",
}
_SWEEP: Final = "ngram-sweep"
_STAGE_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "none": (NONE,),
    "draft-simple": ("draft-simple", "auto"),
    "trained": TRAINED,
}


def method_names(condition: ConditionPlan) -> tuple[str, ...]:
    """The methods of a condition; several are written with commas."""
    return tuple(name.strip() for name in condition.method.split(","))


def needs_draft(condition: ConditionPlan) -> bool:
    """Whether one of its methods reads a draft model's file."""
    return any(name in NEED_DRAFT for name in method_names(condition))


def canonical_parameters(condition: ConditionPlan) -> dict[str, Any]:
    """Its parameters by the names of ``SpeculationOptions``.

    A key may be spelt as the option, as llama.cpp's flag (``--spec-ngram-mod-n-max``), or without
    what the method says already (``n_max`` of ``ngram-mod``).

    Raises:
        OptionError: an unknown key, or one option twice.
    """
    found: dict[str, Any] = {}
    for key, value in condition.parameters.items():
        name = canonical(method_names(condition), key)
        if name is None:
            near = difflib.get_close_matches(key, spellings(), 1, 0.0)[0]
            raise OptionError("a known option", f"`{key:.80}`", f"Did you mean `{near}`?")
        if name in found:
            raise OptionError(f"`{name}` once", f"`{key:.80}` and an alias", "Remove one.")
        found[name] = value
    return found


def condition_faults(place: Place, condition: ConditionPlan, plan: Plan) -> Iterator[Fault]:
    """What is wrong with one condition of a plan.

    Args:
        place: where it stands.
    """
    if condition.stage in _NOT_ASKED and condition.name != NONE:
        yield _unplaced(place, condition)
        return
    yield from _methods(place, condition)
    yield from _draft(place, condition, plan)
    if condition.stage == _SWEEP:
        yield from _sweep(place, condition, plan)
        return
    yield from _parameters(place, condition, plan)
    if condition.varies or condition.parent:
        name = "varies" if condition.varies else "parent"
        expected = f"only in a condition of stage {_SWEEP}"
        remedy = f"Leave out `{name}`, or set the stage."
        yield Fault((*place, name), expected, f"stage {condition.stage}", remedy)


def _unplaced(place: Place, condition: ConditionPlan) -> Fault:
    """Of a stage that no condition is of: it would never run."""
    stages = "ngram, ngram-sweep, draft-simple or trained"
    expected = f"to be what its method is: {stages}"
    return Fault((*place, "stage"), expected, f"{condition.stage}", _NOT_ASKED[condition.stage])


MOST_CONDITIONS: Final = 64
"""A plan's blocks are held in memory: conditions x repeats x workloads."""


def expanded_faults(plan: Plan) -> Iterator[Fault]:
    """What is wrong with the conditions that sweeps unfold to, where those as written are sound."""
    swept = [
        (c.name, ("conditions", i)) for i, c in enumerate(plan.conditions) if c.stage == _SWEEP
    ]
    try:
        made = [c for c in expanded(plan) if c.stage == _SWEEP]
    except OptionError as problem:
        place: Place = swept[0][1] if len(swept) == 1 else ("conditions",)
        yield Fault(place, f"to give {problem.expected}", problem.found, problem.remedy)
        return
    if len(made) > MOST_CONDITIONS:
        found = f"{len(made)} of sweeps"
        expected = f"to be at most {MOST_CONDITIONS}"
        yield Fault(("conditions",), expected, found, "Split the plan.")
        return
    for condition in made:
        own = [place for name, place in swept if condition.name.startswith(name)]
        yield from _parameters(max(own), condition, plan)


def _methods(place: Place, condition: ConditionPlan) -> Iterator[Fault]:
    known = [*METHODS, *plugin_names.installed()]
    for name in method_names(condition):
        if name not in known:
            expected = f"to be some of {', '.join(known)}"
            yield Fault((*place, "method"), expected, f"`{name}`", did_you_mean(name, known))
    wrong = [name for name in method_names(condition) if not _fits(name, condition.stage)]
    if wrong:
        allowed = _STAGE_METHODS.get(condition.stage, ("methods without a model",))
        expected = f"to be of stage {condition.stage}"
        remedy = f"It takes {' or '.join(allowed)}."
        yield Fault((*place, "method"), expected, f"`{wrong[0]}`", remedy)
    if condition.name == NONE and condition.stage != NONE:
        remedy = "`none` is always measured and need not be listed."
        yield Fault((*place, "name"), "to be free", "`none`, the baseline", remedy)


def _fits(method: str, stage: str) -> bool:
    allowed = _STAGE_METHODS.get(stage)
    if allowed is not None:
        return method in allowed or method in plugin_names.installed()
    if method == NONE:
        return stage == _SWEEP  # its method is its parent's
    return not stage.startswith("ngram") or not (method.startswith("draft-") or method == "medusa")


def _draft(place: Place, condition: ConditionPlan, plan: Plan) -> Iterator[Fault]:
    readers = (*NEED_DRAFT, *TRAINED, "auto")
    if needs_draft(condition) and not condition.draft:
        remedy = "Add `[drafts.NAME]` and name it here."
        yield Fault(place, "to name its `draft`", f"none for {condition.method}", remedy)
    elif condition.draft and not set(method_names(condition)) & set(readers):
        found = f"method {condition.method}"
        expected = "only with a method that reads a draft model"
        yield Fault((*place, "draft"), expected, found, "Leave out `draft`.")
    elif condition.draft and condition.draft not in plan.drafts:
        remedy = did_you_mean(condition.draft, plan.drafts)
        expected = "to be a key of `drafts`"
        yield Fault((*place, "draft"), expected, f"`{condition.draft}`", remedy)


def _parameters(place: Place, condition: ConditionPlan, plan: Plan) -> Iterator[Fault]:
    """Only where every program is ours: what another one knows, its help tells later."""
    if any(runtime.kind != "slipstream" for runtime in plan.runtimes.values()):
        return
    try:
        from_mapping(SpeculationOptions, canonical_parameters(condition))
    except OptionError as problem:
        expected = f"to be options of speculation, {problem.expected}"
        yield Fault((*place, "parameters"), expected, problem.found, problem.remedy)


def _sweep(place: Place, condition: ConditionPlan, plan: Plan) -> Iterator[Fault]:
    """It may leave out its parent (the n-gram condition before it), what varies, and the values."""
    index = plan.conditions.index(condition)
    parents = {c.name: c for c in plan.conditions[:index] if c.stage == "ngram"}
    if not parents or condition.parent not in ("", *parents):
        remedy = did_you_mean(condition.parent, parents) if parents else "Place one before it."
        found = f"`{condition.parent}`" if condition.parent else "none"
        expected = "to be an n-gram condition before it"
        yield Fault((*place, "parent"), expected, found, remedy)
        return
    parent = parents[condition.parent] if condition.parent else [*parents.values()][-1]
    if condition.method not in (NONE, parent.method):
        expected = f"to be that of `{parent.name}`, {parent.method}"
        yield Fault((*place, "method"), expected, condition.method, "Leave it out.")
    methods = method_names(parent)
    given = {canonical(methods, k) or k: v for k, v in condition.parameters.items()}
    fixed = {canonical(methods, k) or k: v for k, v in parent.parameters.items()}
    varies = canonical(methods, condition.varies) or condition.varies
    changed = sorted(k for k, v in given.items() if v != fixed.get(k) and k != varies)
    if changed:
        expected = f"to differ from `{parent.name}` in `varies` alone"
        remedy = "A sweep varies one at a time."
        yield Fault((*place, "parameters"), expected, ", ".join(changed), remedy)
