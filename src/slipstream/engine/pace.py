"""How many prompt rows a pass may hold beside decoding rows: running outputs keep their pace.

A pass with prompts may take so many times what decoding alone takes. Both sides of that are
learned from the passes that run anyway: what passes without prompt rows take, by their number of
rows, and what a prompt row adds to a pass that has decoding rows.
"""

from __future__ import annotations

from typing import Final

LEAST_ROWS: Final = 4
"""Prompt rows of a pass whatever they take, so that a prompt gets on; kernels for few rows make
them cheap."""
SURPRISE: Final = 2.0  # times the expected, or a share of it: what is more was an interruption
MEMORY: Final = 0.5  # weight of the newest pass


class Pace:
    """
    Args:
        times: what a pass with prompt rows may take, in passes of its decoding rows alone; 0 = no
            limit.
    """

    def __init__(self, times: float) -> None:
        self._times = times
        # binary digits of the number of rows -> seconds of passes without prompt rows
        self._alone: dict[int, float] = {}
        self._row_s: float | None = None
        self._most = LEAST_ROWS  # prompt rows of the largest pass beside decoding rows so far

    def rows(self, decode_rows: int, most: int) -> int:
        """Prompt rows beside decoding rows, at most ``most``.

        None before any pass has shown what decoding takes: the next one will.
        """
        if not self._times or not decode_rows:
            return most
        alone = self._alone_s(decode_rows)
        if alone is None:
            return 0
        affordable = 2 * self._most
        if self._row_s is not None and self._row_s > 0.0:
            affordable = min(affordable, int((self._times - 1.0) * alone / self._row_s))
        return min(max(affordable, LEAST_ROWS), most)

    def _alone_s(self, rows: int) -> float | None:
        """Seconds of a pass without prompt rows; where none of about so many was seen, not more."""
        digits = rows.bit_length()
        if digits in self._alone:
            return self._alone[digits]
        fewer = [known for known in self._alone if known < digits]
        if fewer:
            return self._alone[max(fewer)]
        if not self._alone:
            return None
        more = min(self._alone)
        return self._alone[more] / (1 << (more - digits))

    def observe(self, decode_rows: int, prompt_rows: int, elapsed_s: float) -> None:
        """Learn from a pass."""
        if not prompt_rows:
            digits = decode_rows.bit_length()
            self._alone[digits] = _followed(self._alone.get(digits), elapsed_s)
            return
        alone = self._alone_s(decode_rows) if decode_rows else None
        if decode_rows:
            self._most = max(self._most, prompt_rows)
        elif self._row_s is not None:
            return  # many rows at once cost another share each than a few beside decoding ones
        added = elapsed_s if alone is None else max(elapsed_s - alone, 0.0)
        self._row_s = _followed(self._row_s, added / prompt_rows)


def _followed(before: float | None, seen: float) -> float:
    """A mean of the newest; what is far from it counts as a part of the way."""
    if not before:
        return seen
    near = min(max(seen, before / SURPRISE), before * SURPRISE)
    return before + MEMORY * (near - before)
