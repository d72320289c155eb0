"""Profiles: which workload runs with which drafting method and limits (``serve --profile FILE``).

A request names its workload by a tag. Without a tag, or with one that the file lacks, it runs with
``default``, so a typing error costs speed and never more.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from slipstream.errors import OptionError
from slipstream.option_fields import describe, from_mapping, option, validate
from slipstream.options import MOST
from slipstream.server.order import Order
from slipstream.server.wire import Speculation
from slipstream.speculation_options import DraftScope, MethodName, SpeculationOptions

DEFAULT: Final = "default"
MOST_PROFILE_BYTES: Final = 1 << 20
_TOP_LEVEL: Final = (DEFAULT, "workload")
_REMEDY: Final = "See docs/profile.md for a complete example."


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests of a workload run with: one table of the file.

    ``type``, ``n_max``, ``n_min``, ``p_min`` and ``scope`` are what a request may say in its
    ``speculative`` object. A request that has one is not touched by them; the limits hold for all.
    """

    type: Annotated[tuple[MethodName, ...], option("drafting methods, or none", min_length=1)] = (
        "none",
    )
    n_max: (
        Annotated[
            int, option("most draft tokens on a path; unset = the method's own", ge=0, le=1024)
        ]
        | None
    ) = None
    n_min: Annotated[int, option("shorter drafts are dropped", ge=0, le=1024)] = 0
    p_min: Annotated[
        float, option("tokens less likely to be accepted are not verified", ge=0, le=1)
    ] = 0.0
    scope: (
        Annotated[DraftScope, option("how far drafters learn; unset = as far as the server lets")]
        | None
    ) = None
    max_tokens: (
        Annotated[int, option("most tokens to emit, whatever a request asks for", ge=1, le=MOST)]
        | None
    ) = None
    deadline_s: (
        Annotated[float, option("seconds after which a request ends", gt=0, le=86400)] | None
    ) = None

    def __post_init__(self) -> None:
        validate(self)
        chosen = SpeculationOptions(type=self.type)
        msgspec.structs.force_setattr(self, "type", chosen.type)
        if self.n_max is not None and self.n_min > self.n_max:
            raise OptionError(
                f"`n_min` at most `n_max` ({self.n_max})",
                f"{self.n_min}",
                "Lower it or raise `n_max`.",
            )

    @property
    def speculation(self) -> Speculation:
        return Speculation(
            methods=tuple(method for method in self.type if method != "none"),
            n_max=self.n_max,
            n_min=self.n_min,
            p_min=self.p_min,
            scope=self.scope,
        )


@dataclass(frozen=True, slots=True)
class InEffect:
    """The rule of one request.

    Attributes:
        workload: the tag, or ``default``.
        known: whether the request named a workload of the file.
    """

    workload: str
    known: bool
    rule: Rule

    def echo(self) -> dict[str, object]:
        """What the reply tells of it."""
        return {"workload": self.workload, "workload_known": self.known}


@dataclass(frozen=True, slots=True)
class Profile:
    """The rules of a file; an empty profile drafts nothing.

    Attributes:
        default: for requests without a known tag.
        workloads: tag -> rule.
    """

    default: Rule = field(default_factory=Rule)
    workloads: Mapping[str, Rule] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """The profile of a TOML file.

        Raises:
            OptionError: it cannot be read, is no TOML, or a key or value is unknown or out of
                range.
        """
        return cls.parse(_read(Path(path)))

    @classmethod
    def parse(cls, text: str) -> Profile:
        """As ``load``, from the text."""
        try:
            tables = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise OptionError("a profile in TOML", f"{error}", _REMEDY) from None
        for key in tables:
            if key not in _TOP_LEVEL:
                near = difflib.get_close_matches(key, _TOP_LEVEL, 1, 0.0)[0]
                raise OptionError(
                    "a known key of a profile", f"`{key:.80}`", f"Did you mean `{near}`?"
                )
        workloads = _table("workload", tables.get("workload", {}))
        if DEFAULT in workloads:
            raise OptionError(
                "`default` beside `workload`, not in it", "`[workload.default]`", _REMEDY
            )
        return cls(
            default=_rule(DEFAULT, tables.get(DEFAULT, {})),
            workloads={tag: _rule(f"workload.{tag}", rule) for tag, rule in workloads.items()},
        )

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return bool(self.workloads) or self.default != Rule()

    def in_effect(self, tag: str | None) -> InEffect:
        """The rule of a tag; ``default`` where there is no tag or none of that name."""
        if tag is None or tag not in self.workloads:
            return InEffect(DEFAULT, tag == DEFAULT, self.default)
        return InEffect(tag, True, self.workloads[tag])

    def speculation(self, tag: str | None) -> Speculation:
        return self.in_effect(tag).rule.speculation

    def applied(self, order: Order) -> tuple[Order, InEffect]:
        """An order under its workload's rule, and the rule.

        What the order itself says of speculation stays; its limits get no wider than the rule's.
        """
        effect = self.in_effect(order.workload)
        rule, sampling = effect.rule, order.sampling
        if rule.max_tokens is not None and not 0 <= sampling.max_tokens <= rule.max_tokens:
            sampling = msgspec.structs.replace(sampling, max_tokens=rule.max_tokens)
        deadlines = [d for d in (order.deadline_s, rule.deadline_s) if d is not None]
        speculation = order.speculation
        changed = dataclasses.replace(
            order,
            sampling=sampling,
            speculation=rule.speculation if speculation is None else speculation,
            deadline_s=min(deadlines, default=None),
        )
        return changed, effect

    def require_offered(self, methods: Mapping[str, Mapping[str, Any]]) -> None:
        """Check, once the model is loaded, that every method named is at work in this server.

        Args:
            methods: of ``wire.Ready``.

        Raises:
            OptionError: names the workload, the method and why it is not offered.
        """
        for tag, rule in {DEFAULT: self.default, **self.workloads}.items():
            _require_offered(tag, rule.type, methods)


def _require_offered(
    tag: str, names: Sequence[str], methods: Mapping[str, Mapping[str, Any]]
) -> None:
    for name in names:
        entry = methods.get(name, {})
        if name not in ("none", "auto") and not entry.get("offered"):
            raise OptionError(
                f"drafting methods that this server offers, in workload `{tag:.80}`",
                f"`{name}`: {entry.get('reason') or 'it is not among the methods of the server'}",
                "Start the server with that method, or change the profile.",
            )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_PROFILE_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError("a profile file", f"{path}: {reason}", _REMEDY) from None
    if len(data) > MOST_PROFILE_BYTES:
        raise OptionError(
            f"a profile of at most {MOST_PROFILE_BYTES} bytes", f"more in {path}", _REMEDY
        )
    return text


def _table(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise OptionError(f"`{name:.80}` to be a table", f"{value!r:.80}", _REMEDY)
    return value


def _rule(name: str, value: object) -> Rule:
    table = _table(name, value)
    known = {n for info in describe(Rule) for n in (info.name, *info.aliases)}
    for key in table:
        if key not in known and key in {info.name for info in describe(SpeculationOptions)}:
            raise OptionError(
                "what a request may choose",
                f"`{key}` in `{name:.80}`, which belongs to the server",
                f"Give it on the command line; a profile sets {', '.join(sorted(known))}.",
            )
    try:
        return from_mapping(Rule, table)
    except OptionError as error:
        raise OptionError(f"in `{name:.80}` {error.expected}", error.found, error.remedy) from None
