"""N-grams, their followers and counts as sorted arrays: what a lookup file holds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from slipstream.drafters.ngram_counts import MOST_COUNT, MOST_PAIRS, NgramCounts

HALF_BITS = 64
HALF = (1 << HALF_BITS) - 1


@dataclass(frozen=True)
class Rows:
    """One row per n-gram and follower, sorted by both, no pair twice.

    Attributes:
        high, low: uint64 [rows], halves of ``gram`` (see ``ngram_counts``).
        followers: int32 [rows].
        counts: int64 [rows].
    """

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    followers: NDArray[np.int32]
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.counts)

    def chosen(self, mask: NDArray[np.bool_]) -> Rows:
        return Rows(self.high[mask], self.low[mask], self.followers[mask], self.counts[mask])

    def bigrams(self) -> Rows:
        """The rows of n-grams of two tokens."""
        return self.chosen((self.high == 0) & (self.low >> np.uint64(32) != 0))

    def grams(self) -> NDArray[np.int64]:
        """int64 [n-grams]: first row of each."""
        if not len(self):
            return np.empty(0, np.int64)
        changes = (self.high[1:] != self.high[:-1]) | (self.low[1:] != self.low[:-1])
        return np.flatnonzero(np.concatenate(([True], changes)))

    def halved(self) -> Rows:
        """All counts halved; what was counted once is forgotten."""
        kept = self.chosen(self.counts > 1)
        return Rows(kept.high, kept.low, kept.followers, kept.counts // 2)


def rows_of(counts: NgramCounts) -> Rows:
    rows = list(chain.from_iterable(counts.rows()))
    grams, followers, numbers = rows[0::3], rows[1::3], rows[2::3]
    return joined(
        np.array([gram >> HALF_BITS for gram in grams], np.uint64),
        np.array([gram & HALF for gram in grams], np.uint64),
        np.array(followers, np.int32),
        np.array(numbers, np.int64),
    )


def joined(
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    followers: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> Rows:
    """Sorted; counts of equal pairs are added up, as far as a file can hold them."""
    order = np.lexsort((followers, low, high))
    high, low, followers, counts = high[order], low[order], followers[order], counts[order]
    if not len(counts):
        return Rows(high, low, followers, counts)
    fresh = np.ones(len(counts), bool)
    fresh[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1]) | (followers[1:] != followers[:-1])
    sums = np.add.reduceat(counts, np.flatnonzero(fresh))
    return Rows(high[fresh], low[fresh], followers[fresh], np.minimum(sums, MOST_COUNT))


def merged(old: Rows, new: Rows, most: int = MOST_PAIRS) -> Rows:
    """Both added up, at most ``most`` rows. Where they are more, old counts are halved first."""
    while len(old) and len(old) + len(new) > most:
        old = old.halved()
    rows = joined(
        np.concatenate((old.high, new.high)),
        np.concatenate((old.low, new.low)),
        np.concatenate((old.followers, new.followers)),
        np.concatenate((old.counts, new.counts)),
    )
    while len(rows) > most:
        rows = rows.halved()
    return rows
