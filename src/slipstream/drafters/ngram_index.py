"""Where in a sequence its n-grams began: the hash index of the ngram-map methods.

The hash of a key is ``h = h * 2654435761 + token`` modulo 2^32 over its tokens, as llama.cpp's.
There, a table of 2^18 buckets keeps one place for all keys of a bucket; here a place leads to the
one before it with the same hash, and tokens are compared, so no key is lost to another.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

MULTIPLIER = 2654435761
WORD = (1 << 32) - 1
NEVER = 0  # index 0 never matches


def key_hash(key: Sequence[int]) -> int:
    """32-bit hash of a key."""
    value = 0
    for token in key:
        value = (value * MULTIPLIER + token) & WORD
    return value


class NgramIndex:
    """The tokens of a sequence and the places of its keys.

    Args:
        key_tokens: n, tokens of a key.
        margin: tokens that must follow a key, the newest token of the sequence not counted,
            before its place is found.
    """

    def __init__(self, key_tokens: int, margin: int) -> None:
        self.key_tokens = key_tokens
        self.margin = margin
        self.tokens = array("i")
        self._leading = pow(MULTIPLIER, key_tokens - 1, 1 << 32)
        self._newest: dict[int, int] = {}  # hash -> largest place
        self._previous = array("i", [NEVER])  # place -> the place before it with the same hash
        self._hash = 0  # of the key at the last place

    def follow(self, tokens: Sequence[int]) -> None:
        """Extend to ``tokens``, of which the present content is a prefix."""
        self.tokens.extend(tokens[len(self.tokens) :])
        stop = len(self.tokens) - 1 - self.margin - self.key_tokens
        for place in range(len(self._previous), stop):
            self._insert(place)

    def _insert(self, place: int) -> None:
        tokens, n = self.tokens, self.key_tokens
        if place == 1:
            value = key_hash(tokens[1 : 1 + n])
        else:
            leaving = tokens[place - 1] * self._leading
            value = ((self._hash - leaving) * MULTIPLIER + tokens[place + n - 1]) & WORD
        self._hash = value
        self._previous.append(self._newest.get(value, NEVER))
        self._newest[value] = place

    def places(self, key: array[int], most: int) -> list[int]:
        """Where ``key`` began, latest first; of places with its hash the last ``most`` are tried.

        Args:
            key: n tokens.
        """
        tokens, n = self.tokens, self.key_tokens
        found: list[int] = []
        place = self._newest.get(key_hash(key), NEVER)
        for _ in range(most):
            if place == NEVER:
                break
            if tokens[place : place + n] == key:
                found.append(place)
            place = self._previous[place]
        return found

    def copy(self) -> NgramIndex:
        twin = NgramIndex(self.key_tokens, self.margin)
        twin.tokens = self.tokens[:]
        twin._newest = dict(self._newest)
        twin._previous = self._previous[:]
        twin._hash = self._hash
        return twin
