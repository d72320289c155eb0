"""What rendering one untrusted template may use: steps, text and time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Final

from jinja2 import TemplateRuntimeError
from jinja2.runtime import Undefined

MAX_STEPS: Final = 1_000_000
MAX_SECONDS: Final = 5.0
MAX_CREATED_CHARACTERS: Final = 1 << 29
MAX_NESTING: Final = 100
TEXT_ALLOWANCE: Final = 1 << 20
TEXT_FACTOR: Final = 4
NODE_CHARACTERS: Final = 8  # a number, a bracket or a key costs about this much when printed

Text = (str, int, float, bool, type(None), Undefined)


class BudgetExceededError(TemplateRuntimeError):
    """The template used up its steps, text or time."""


class Budget:
    """What is left to one rendering.

    Args:
        characters: most text that one value, printed, or the result may hold.
    """

    def __init__(self, characters: int) -> None:
        self._characters = characters
        self._created = MAX_CREATED_CHARACTERS
        self._steps = MAX_STEPS
        self._deadline = time.thread_time() + MAX_SECONDS

    def step(self) -> None:
        """One loop turn or call.

        Raises:
            BudgetExceededError: it was one too many, or too late.
        """
        self._steps -= 1
        if self._steps < 0:
            raise BudgetExceededError(f"it takes more than {MAX_STEPS} steps")
        if time.thread_time() > self._deadline:
            raise BudgetExceededError(f"it takes more than {MAX_SECONDS:.0f} s of computing")

    def allow(self, characters: int) -> None:
        """Text of a length that is about to be built.

        Raises:
            BudgetExceededError: it is too long, or the last of too many.
        """
        self.require_room(characters)
        self._created -= characters
        if self._created < 0:
            total = MAX_CREATED_CHARACTERS
            raise BudgetExceededError(f"it builds more than {total} characters in total")

    def require_room(self, characters: int) -> None:
        """Text of a length that is only growing so far.

        Raises:
            BudgetExceededError: it is too long already.
        """
        if characters > self._characters:
            raise BudgetExceededError(f"it builds more than {self._characters} characters")

    def allow_value(self, value: object) -> None:
        """A new value, at the length it has when printed.

        Raises:
            BudgetExceededError: it is too large, nested too deeply or cannot be printed.
        """
        self.allow(printed_length(value, self._characters))


def printed_length(value: object, limit: int) -> int:
    """Characters of a value when printed, roughly; counting stops beyond the limit.

    Lists may hold one value many times over, so a small value can print without end.

    Raises:
        BudgetExceededError: it is nested too deeply or holds an object that is no data.
    """
    if isinstance(value, str):
        return len(value)
    total, layer = 0, [value]
    for _ in range(MAX_NESTING):
        total += sum(len(item) if isinstance(item, str) else NODE_CHARACTERS for item in layer)
        if not layer or total > limit:
            return total
        layer = _inside(layer, limit)
    raise BudgetExceededError(f"it nests values deeper than {MAX_NESTING}")


def _inside(layer: Iterable[object], limit: int) -> list[object]:
    """Values held directly by those of a layer, at most ``limit`` and those of one more."""
    inside: list[object] = []
    for item in layer:
        if isinstance(item, Mapping):
            inside += item.keys()
            inside += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            inside += item
        elif not isinstance(item, Text):
            raise BudgetExceededError(f"it uses a {type(item).__name__} as text")
        if len(inside) > limit:
            break
    return inside


_current: ContextVar[Budget] = ContextVar("template_budget")


def current() -> Budget:
    """The budget of the rendering under way."""
    return _current.get()


class Spending:
    """Makes a budget for these variables the current one."""

    def __init__(self, variables: Mapping[str, object]) -> None:
        length = printed_length(dict(variables), 1 << 62)
        self._budget = Budget(TEXT_ALLOWANCE + TEXT_FACTOR * length)

    def __enter__(self) -> Budget:
        self._token = _current.set(self._budget)
        return self._budget

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
