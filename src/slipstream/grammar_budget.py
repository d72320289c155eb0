"""Seconds that the grammar of one output may take beside the steps that it shares with others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from slipstream.errors import GrammarError

ALLOWANCE_S: Final = 0.25
TOKEN_S: Final = 0.02


class GrammarBudget:
    """An allowance, of which every token gives a little back.

    What llguidance's limits let pass takes 15 ms for a token at most, ambiguous grammars apart.
    Seconds are those of the processor, so that a busy machine ends no output.

    Args:
        allowance_s: at the beginning, and never more.
        token_s: given back by each token.
        clock: seconds of the calling thread.
    """

    def __init__(
        self,
        allowance_s: float = ALLOWANCE_S,
        token_s: float = TOKEN_S,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._allowance_s = self._left_s = allowance_s
        self._token_s = token_s
        self._clock = clock

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self._left_s < 0.0

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What runs within is paid for."""
        start_s = self._clock()
        try:
            yield
        finally:
            self._left_s -= self._clock() - start_s

    def token(self) -> None:
        """One more token was taken."""
        self._left_s = min(self._left_s + self._token_s, self._allowance_s)

    def require(self) -> None:
        """
        Raises:
            GrammarError: nothing is left.
        """
        if self.spent:
            raise GrammarError(
                f"a grammar that takes {1000 * self._token_s:g} ms for a token, "
                f"and {self._allowance_s:g} s more at most",
                "one that takes more here",
                "Make it less ambiguous: one way to read each text, lists as left recursion.",
            )
