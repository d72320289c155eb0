"""What a plan may ask of every request: each setting is one that can be sent as it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from slipstream.errors import OptionError
from slipstream.lab.contract.plan import Plan
from slipstream.lab.planning.plan_faults import Fault
from slipstream.lab.planning.plan_lines import Place
from slipstream.options import GRAMMARS, SamplingOptions, from_mapping

_SAMPLER: Final[Place] = ("sampling", "sampler")
_FIXED: Final[Mapping[str, str]] = {
    "seed": "`sampling.seed` is that of every request.",
    "max_tokens": "`sampling.max_tokens` is that of every request.",
    "stop": "`sampling.stop` is that of every request.",
    "logprobs": "The lab asks for them where it needs them, never in what is timed.",
    **dict.fromkeys(GRAMMARS, "A prompt's own `schema` constrains its output."),
}
"""Settings that are said elsewhere, and where."""


def sampling_faults(plan: Plan) -> Iterator[Fault]:
    """Settings that no request can carry, or that contradict the plan."""
    try:
        from_mapping(SamplingOptions, {"stop": plan.sampling.stop})
    except OptionError as problem:
        yield Fault(("sampling", "stop"), _required("stop", problem), problem.found, problem.remedy)
    sampler = dict(plan.sampling.sampler)
    if sampler:
        yield from _sampler(sampler)


def _sampler(sampler: Mapping[str, Any]) -> Iterator[Fault]:
    for name, why in _FIXED.items():
        if name in sampler:
            expected = "to be without what is said elsewhere"
            yield Fault(_SAMPLER, expected, f"`{name}`", why)
    try:
        options = from_mapping(SamplingOptions, sampler)
    except OptionError as problem:
        expected = f"to be options of sampling, {problem.expected}"
        yield Fault(_SAMPLER, expected, problem.found, problem.remedy)
        return
    if options.temperature <= 0:
        remedy = "Give the temperature of your real sampler; temperature 0 is the first stage."
        yield Fault(_SAMPLER, "to have a temperature above 0", f"{options.temperature}", remedy)


def _required(name: str, problem: OptionError) -> str:
    """What an option must be, continuing the plan's own key."""
    return problem.expected.removeprefix(f"`{name}` ")
