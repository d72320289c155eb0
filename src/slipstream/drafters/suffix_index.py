"""A text in which the recent occurrences of any suffix are found in constant time.

It answers what a suffix automaton answers (the longest suffix of a query that occurs in the text,
and where), at 4 + 8 levels bytes per token instead of the 500 of an automaton of Python
objects, and a prompt is learnt by sorting instead of token by token. Keys of ``shortest * 4^level``
tokens are hashed, as in LZ77 compressors; occurrences of a key form a chain from the newest to the
oldest. A walk visits the newest ``WALK`` of a chain, so a frequent context is judged by its recent
past; every hit is compared token by token, so a collision of hashes costs time only.

Hash of a key t_1..t_k: the sum of t_j M^(k-j) modulo 2^30, for Python multiplies numbers of one
30-bit digit fastest. Its slot is in the leading bits of the hash times M, which depend on every
token.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MATCH_MAX = 64  # longest match told apart; longer ones promise no more
STRIDE = 4  # from one key length to the next
WALK = 32  # entries of a chain visited per key length
BULK = 96  # from this many tokens on, sorting is faster than appending one by one
SEPARATOR = -1  # between texts; no token equals it
LEAST_SLOTS = 1 << 10
TOKEN_BITS = 32
HASH_BITS = 30
MASK = (1 << HASH_BITS) - 1
MULTIPLIER = 668_265_263  # a prime of xxHash


@dataclass(frozen=True, slots=True)
class Query:
    """The newest tokens of a text, to be found elsewhere.

    Attributes:
        hashes: per level.
        window: its last ``MATCH_MAX`` tokens, the newest in the leading bits.
        length: tokens of the text.
    """

    hashes: tuple[int, ...]
    window: int
    length: int


class _Level:
    """Chains of the keys of one length; an end is the index after the key, 0 = none."""

    __slots__ = ("hash", "heads", "leading", "order", "previous")

    def __init__(self, order: int, slots: int) -> None:
        self.order = order
        self.leading = pow(MULTIPLIER, order, 1 << HASH_BITS)
        self.clear(slots)

    def clear(self, slots: int) -> None:
        self.hash = 0
        self.heads = array("i", bytes(4 * slots))
        self.previous = array("i", [0])

    def copy(self) -> _Level:
        twin = _Level(self.order, 0)
        twin.hash = self.hash
        twin.heads = self.heads[:]
        twin.previous = self.previous[:]
        return twin


class SuffixIndex:
    """
    Args:
        shortest: tokens of the shortest match looked for.
        capacity: tokens expected; more are possible, at the price of sorting anew.
    """

    def __init__(self, shortest: int = 2, capacity: int = 0) -> None:
        self.tokens = array("i")
        self._shift = _shift(max(capacity, LEAST_SLOTS))
        orders = [shortest]
        while STRIDE * orders[-1] < MATCH_MAX:
            orders.append(STRIDE * orders[-1])
        self._levels = [_Level(order, self._slots) for order in orders]

    @property
    def _slots(self) -> int:
        return 1 << (HASH_BITS - self._shift)

    def __len__(self) -> int:
        return len(self.tokens)

    def bytes(self) -> int:
        per_level = self._slots + len(self.tokens)
        return 4 * (len(self.tokens) + per_level * len(self._levels))

    def copy(self) -> SuffixIndex:
        twin = SuffixIndex.__new__(SuffixIndex)
        twin.tokens = self.tokens[:]
        twin._shift = self._shift
        twin._levels = [level.copy() for level in self._levels]
        return twin

    def extend(self, new: Sequence[int]) -> None:
        """Append tokens."""
        total = len(self.tokens) + len(new)
        if total > self._slots:
            new = [*self.tokens, *new]
            self.tokens = array("i")
            self._shift = _shift(2 * total)
            for level in self._levels:
                level.clear(self._slots)
        if len(new) < BULK:
            self.extend_singly(new)
        else:
            self.extend_at_once(new)

    def extend_singly(self, new: Sequence[int]) -> None:
        """The slow twin of ``extend_at_once``, the faster of the two for a few tokens."""
        start = len(self.tokens)
        self.tokens.extend(new)
        for level in self._levels:
            self._link(level, start)

    def _link(self, level: _Level, start: int) -> None:
        """Enter the keys of one length that end behind ``start``."""
        tokens, shift = self.tokens, self._shift
        order, leading, value = level.order, level.leading, level.hash
        heads, append = level.heads, level.previous.append
        for place in range(start, len(tokens)):
            value = value * MULTIPLIER + tokens[place]
            if place >= order:
                value -= tokens[place - order] * leading
            value &= MASK
            if place + 1 < order:
                append(0)
                continue
            slot = (value * MULTIPLIER & MASK) >> shift
            append(heads[slot])
            heads[slot] = place + 1
        level.hash = value

    def extend_at_once(self, new: Sequence[int]) -> None:
        """The same chains, by hashing and sorting all new keys of a level together."""
        if not new:
            return
        start = len(self.tokens)
        self.tokens.extend(new)
        for level in self._levels:
            first = max(start + 1, level.order)
            level.previous.extend([0] * min(first - start - 1, len(new)))
            if first > len(self.tokens):
                level.hash = _hash(self.tokens)
                continue
            hashes = self._hashes(first, level.order)
            level.hash = int(hashes[-1])
            mixed = hashes * np.uint64(MULTIPLIER) & np.uint64(MASK)
            slots = (mixed >> np.uint64(self._shift)).astype(np.int64)
            level.previous.frombytes(_chain(slots, first, level.heads).tobytes())

    def _hashes(self, first: int, order: int) -> NDArray[np.uint64]:
        """Of the keys that end at ``first`` and later."""
        copied = self.tokens[first - order :]
        words = np.frombuffer(copied, np.int32).astype(np.int64).view(np.uint64)
        count = len(words) - order + 1
        hashes = np.zeros(count, np.uint64)
        for offset in range(order):
            hashes = hashes * np.uint64(MULTIPLIER) + words[offset : offset + count]
        return hashes & np.uint64(MASK)

    def query(self) -> Query:
        """The newest tokens of this text."""
        length = len(self.tokens)
        hashes = tuple(level.hash for level in self._levels)
        return Query(hashes, self._window(length), length)

    def _window(self, end: int) -> int:
        """The ``MATCH_MAX`` tokens before ``end`` as one number, zeros before the text."""
        first = max(end - MATCH_MAX, 0)
        packed = int.from_bytes(self.tokens[first:end].tobytes(), "little")
        return packed << (TOKEN_BITS * (MATCH_MAX - end + first))

    def agreement(self, end: int, query: Query) -> int:
        """How many tokens before ``end`` equal the newest of a query, at most ``MATCH_MAX``."""
        differing = (self._window(end) ^ query.window).bit_length()
        same = MATCH_MAX - (differing + TOKEN_BITS - 1) // TOKEN_BITS
        return min(same, end, query.length)

    def occurrences(self, query: Query, most: int, before: int) -> dict[int, int]:
        """Where the newest tokens of a query occur: end -> tokens that agree before it.

        Longer keys come first, within a key length the most recent occurrence.

        Args:
            most: occurrences returned.
            before: ends are smaller; for a query of this very text its length, else one more.
        """
        found: dict[int, int] = {}
        for level, value in zip(reversed(self._levels), reversed(query.hashes), strict=True):
            order = level.order
            if query.length < order:
                continue
            end = level.heads[(value * MULTIPLIER & MASK) >> self._shift]
            previous = level.previous
            for _ in range(WALK):
                if not end or len(found) == most:
                    break
                if end < before and end not in found:
                    length = self.agreement(end, query)
                    if length >= order:
                        found[end] = length
                end = previous[end]
        return found


def _shift(slots: int) -> int:
    """Of a hash, so that at least that many slots remain."""
    return HASH_BITS - (slots - 1).bit_length()


def _hash(tokens: Sequence[int]) -> int:
    value = 0
    for token in tokens:
        value = (value * MULTIPLIER + token) & MASK
    return value


def _chain(slots: NDArray[np.int64], first: int, heads: array[int]) -> NDArray[np.int32]:
    """Put the ends ``first``, ``first`` + 1, … into their slots; returns what each displaced."""
    table = np.frombuffer(heads, np.int32)
    order = np.argsort(slots, kind="stable")
    sorted_slots = slots[order]
    starts = np.ones(len(slots), bool)
    starts[1:] = sorted_slots[1:] != sorted_slots[:-1]
    displaced = np.empty(len(slots), np.int32)
    displaced[order[1:]] = order[:-1] + first
    displaced[order[starts]] = table[sorted_slots[starts]]
    lasts = np.ones(len(slots), bool)
    lasts[:-1] = starts[1:]
    table[sorted_slots[lasts]] = order[lasts] + first
    return displaced
