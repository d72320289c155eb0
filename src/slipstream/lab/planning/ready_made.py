"""Conditions with their values spelt out: defaults per method, and sweeps of one parameter.

A condition without parameters gets those of its method, passed explicitly, so that a default that
moves between two builds cannot move the measurement. They are where a search begins and are
labelled so; nothing recommends them. Values and names are those of ``SpeculationOptions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from slipstream.errors import OptionError
from slipstream.lab.contract.methods import canonical
from slipstream.lab.contract.plan import ConditionPlan, Plan, Stage
from slipstream.speculation_options import LONGEST, LONGEST_FIXED, SpeculationOptions

NONE: Final = ConditionPlan(name="none", stage="none")

TRAINED: Final = ("draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "medusa")

SWEEPS: Final[Mapping[str, Mapping[str, tuple[Any, ...]]]] = MappingProxyType(
    {
        "ngram-simple": {
            "ngram_simple_size_n": (3, 6, 24),
            "ngram_simple_size_m": (8, 16, 32),
        },
        "ngram-map-k": {
            "ngram_map_k_size_n": (3, 6, 24),
            "ngram_map_k_size_m": (8, 16, 32),
            "ngram_map_k_min_hits": (2,),
        },
        "ngram-map-k4v": {
            "ngram_map_k4v_size_n": (3, 6, 24),
            "ngram_map_k4v_size_m": (8, 16, 32),
            "ngram_map_k4v_min_hits": (2,),
        },
        "ngram-mod": {
            "ngram_mod_n_match": (8, 16),
            "ngram_mod_n_min": (2, 8, 24),
            "ngram_mod_n_max": (48, 96),
        },
        "suffix": {
            "suffix_n_max": (8, 16),
            "suffix_match": (2, 4),
            "suffix_factor": (1.0, 2.0, 8.0),
            "suffix_p_min": (0.0, 0.3),
        },
    }
)
"""Method -> parameter -> values that a sweep tries beside the default, one at a time."""


def names_of(method: str) -> tuple[str, ...]:
    """The methods of a condition; several are written with commas."""
    return tuple(name.strip() for name in method.split(","))


def stage_of(method: str, draft: str = "") -> Stage:
    """The rung that a method belongs to, of several the highest; ``auto`` by its draft model."""
    names = names_of(method)
    if any(name in TRAINED for name in names):
        return "trained"
    if "draft-simple" in names or (draft and "auto" in names):
        return "draft-simple"
    return "none" if names == ("none",) else "ngram"


def starting_values(method: str, *, slipstream_only: bool = True) -> dict[str, Any]:
    """Every value that the method reads, as the options declare it; paths are left out.

    Args:
        slipstream_only: no other program runs the plan. llama.cpp verifies every draft whole, so
            there a draft model begins with its shorter drafts.
    """
    fields = {f.name: f.default for f in msgspec.structs.fields(SpeculationOptions)}
    made: dict[str, Any] = {}
    for name in names_of(method):
        if name == "draft-simple" or name in TRAINED:
            longest = LONGEST if slipstream_only else LONGEST_FIXED
            made |= {"n_max": longest, "n_min": fields["n_min"], "p_min": fields["p_min"]}
        prefix = name.replace("-", "_") + "_"
        made |= {n: v for n, v in fields.items() if n.startswith(prefix) and v is not None}
    return made


def ready_made(method: str, *, draft: str = "", plan: Plan | None = None) -> ConditionPlan:
    """A condition of the method, named after it, with its starting values."""
    return _with_values(
        ConditionPlan(name=method, stage=stage_of(method, draft), method=method, draft=draft), plan
    )


def expanded(plan: Plan) -> tuple[ConditionPlan, ...]:
    """``none`` and the plan's conditions, values spelt out, sweeps unfolded, in the plan's order.

    A sweep may name its ``parent`` alone (all of ``SWEEPS`` for its method), or ``varies`` too
    (that parameter's values), or give its own values as a list or one value under that key.

    Raises:
        OptionError: two conditions have one name, a sweep has no parent or nothing to vary.
    """
    made = [NONE]
    for condition in plan.conditions:
        if condition.stage == "ngram-sweep":
            made += _sweep(condition, _parent(condition, made))
        elif condition.name != NONE.name:
            made.append(_with_values(condition, plan))
    names = [condition.name for condition in made]
    for name in names:
        if names.count(name) > 1:
            raise OptionError("conditions of different names", f"two `{name}`", "Rename one.")
    return tuple(made)


def parents(plan: Plan) -> dict[str, str]:
    """Condition of a sweep -> the condition it varies."""
    return {c.name: c.parent for c in expanded(plan) if c.stage == "ngram-sweep"}


def _with_values(condition: ConditionPlan, plan: Plan | None) -> ConditionPlan:
    kinds = {r.kind for r in plan.runtimes.values()} if plan else {"slipstream"}
    if condition.parameters or kinds == {"openai"}:  # values of a server that runs are its own
        return condition
    values = starting_values(condition.method, slipstream_only=kinds == {"slipstream"})
    return msgspec.structs.replace(condition, parameters=values, starting_point=bool(values))


def _parent(condition: ConditionPlan, made: list[ConditionPlan]) -> ConditionPlan:
    """The n-gram condition before it that it varies; without a name, the last one."""
    found = [c for c in made if c.stage == "ngram" and c.name == (condition.parent or c.name)]
    if not found:
        raise OptionError(
            f"an n-gram condition before the sweep `{condition.name}`",
            f"no `{condition.parent}`" if condition.parent else "none",
            "Name it as `parent`, and place it before the sweep.",
        )
    return found[-1]


def _sweep(condition: ConditionPlan, parent: ConditionPlan) -> list[ConditionPlan]:
    values = dict(_varied(condition, parent))
    single = len(values) == 1 and not isinstance(_given(condition), list | tuple)
    made = []
    for parameter, tried in values.items():
        for value in tried:
            own = _without(parent, parameter)
            if value in [v for k, v in parent.parameters.items() if k not in own]:
                continue
            plain = single and condition.varies in condition.parameters
            name = condition.name if plain else f"{condition.name}-{_short(parameter)}-{value}"
            made.append(
                ConditionPlan(
                    name=name,
                    stage="ngram-sweep",
                    method=parent.method,
                    parameters={**own, parameter: value},
                    draft=parent.draft,
                    varies=parameter,
                    parent=parent.name,
                )
            )
    if not made:
        raise OptionError(
            f"a value that the sweep `{condition.name}` tries beside its parent's",
            "none",
            f"Give values for `{condition.varies or 'varies'}` that `{parent.name}` does not have.",
        )
    return made


def _without(parent: ConditionPlan, parameter: str) -> dict[str, Any]:
    """The parent's parameters but this one, however either spells it."""
    methods = names_of(parent.method)
    name = canonical(methods, parameter) or parameter
    return {k: v for k, v in parent.parameters.items() if (canonical(methods, k) or k) != name}


def _given(condition: ConditionPlan) -> Any:
    return condition.parameters.get(condition.varies)


def _varied(
    condition: ConditionPlan, parent: ConditionPlan
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """(parameter, values) of a sweep."""
    known = SWEEPS.get(parent.method, {})
    if not condition.varies:
        yield from known.items()
        return
    given = _given(condition)
    if given is None:
        yield condition.varies, known.get(condition.varies, ())
    else:
        yield condition.varies, tuple(given) if isinstance(given, list | tuple) else (given,)


def _short(parameter: str) -> str:
    """``ngram_simple_size_n`` -> ``size-n``: the method is in the name already."""
    for method in SWEEPS:
        parameter = parameter.removeprefix(method.replace("-", "_") + "_")
    return parameter.replace("_", "-")
