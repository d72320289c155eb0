"""``slipstream serve``'s command line for a condition, and what it says is in effect."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from slipstream.errors import OptionError
from slipstream.lab.client import told
from slipstream.lab.contract.manifest import UNKNOWN, MethodIdentity
from slipstream.lab.contract.methods import (
    NGRAM_CACHE_MOST,
    draft_of,
    methods_of,
    options_read,
    parameters_of,
)
from slipstream.lab.contract.plan import ConditionPlan, Plan
from slipstream.lab.freezing.help_text import Help
from slipstream.lab.runtimes.llama_flags import CONTEXT, DRAFT, SLOTS, TARGET, THREADS
from slipstream.lab.runtimes.server_process import HOST
from slipstream.options import SpeculationOptions, describe, from_mapping, longest_draft

FORBIDDEN: Final = (
    *("--host", "--port", "--spec", "--spec-type", "--draft-model", "--spec-draft-model"),
    *("--model-draft", "--context", "--ctx-size", "--n-ctx", "-c", "--parallel", "--n-parallel"),
    *("--profile", "--api-key-file", "--alias", "--model-alias", "--json"),
)
"""What the plan's own keys say, or what would come between the lab and the engine."""

_FACTS: Final = ("architecture", "backend", "isa", "precision", "kv_type", "exact")


def method_identity(condition: ConditionPlan, plan: Plan, help_text: Help) -> MethodIdentity:
    """See ``Runtime.method``.

    Raises:
        OptionError: the condition contradicts itself, the plan or an option's bounds.
    """
    methods = methods_of(condition)
    draft = draft_of(condition, plan)
    parameters = _known(parameters_of(condition))
    options = from_mapping(SpeculationOptions, {"type": methods, **parameters})
    flags = ["--spec", ",".join(methods), *(["--draft-model", DRAFT] if draft else [])]
    for name, value in parameters.items():
        flags += _flag(name, value)
    faults = [*help_text.faults(flags), *_missing(methods)]
    return MethodIdentity(
        condition=condition.name,
        stage=condition.stage,
        method=condition.method,
        parameters={**parameters, **_left(options, methods, parameters)},
        starting_point=condition.starting_point,
        most_proposed=_most(options, methods),
        draft=condition.draft,
        flags=tuple(flags),
        not_run="; ".join(faults),
    )


def _known(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """
    Raises:
        OptionError: a parameter that is no option of Slipstream's.
    """
    names = [option.name for option in describe(SpeculationOptions)]
    for name in parameters:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1, 0.0)[0]
            raise OptionError(
                "parameters that Slipstream has", f"`{name:.80}`", f"Did you mean `{near}`?"
            )
    return dict(parameters)


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else []
    return [flag, f"{value:g}" if isinstance(value, float) else str(value)]


def _missing(methods: Sequence[str]) -> list[str]:
    """Methods that this version does not run."""
    from slipstream import drafters

    runs = {"none", "auto", *drafters.implemented()}
    return [f"this version does not run {name}" for name in methods if name not in runs]


def _left(
    options: SpeculationOptions, methods: Sequence[str], passed: Mapping[str, Any]
) -> dict[str, Any]:
    """``left.OPTION`` -> Slipstream's own value, for what the methods read."""
    names = [name for name in options_read(methods) if name not in passed]
    found = {f"left.{name}": getattr(options, name) for name in names if name != "draft_model"}
    return {name: value for name, value in found.items() if value is not None}


def _most(options: SpeculationOptions, methods: Sequence[str]) -> int:
    if methods == ("none",):
        return 0
    if methods == ("ngram-cache",):
        return NGRAM_CACHE_MOST
    return longest_draft(options)


def common_flags(
    given: Sequence[str], help_text: Help, *, threads: bool = False
) -> tuple[str, ...]:
    """What every start has beside the condition's flags.

    Raises:
        OptionError: the plan gives a flag that is the lab's to say, or that the help does not have.
    """
    for word in given:
        if word.partition("=")[0] in FORBIDDEN:
            raise OptionError(
                "`flags` that say nothing of models, places, drafting, context or slots",
                f"`{word:.80}`",
                "The plan's own keys say these.",
            )
    flags = ["--host", HOST, "--port", "0", "--json", "--metrics"]
    flags += ["--context", CONTEXT, "--parallel", SLOTS]
    flags += ["--threads", THREADS] if threads else []
    faults = help_text.faults([*flags, *given])
    if faults:
        raise OptionError("flags that `slipstream serve` has", "; ".join(faults), "Correct them.")
    return (TARGET, *flags, *given)


def effective(facts: Mapping[str, Any], ready: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in effect, from ``/props`` and the line that said that it is ready."""
    speculative = told.mapping(ready.get("speculative"))
    methods = told.mapping(ready.get("methods"))
    found: dict[str, Any] = {
        "context": facts.get("context"),
        "slots": facts.get("parallel"),
        "threads": facts.get("threads"),
        "spec-type": speculative.get("type"),
    }
    for name in told.text(speculative.get("type")).split(","):
        found |= told.mapping(told.mapping(methods.get(name)).get("parameters"))
    return {name: value for name, value in found.items() if value is not None}


def asked(method: MethodIdentity, plan: Plan, slots: int) -> dict[str, Any]:
    """Settings that were asked for, under the names of ``effective``."""
    passed = {k: v for k, v in method.parameters.items() if not k.startswith("left.")}
    found: dict[str, Any] = {"context": plan.context, "slots": slots, **passed}
    found |= {"threads": plan.threads} if plan.threads else {}
    return found if method.method == "auto" else {**found, "spec-type": method.method}


def capability(facts: Mapping[str, Any]) -> dict[str, str]:
    """What it says of backend and numbers."""
    return {name: str(facts.get(name, UNKNOWN)) for name in _FACTS}
