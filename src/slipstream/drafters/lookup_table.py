"""The counts of a lookup file, found by binary search: a fraction of a dictionary's memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

import numpy as np

from slipstream.drafters.lookup_rows import HALF, HALF_BITS, Rows


class LookupTable:
    """Read only; see ``ngram_counts.Counts``."""

    def __init__(self, rows: Rows) -> None:
        first = rows.grams()
        self._high = rows.high[first].data
        self._low = rows.low[first].data
        self._bounds = np.append(first, len(rows))
        self._followers = rows.followers
        self._counts = rows.counts
        self._totals = np.add.reduceat(rows.counts, first) if len(rows) else rows.counts
        self._most = np.maximum.reduceat(rows.counts, first) if len(rows) else rows.counts

    def __len__(self) -> int:
        """Number of n-grams."""
        return len(self._low)

    def _find(self, gram: int) -> int | None:
        high, low = gram >> HALF_BITS, gram & HALF
        start = bisect_left(self._high, high)
        stop = bisect_right(self._high, high, start)
        place = bisect_left(self._low, low, start, stop)
        return place if place < stop and self._low[place] == low else None

    def _slice(self, place: int) -> slice:
        return slice(int(self._bounds[place]), int(self._bounds[place + 1]))

    def totals(self, gram: int) -> tuple[int, int]:
        place = self._find(gram)
        return (0, 0) if place is None else (int(self._totals[place]), int(self._most[place]))

    def followers(self, gram: int) -> Mapping[int, int]:
        place = self._find(gram)
        if place is None:
            return {}
        rows = self._slice(place)
        return dict(zip(self._followers[rows].tolist(), self._counts[rows].tolist(), strict=True))

    def count(self, gram: int, token: int) -> int:
        """Times ``token`` followed."""
        place = self._find(gram)
        if place is None:
            return 0
        rows = self._slice(place)
        row = rows.start + int(np.searchsorted(self._followers[rows], token))
        found = row < rows.stop and self._followers[row] == token
        return int(self._counts[row]) if found else 0
