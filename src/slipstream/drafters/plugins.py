"""A third party's drafters: found, checked and kept from doing harm.

What they are told is a copy, what they answer is read once and made plain, and whatever they raise
costs their drafts only. They cannot be kept from running for ever.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from slipstream import plugin_names
from slipstream.drafters.base import (
    GRAMMAR,
    Distribution,
    Draft,
    Drafter,
    DrafterNeeds,
    DraftRequest,
    Outcome,
    Pool,
    TargetPass,
)
from slipstream.drafters.resources import Resources
from slipstream.errors import BackendError, OptionError, SlipstreamError, UnsupportedError
from slipstream.options import METHODS, SpeculationOptions

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MEMBERS = ("open", "process", "draft", "observe", "fork", "close", "pools", "forget")
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
MOST_NODES = 2048  # read of an answer; the engine refuses fewer

Item = TypeVar("Item")


class GuardedDrafter:
    """A third party's drafter behind the contract of ``Drafter``.

    Args:
        inner: the drafter.
        origin: the package or object that it comes from, for messages.

    Raises:
        UnsupportedError: a member is missing or of another kind.
        OptionError: its name is one of the built-in methods or unfit for a name.
    """

    def __init__(self, inner: Any, origin: str) -> None:
        self.inner: Drafter = inner
        self.origin = origin
        self.name, self.needs = _checked_members(inner, origin)

    def __eq__(self, other: object) -> bool:
        """Whether it guards the same object: calls with equal drafters share an engine."""
        return isinstance(other, GuardedDrafter) and self.inner is other.inner

    def __hash__(self) -> int:
        return id(self.inner)

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        with self._guard("open"):
            self.inner.open(sequence, tuple(tokens), scope)

    def process(self, passes: Sequence[TargetPass]) -> None:
        with self._guard("process"):
            self.inner.process(tuple(passes))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        asked = [_copied(request) for request in requests]
        with self._guard("draft"):
            return [_plain(draft) for draft in _read(self.inner.draft(asked), len(asked) + 1)]

    def observe(self, sequence: int, outcome: Outcome) -> None:
        with self._guard("observe"):
            self.inner.observe(sequence, outcome)

    def fork(self, source: int, target: int) -> None:
        with self._guard("fork"):
            self.inner.fork(source, target)

    def close(self, sequence: int) -> None:
        with self._guard("close"):
            self.inner.close(sequence)

    def pools(self) -> Mapping[str, Pool]:
        with self._guard("pools"):
            return {
                str(scope): Pool(int(pool.tokens), int(pool.bytes))
                for scope, pool in self.inner.pools().items()
            }

    def forget(self, scope: str | None) -> None:
        with self._guard("forget"):
            self.inner.forget(scope)

    @contextmanager
    def _guard(self, member: str) -> Iterator[None]:
        """Any exception of the drafter becomes an error of ours; Ctrl-C passes."""
        try:
            yield
        except SlipstreamError:
            raise
        except (Exception, SystemExit, GeneratorExit) as problem:
            raise BackendError(
                f"`{member}` of the drafter {self.name} ({self.origin}) to return",
                f"{type(problem).__name__}: {problem!s:.200}",
                "Report it to its author, or leave the drafter out.",
            ) from problem


def _read(values: Any, most: int) -> list[Any]:
    """At most so many items of anything that can be iterated over."""
    return list(itertools.islice(iter(values), most))


def _copied(request: DraftRequest) -> DraftRequest:
    sampler = None if request.sampler is None else request.sampler.fork()
    return replace(request, tokens=tuple(request.tokens), sampler=sampler)


def _plain(draft: Any) -> Draft:
    """The draft with tuples and arrays of its own; the engine checks what they hold."""
    if not isinstance(draft, Draft):
        raise TypeError(f"a draft is a Draft, not {type(draft).__name__}")
    tokens, parents, probabilities, distributions = (
        tuple(_read(values, MOST_NODES))
        for values in (draft.tokens, draft.parents, draft.probabilities, draft.distributions)
    )
    return Draft(
        tokens,
        parents,
        (),
        tuple(float(estimate) for estimate in probabilities),
        tuple(map(_plain_distribution, distributions)),
        str(draft.fault),
    )


def _plain_distribution(distribution: Any) -> Distribution | None:
    if distribution is None:
        return None
    return Distribution(
        np.array(distribution.ids, np.int64), np.array(distribution.probabilities, np.float64)
    )


def _checked_members(inner: Any, origin: str) -> tuple[str, DrafterNeeds]:
    """Name and needs.

    Raises:
        UnsupportedError, OptionError: see ``GuardedDrafter``.
    """
    if isinstance(inner, type):
        raise UnsupportedError(
            f"a drafter object ({origin})", f"the class {inner.__name__}", "Make one: call it."
        )
    lacking = [name for name in MEMBERS if not callable(getattr(inner, name, None))]
    lacking += [name for name in ("name", "needs") if not hasattr(inner, name)]
    if lacking:
        raise UnsupportedError(
            f"a drafter ({origin}) with the members name, needs, {', '.join(MEMBERS)}",
            f"none called `{lacking[0]}`",
            "Derive it from slipstream.drafters.base.BaseDrafter.",
        )
    _check_name(inner.name, origin)
    return inner.name, _checked_needs(inner.needs, origin)


def _checked_needs(needs: Any, origin: str) -> DrafterNeeds:
    if not isinstance(needs, DrafterNeeds):
        raise UnsupportedError(
            f"`needs` of a drafter ({origin}) to be a DrafterNeeds",
            type(needs).__name__,
            "Import it from slipstream.drafters.base.",
        )
    for member in ("target_memory", "target_embedding"):
        if getattr(needs, member):
            raise UnsupportedError(
                f"a drafter ({origin}) that needs hidden outputs or logits alone",
                f"`needs.{member}`",
                "This version does not give it to drafters of other packages.",
            )
    if not isinstance(needs.hidden, Set):
        raise UnsupportedError(
            f"`needs.hidden` of a drafter ({origin}) to be a set of names",
            type(needs.hidden).__name__,
            "Write frozenset({NAME, ..}).",
        )
    return replace(needs, hidden=frozenset(needs.hidden))


def _check_name(name: Any, origin: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise OptionError(
            f"a drafter ({origin}) whose name is of a-z, 0-9, `_`, `.`, `-`",
            f"{name!r:.80}",
            "Rename it.",
        )
    if name in (*METHODS, GRAMMAR):
        raise OptionError(
            f"a drafter ({origin}) whose name no built-in method has", f"`{name}`", "Rename it."
        )


def guarded(objects: Sequence[Any]) -> tuple[GuardedDrafter, ...]:
    """Drafter objects, checked; errors as ``GuardedDrafter``, or OptionError: no list."""
    if isinstance(objects, str) or not isinstance(objects, Sequence):
        raise OptionError("a list of drafters", f"{objects!r:.80}", "Put it in brackets.")
    return tuple(GuardedDrafter(inner, _origin(inner)) for inner in objects)


def require_distinct(names: Sequence[str]) -> None:
    """
    Raises:
        OptionError: two drafters that would work together have one name.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError("drafters of different names", f"`{twice}` twice", "Rename one.")


