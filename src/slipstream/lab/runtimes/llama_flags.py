"""llama-server's command line for a condition: every flag looked up in the binary's own help.

Builds spell flags differently; of the spellings known the first that the help has is used. A flag
that it does not have makes a condition ``not run``, with the flag as the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slipstream.errors import OptionError
from slipstream.lab.contract.manifest import MethodIdentity
from slipstream.lab.contract.methods import (
    draft_of,
    methods_of,
    most_proposed,
    options_read,
    parameters_of,
)
from slipstream.lab.contract.plan import ConditionPlan, Plan
from slipstream.lab.freezing.help_text import Help

TARGET, DRAFT, CONTEXT, SLOTS, THREADS = "{target}", "{draft}", "{context}", "{slots}", "{threads}"
"""Stand in recorded flags for what a start fills in: paths and numbers of the plan."""

TYPE: Final = "--spec-type"
_DRAFT_MODEL: Final = ("--spec-draft-model", "--model-draft")
_OLDER: Final[Mapping[str, tuple[str, ...]]] = {
    "n_max": ("--spec-draft-n-max", "--draft-max"),
    "n_min": ("--spec-draft-n-min", "--draft-min"),
    "p_min": ("--spec-draft-p-min", "--draft-p-min"),
    "draft_context": ("--spec-draft-ctx-size", "--ctx-size-draft"),
    "draft_sampling": ("--spec-draft-sampling",),
    "ngram_cache_static": ("--lookup-cache-static",),
    "ngram_cache_dynamic": ("--lookup-cache-dynamic",),
    **{
        f"ngram_{kind}_{size}": (
            f"--spec-ngram-{kind.replace('_', '-')}-{size.replace('_', '-')}",
            f"--spec-ngram-{size.replace('_', '-')}",
        )
        for kind in ("simple", "map_k", "map_k4v")
        for size in ("size_n", "size_m", "min_hits")
    },
}
# given to every start where the help has them and the plan says nothing of them
_QUIET: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("--no-ui", "--no-webui"), ""),
    (("--metrics",), ""),
    (("--slots",), ""),
    (("--cache-ram",), "0"),  # nothing of earlier requests is kept
    (("--no-context-shift",), ""),
)
_TRACE: Final = "4: trace"
FORBIDDEN: Final = (
    *("-m", "--model", "-hf", "--hf-repo", "-mu", "--model-url", "-dr", "--docker-repo"),
    *("--host", "--port", "-np", "--parallel", "-c", "--ctx-size", TYPE, "-md", "--model-draft"),
    *("--spec-draft-model", "--models-dir", "--models-preset", "--models-max", "--spec-default"),
    *("-hff", "--hf-file", "--log-disable", "--log-file", "--api-key", "--api-key-file"),
)
"""What the lab itself says, or may not be: a router, a model of another name."""


@dataclass(frozen=True)
class Told:
    """Flags of a condition, and why it cannot be said; ``parameters`` as recorded."""

    flags: tuple[str, ...]
    parameters: Mapping[str, Any]
    not_run: str


def spelled(help_text: Help, name: str, methods: Sequence[str]) -> str | None:
    """The flag of an option, or of a key that is none of ours; None = the help has none."""
    plain = name.replace("_", "-")
    within = [f"--spec-{method}-{plain}" for method in methods]
    known = _OLDER.get(name, (f"--spec-{plain}",))
    return help_text.first(*known, *within, f"--spec-{plain}", f"--{plain}")


def method_identity(condition: ConditionPlan, plan: Plan, help_text: Help) -> MethodIdentity:
    """See ``Runtime.method``.

    Raises:
        OptionError: the condition contradicts itself, or the plan.
    """
    methods = methods_of(condition)
    draft = draft_of(condition, plan)
    parameters = parameters_of(condition)
    told = _told(methods, parameters, bool(draft), help_text)
    return MethodIdentity(
        condition=condition.name,
        stage=condition.stage,
        method=condition.method,
        parameters=dict(told.parameters),
        starting_point=condition.starting_point,
        most_proposed=most_proposed(methods, _in_effect(told.parameters)),
        draft=condition.draft,
        flags=told.flags,
        not_run=told.not_run,
    )


def _told(
    methods: tuple[str, ...], parameters: Mapping[str, Any], has_draft: bool, help_text: Help
) -> Told:
    flags: list[str] = []
    faults: list[str] = []
    if has_draft and methods == ("draft-simple",) and _drafts_by_model(help_text):
        pass
    elif help_text.has(TYPE):
        flags += [TYPE, ",".join(methods)]
    elif methods != ("none",):
        faults.append(f"its help has no `{TYPE}`")
    if has_draft:
        name = help_text.first(*_DRAFT_MODEL)
        flags += [name, DRAFT] if name else []
        faults += [] if name else [f"its help has no `{_DRAFT_MODEL[0]}`"]
    for option, value in parameters.items():
        found, fault = _parameter(option, value, methods, help_text)
        flags += found
        faults += [fault] if fault else []
    faults += help_text.faults(flags)
    recorded = {**parameters, **_left(methods, parameters, help_text)}
    return Told(tuple(flags), recorded, "; ".join(faults))


def _drafts_by_model(help_text: Help) -> bool:
    """Whether a draft model alone is enough, as in ik_llama.cpp: there it is no type."""
    flag = help_text.flags.get(TYPE)
    return flag is not None and bool(flag.choices) and "draft-simple" not in flag.choices


def _parameter(
    option: str, value: Any, methods: Sequence[str], help_text: Help
) -> tuple[list[str], str]:
    flag = spelled(help_text, option, methods)
    if flag is None:
        return [], f"its help has no flag for `{option}` ({_first_spelling(option)})"
    if not isinstance(value, bool):
        return [flag, f"{value:g}" if isinstance(value, float) else str(value)], ""
    if value:
        return [flag], ""
    off = help_text.first(f"--no-{flag.removeprefix('--')}")
    return ([off], "") if off else ([], f"its help cannot switch off `{flag}`")


def _first_spelling(option: str) -> str:
    return _OLDER.get(option, (f"--spec-{option.replace('_', '-')}",))[0]


def _left(methods: Sequence[str], passed: Mapping[str, Any], help_text: Help) -> dict[str, str]:
    """``left.OPTION`` -> the default that the help tells, for what the methods read."""
    found = {}
    for option in options_read(methods):
        flag = spelled(help_text, option, methods)
        told = "" if flag is None else help_text.default(flag)
        if told and option not in (*passed, "draft_model"):
            found[f"left.{option}"] = told
    return found


def _in_effect(recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("left."): value for name, value in recorded.items()}


def common_flags(
    given: Sequence[str], help_text: Help, *, threads: bool = False
) -> tuple[str, ...]:
    """What every start has beside host, port and the condition's flags.

    Args:
        given: the plan's flags for this runtime.
        threads: whether the plan says how many.

    Raises:
        OptionError: the plan gives a flag that is the lab's to say, or that the help does not have.
    """
    _require_allowed(given, help_text)
    flags = ["-m", TARGET, "-c", CONTEXT, "-np", SLOTS]
    if threads:
        flags += ["-t", THREADS, *(["-tb", THREADS] if help_text.has("-tb") else [])]
    for names, value in _QUIET:
        name = help_text.first(*names)
        if name is not None and not _speaks_of(given, name, help_text):
            flags += [name, value] if value else [name]
    verbosity = help_text.flags.get("--log-verbosity")
    if verbosity is not None and _TRACE in verbosity.text:
        flags += [] if _speaks_of(given, "--log-verbosity", help_text) else ["-lv", "4"]
    faults = help_text.faults([*flags, *given])
    if faults:
        raise OptionError("flags that the program's help has", "; ".join(faults), "Correct them.")
    return (*flags, *given)


def debug_flags(help_text: Help) -> tuple[str, ...]:
    """What makes the log tell everything; for an untimed probe."""
    name = help_text.first("--log-verbose", "--verbose", "-v")
    return (name,) if name else ()


def _require_allowed(given: Sequence[str], help_text: Help) -> None:
    for word in given:
        flag = help_text.flags.get(word.partition("=")[0])
        names = flag.names if flag is not None else (word.partition("=")[0],)
        if set(names) & set(FORBIDDEN):
            raise OptionError(
                "`flags` that say nothing of models, places, drafting, context, slots or a router",
                f"`{word:.80}`",
                "The plan's own keys say these; one process serves one model.",
            )


def _speaks_of(given: Sequence[str], name: str, help_text: Help) -> bool:
    flag = help_text.flags[name]
    return any(word.partition("=")[0] in flag.names for word in given)


def filled(flags: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Recorded flags with the paths and numbers of a start."""
    return [values.get(word, word) for word in flags]
