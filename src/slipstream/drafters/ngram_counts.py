"""How often a token followed the 1 to 4 tokens before it: the maps of ngram-cache.

An n-gram is one integer, ``gram``: its tokens plus one, 32 bits each, the newest lowest, so that
n-grams of different sizes differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

MOST_TOKENS = 4  # of an n-gram
TOKEN_BITS = 32
TOKEN_MASK = (1 << TOKEN_BITS) - 1
MOST_COUNT = (1 << 31) - 1  # what a lookup file can hold
MOST_PAIRS = 1 << 18  # of n-gram and follower in one map

SINGLE_BYTES = 130  # of an n-gram with one follower, measured
SEVERAL_BYTES = 420  # of one with more

Grams = tuple[int, ...]
"""The n-grams that end with the newest token, of 1, 2, .. tokens."""


def after(grams: Grams, token: int) -> Grams:
    """The n-grams one token later."""
    one = token + 1
    if len(grams) < MOST_TOKENS:
        return (one, *[gram << TOKEN_BITS | one for gram in grams])
    first, second, third, _ = grams
    return one, first << TOKEN_BITS | one, second << TOKEN_BITS | one, third << TOKEN_BITS | one


def grams_of(tokens: Sequence[int]) -> Grams:
    """The n-grams that end with the last token."""
    grams: Grams = ()
    for token in tokens[-MOST_TOKENS:]:
        grams = after(grams, token)
    return grams


class Counts(Protocol):
    """What a lookup needs of a map, the pool or a file."""

    def totals(self, gram: int) -> tuple[int, int]:
        """Times anything followed, and at least the times the most frequent follower did."""

    def followers(self, gram: int) -> Mapping[int, int]:
        """Token -> times it followed."""


class _Several:
    """More than one follower of an n-gram."""

    __slots__ = ("counts", "most", "total")

    def __init__(self, counts: dict[int, int]) -> None:
        self.counts = counts
        self.total = sum(counts.values())
        self.most = max(counts.values())

    def add(self, token: int, count: int) -> bool:
        """Returns whether the follower is new."""
        counts = self.counts
        held = counts.get(token, 0)
        added = held + count
        if added > MOST_COUNT:
            added = MOST_COUNT
        counts[token] = added
        self.total += added - held
        if added > self.most:
            self.most = added
        return not held


class NgramCounts:
    """A map in memory. Most n-grams have one follower: those are kept as one integer.

    Attributes:
        pairs: of n-gram and follower.
        tokens: learned.
    """

    def __init__(self) -> None:
        self._map: dict[int, int | _Several] = {}
        self._several = 0
        self.pairs = 0
        self.tokens = 0

    @staticmethod
    def of(rows: Iterable[tuple[int, int, int]]) -> NgramCounts:
        """From n-gram, follower, count."""
        made = NgramCounts()
        for gram, token, count in rows:
            made.add(gram, token, count)
        return made

    def learn(self, tokens: Iterable[int], grams: Grams) -> Grams:
        """Count what followed what.

        Args:
            grams: that end before the first of ``tokens``.

        Returns:
            Those that end with the last of them.
        """
        known, get = self._map, self._map.get
        for token in tokens:
            for gram in grams:
                held = get(gram)
                if held is None:
                    known[gram] = token << TOKEN_BITS | 1
                    self.pairs += 1
                else:
                    self._add_to(held, gram, token, 1)
            grams = after(grams, token)
            self.tokens += 1
        return grams

    def add(self, gram: int, token: int, count: int) -> None:
        held = self._map.get(gram)
        if held is None:
            self._map[gram] = token << TOKEN_BITS | count
            self.pairs += 1
        else:
            self._add_to(held, gram, token, count)

    def _add_to(self, held: int | _Several, gram: int, token: int, count: int) -> None:
        if isinstance(held, _Several):
            self.pairs += held.add(token, count)
        elif held >> TOKEN_BITS == token:
            added = min((held & TOKEN_MASK) + count, MOST_COUNT)
            self._map[gram] = token << TOKEN_BITS | added
        else:
            counts = {held >> TOKEN_BITS: held & TOKEN_MASK, token: count}
            self._map[gram] = _Several(counts)
            self._several += 1
            self.pairs += 1

    def merge(self, other: NgramCounts) -> None:
        """Add another map. Where both are too much, what is rare and old goes (see ``halve``)."""
        while self.pairs and self.pairs + other.pairs > MOST_PAIRS:
            self.halve()
        for gram, token, count in other.rows():
            self.add(gram, token, count)
        self.tokens += other.tokens
        while self.pairs > MOST_PAIRS:
            self.halve()

    def halve(self) -> None:
        """Halve all counts, and with them the tokens; what was counted once is forgotten."""
        kept = ((gram, token, count // 2) for gram, token, count in self.rows() if count > 1)
        halved = NgramCounts.of(kept)
        self._map, self._several, self.pairs = halved._map, halved._several, halved.pairs
        self.tokens = self.tokens // 2 if self.pairs else 0

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """N-gram, follower, count."""
        for gram, held in self._map.items():
            if isinstance(held, _Several):
                for token, count in held.counts.items():
                    yield gram, token, count
            else:
                yield gram, held >> TOKEN_BITS, held & TOKEN_MASK

    def totals(self, gram: int) -> tuple[int, int]:
        held = self._map.get(gram, 0)
        if isinstance(held, _Several):
            return held.total, held.most
        return held & TOKEN_MASK, held & TOKEN_MASK

    def followers(self, gram: int) -> Mapping[int, int]:
        held = self._map.get(gram)
        if held is None:
            return {}
        if isinstance(held, _Several):
            return held.counts
        return {held >> TOKEN_BITS: held & TOKEN_MASK}

    def bytes(self) -> int:
        """Of memory, estimated."""
        return len(self._map) * SINGLE_BYTES + self._several * (SEVERAL_BYTES - SINGLE_BYTES)

    def copy(self) -> NgramCounts:
        twin = NgramCounts()
        twin._map = {
            gram: _Several(dict(held.counts)) if isinstance(held, _Several) else held
            for gram, held in self._map.items()
        }
        twin._several, twin.pairs, twin.tokens = self._several, self.pairs, self.tokens
        return twin
