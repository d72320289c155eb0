"""The tokens of a sequence, kept as bytes so that a key is found by a substring search."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

TOKEN_BYTES = array("i").itemsize


class TokenHistory:
    """A sequence's tokens; ``follow`` appends what is new since the last call."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes) // TOKEN_BYTES

    def follow(self, tokens: Sequence[int]) -> None:
        """Extend to ``tokens``, of which the present content is a prefix."""
        self._bytes += array("i", tokens[len(self) :]).tobytes()

    def last_match(self, key: Sequence[int], first: int, stop: int) -> int:
        """Largest index in [first, stop) at which ``key`` begins, or -1."""
        pattern = array("i", key).tobytes()
        end = (stop - 1) * TOKEN_BYTES + len(pattern)
        place = self._bytes.rfind(pattern, first * TOKEN_BYTES, max(end, 0))
        while place >= 0 and place % TOKEN_BYTES:
            end = place + len(pattern) - 1
            place = self._bytes.rfind(pattern, first * TOKEN_BYTES, end)
        return place // TOKEN_BYTES if place >= 0 else -1

    def copy(self) -> TokenHistory:
        twin = TokenHistory()
        twin._bytes = bytearray(self._bytes)
        return twin
