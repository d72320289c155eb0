"""Which tokens may follow, by the counts of up to four sources: the rules of ngram-cache.

Thresholds are llama.cpp's, by the size of the n-gram: how often it must have been seen, and the
percentage of it that the chosen follower must have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.drafters.growth import unseen
from slipstream.drafters.lookup_table import LookupTable
from slipstream.drafters.ngram_counts import Counts, Grams, NgramCounts

Thresholds = tuple[tuple[int, int], ...]
LAX: Thresholds = ((2, 66), (2, 50), (1, 50), (1, 50))
STRICT: Thresholds = ((4, 75), (3, 66), (2, 66), (2, 66))
STATIC = (2, 50)
STATIC_SIZE = 2
STATIC_WEIGHT = 100

Ranked = list[tuple[int, float]]
"""Tokens with estimates, most likely first."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Counts of two sources as if they were one."""

    one: Counts
    other: Counts

    def totals(self, gram: int) -> tuple[int, int]:
        """The second is more than any follower has where the sources differ in the best."""
        total, most = self.one.totals(gram)
        other_total, other_most = self.other.totals(gram)
        return total + other_total, most + other_most

    def followers(self, gram: int) -> Mapping[int, int]:
        counts = dict(self.one.followers(gram))
        for token, count in self.other.followers(gram).items():
            counts[token] = counts.get(token, 0) + count
        return counts


class Lookup:
    """
    Args:
        context: of the sequence itself.
        taught, file: of other texts.
        static: 2-grams.
        branches: most followers given.
    """

    def __init__(
        self,
        context: NgramCounts,
        taught: NgramCounts,
        file: LookupTable | None,
        static: LookupTable | None,
        branches: int,
    ) -> None:
        self.context = context
        self.dynamic: Counts = taught if file is None else Sum(taught, file)
        self.static = static
        self.branches = branches

    def ranked(self, grams: Grams) -> Ranked:
        """Followers of the largest n-gram that passes in the first source where one does."""
        return (
            self._primary(self.context, LAX, grams)
            or self._primary(self.dynamic, STRICT, grams)
            or self._static(grams)
        )

    def _primary(self, source: Counts, thresholds: Thresholds, grams: Grams) -> Ranked:
        for size in range(len(grams), 0, -1):
            gram = grams[size - 1]
            total, most = source.totals(gram)
            least, percent = thresholds[size - 1]
            if total < least or 100 * most < percent * total:
                continue
            followers = source.followers(gram)
            masses = self._weighted(followers, grams)
            best = self._best(masses)
            if 100 * followers[best[0][0]] >= percent * total:
                return _shares(best, masses, total, size)
        return []

    def _weighted(self, followers: Mapping[int, int], grams: Grams) -> Mapping[int, int]:
        if self.static is None or len(grams) < STATIC_SIZE:
            return followers
        static, pair = self.static, grams[STATIC_SIZE - 1]
        if static.totals(pair) == (0, 0):
            return followers
        return {
            token: count * (STATIC_WEIGHT * static.count(pair, token) or 1)
            for token, count in followers.items()
        }

    def _static(self, grams: Grams) -> Ranked:
        if self.static is None or len(grams) < STATIC_SIZE:
            return []
        gram = grams[STATIC_SIZE - 1]
        (total, most), (least, percent) = self.static.totals(gram), STATIC
        if total < least or 100 * most < percent * total:
            return []
        followers = self.static.followers(gram)
        return _shares(self._best(followers), followers, total, STATIC_SIZE)

    def _best(self, masses: Mapping[int, int]) -> list[tuple[int, int]]:
        """The heaviest followers, of equal ones the lowest id first."""
        if len(masses) == 1:
            return list(masses.items())
        return sorted(masses.items(), key=lambda item: (-item[1], item[0]))[: self.branches]


def _shares(
    best: list[tuple[int, int]], masses: Mapping[int, int], total: int, size: int
) -> Ranked:
    """An estimate is a share of what was seen, see ``growth``."""
    seen = total / (total + unseen(size)) / sum(masses.values())
    return [(token, mass * seen) for token, mass in best]
