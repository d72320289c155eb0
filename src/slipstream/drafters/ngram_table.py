"""The hash table of ngram-mod: n tokens -> the token that followed them last.

The hash of a key is ``h = h * 6364136223846793005 + token`` modulo 2^64 over its tokens, its slot
``h`` modulo 2^22. Keys are not stored: a collision answers with the last writer's token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MULTIPLIER = 6364136223846793005
SLOTS = 1 << 22
WORD = (1 << 64) - 1


class NgramTable:
    """int32 [2^22] of token + 1, 0 = empty; its 16 MiB are touched only where used.

    Args:
        key_tokens: n, tokens of a key.
    """

    def __init__(self, key_tokens: int) -> None:
        self.key_tokens = key_tokens
        self.used = 0
        self._leading = pow(MULTIPLIER, key_tokens - 1, 1 << 64)
        self._next: NDArray[np.int32] | None = None

    def clear(self) -> None:
        self._next = None
        self.used = 0

    def bytes(self) -> int:
        return 0 if self._next is None else self._next.nbytes

    def occupancy(self) -> float:
        return self.used / SLOTS

    def hash(self, key: Sequence[int]) -> int:
        """64-bit hash of n tokens; negative ids are sign-extended."""
        value = 0
        for token in key:
            value = (value * MULTIPLIER + token) & WORD
        return value

    def roll(self, value: int, leaving: int, entering: int) -> int:
        """Hash of the key one token later."""
        return ((value - leaving * self._leading) * MULTIPLIER + entering) & WORD

    def insert(self, tokens: Sequence[int]) -> None:
        """Store every n-gram of ``tokens`` that has a successor; the last writer of a slot wins."""
        n, count = self.key_tokens, len(tokens) - self.key_tokens
        if count <= 0:
            return
        if self._next is None:
            self._next = np.zeros(SLOTS, np.int32)
        followers = np.array(tokens, np.int64)
        words = followers.view(np.uint64)
        hashes = np.zeros(count, np.uint64)
        for offset in range(n):
            hashes = hashes * np.uint64(MULTIPLIER) + words[offset : offset + count]
        slots = (hashes % np.uint64(SLOTS)).astype(np.int64)
        fresh = slots[self._next[slots] == 0]
        self.used += int(np.unique(fresh).size)
        self._next[slots] = followers[n:] + 1

    def follow(self, key: Sequence[int], most: int) -> list[int]:
        """Walk from n tokens for up to ``most`` tokens, stopping at an empty slot."""
        found: list[int] = []
        if self._next is None:
            return found
        window = list(key)
        value = self.hash(window)
        while len(found) < most:
            token = int(self._next[value % SLOTS]) - 1
            if token < 0:
                break
            value = self.roll(value, window[len(found)], token)
            window.append(token)
            found.append(token)
        return found
