"""What a condition's method and parameters mean, in the names of ``SpeculationOptions``.

A plan may spell a parameter as Slipstream's option (``ngram_simple_size_m``), as llama.cpp's flag
(``--spec-ngram-simple-size-m``), or without what the method says already (``size_m``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from slipstream.errors import OptionError
from slipstream.lab.contract.manifest import UNKNOWN
from slipstream.lab.contract.plan import ConditionPlan, Plan
from slipstream.options import METHODS, SpeculationOptions, describe
from slipstream.speculation_options import read_by

NGRAM_CACHE_MOST: Final = 8
"""llama.cpp's fixed limit of ngram-cache."""

NEEDS_MODEL: Final = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")

# method -> the option that bounds a proposal of it
_BOUNDS: Final[Mapping[str, str]] = {
    "ngram-simple": "ngram_simple_size_m",
    "ngram-map-k": "ngram_map_k_size_m",
    "ngram-map-k4v": "ngram_map_k4v_size_m",
    "ngram-mod": "ngram_mod_n_max",
    "suffix": "suffix_n_max",
}


def methods_of(condition: ConditionPlan) -> tuple[str, ...]:
    """The methods that a condition names, each once.

    Raises:
        OptionError: none or unknown ones, ``none`` beside others, or a draft model is missing.
    """
    names = tuple(dict.fromkeys(name.strip() for name in condition.method.split(",")))
    for name in names:
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, 1, 0.0)[0]
            raise OptionError(
                f"the method of condition `{condition.name}` to be one of {', '.join(METHODS)}",
                f"`{name:.80}`",
                f"Did you mean `{near}`?",
            )
    if "none" in names and len(names) > 1:
        raise OptionError("`none` alone, or drafting methods", condition.method, "Leave out one.")
    return names


def draft_of(condition: ConditionPlan, plan: Plan) -> str:
    """The plan's model behind a condition's ``draft``; empty where it names none.

    Raises:
        OptionError: the plan has no such draft, or the method needs one.
    """
    if condition.draft:
        if condition.draft not in plan.drafts:
            raise OptionError(
                f"`draft` of condition `{condition.name}` to be one of the plan's drafts "
                f"({', '.join(plan.drafts) or 'it has none'})",
                f"`{condition.draft:.80}`",
                "Add it under [drafts].",
            )
        return plan.drafts[condition.draft].model
    needing = [name for name in methods_of(condition) if name in NEEDS_MODEL]
    if needing:
        raise OptionError(
            f"a `draft` for condition `{condition.name}`, as {needing[0]} runs a model",
            "none",
            "Name one of the plan's drafts.",
        )
    return ""


def canonical(methods: Iterable[str], key: str) -> str | None:
    """The option that a parameter's key means for these methods; None = none of ours."""
    spelled = key.lstrip("-").replace("-", "_")
    names = spellings()
    within = (f"{method.replace('-', '_')}_{spelled}" for method in methods)
    return next((names[name] for name in (*within, spelled) if name in names), None)


def parameters_of(condition: ConditionPlan) -> dict[str, Any]:
    """Option, or key as the plan has it where it is none of ours -> value.

    Raises:
        OptionError: the same option twice, or one that none of the methods reads.
    """
    methods = methods_of(condition)
    found: dict[str, Any] = {}
    for key, value in condition.parameters.items():
        name = canonical(methods, key)
        if name is not None:
            _require_read(condition, methods, key, name)
        settled = name or key.lstrip("-").replace("-", "_")
        if settled in found:
            raise OptionError(f"`{settled}` once", f"twice in {condition.name}", "Remove one.")
        found[settled] = value
    return found


def _require_read(condition: ConditionPlan, methods: tuple[str, ...], key: str, name: str) -> None:
    readers = [method for method in METHODS if name in read_by(method)]
    if readers and not set(readers) & set(methods):
        raise OptionError(
            f"`{key}` of condition `{condition.name}` with a method that reads it "
            f"({', '.join(readers)})",
            condition.method,
            "Leave it out, or name such a method.",
        )


def options_read(methods: Iterable[str]) -> tuple[str, ...]:
    """The options that these methods read, in the order of ``SpeculationOptions``."""
    read = {name for method in methods for name in read_by(method)}
    return tuple(option.name for option in describe(SpeculationOptions) if option.name in read)


def most_proposed(methods: Iterable[str], values: Mapping[str, Any]) -> int | str:
    """Most tokens that a step can propose.

    Args:
        values: option -> value in effect, as numbers or texts.
    """
    found = [_most_of(method, values) for method in methods]
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else UNKNOWN


def _most_of(method: str, values: Mapping[str, Any]) -> int | None:
    if method == "none":
        return 0
    if method == "ngram-cache":
        return NGRAM_CACHE_MOST
    return as_int(values.get(_BOUNDS.get(method, "n_max")))


def as_int(value: Any) -> int | None:
    """A whole number, also one that a help text begins with (``0, 0 = all``)."""
    try:
        return int(str(value).partition(",")[0].strip())
    except ValueError:
        return None


def spellings() -> dict[str, str]:
    """Every spelling of an option of speculation -> the option."""
    options = describe(SpeculationOptions)
    return {name: option.name for option in options for name in (option.name, *option.aliases)}