def _origin(inner: Any) -> str:
    kind = inner if isinstance(inner, type) else type(inner)
    return f"{kind.__module__}.{kind.__qualname__}"


def load(name: str, options: SpeculationOptions, resources: Resources) -> GuardedDrafter:
    """The drafter that an installed package offers under a name.

    Its entry point is a function like ``create`` of the built-in methods, or a class: called with
    the options and the resources, it returns a drafter of that name.

    Raises:
        OptionError: two packages offer the name, or the drafter has another.
        UnsupportedError: it cannot be imported or made, or lacks a member.
    """
    entries = plugin_names.installed()[name]
    if len(entries) > 1:
        packages = ", ".join(map(plugin_names.package_of, entries))
        raise OptionError(f"one package that offers `{name}`", packages, "Uninstall the others.")
    [entry] = entries
    package = plugin_names.package_of(entry)
    create: Callable[..., Any] = _attempt(entry, "import", entry.load)
    made = GuardedDrafter(_attempt(entry, "call", lambda: create(options, resources)), package)
    if made.name != name:
        raise OptionError(
            f"the drafter of package {package} to be called `{name}`, as its entry point is",
            f"`{made.name}`",
            "Rename one of them.",
        )
    return made


def _attempt(entry: EntryPoint, action: str, call: Callable[[], Item]) -> Item:
    try:
        return call()
    except SlipstreamError:
        raise
    except (Exception, SystemExit) as problem:
        raise UnsupportedError(
            f"the drafter `{entry.name}` of package {plugin_names.package_of(entry)}, "
            f"{action} of `{entry.value}`",
            f"{type(problem).__name__}: {problem!s:.200}",
            "Repair or uninstall the package, or choose another method.",
        ) from problem
