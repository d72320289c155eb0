"""What the suffix drafter remembers of a scope: finished texts, and how well it foresaw them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from slipstream.drafters.suffix_calibration import Calibration
from slipstream.drafters.suffix_index import MATCH_MAX, SEPARATOR, SuffixIndex

# A token takes 4 + 3 levels * (4 + 4..8) bytes (suffix_index.py), so these take 28 to 40 MiB.
POOL_TOKENS = 1 << 20
SEGMENT_TOKENS = 1 << 16  # 16 segments at the limit, each asked with one look-up per key length
FIRST_SEGMENT_TOKENS = 1 << 12


class SuffixPool:
    """Texts in segments that are filled one after the other; the oldest segment is dropped whole.

    Args:
        shortest: tokens of the shortest match.
        limit: most tokens kept.
    """

    def __init__(self, shortest: int = 2, limit: int = POOL_TOKENS) -> None:
        self.segments: list[SuffixIndex] = []
        self.calibration = Calibration()
        self._shortest = shortest
        self._limit = limit
        self._rooms: list[int] = []
        self._last = array("i")

    def __len__(self) -> int:
        return sum(len(segment) for segment in self.segments)

    def bytes(self) -> int:
        return sum(segment.bytes() for segment in self.segments)

    def add(self, text: Sequence[int]) -> None:
        """Remember a finished text; where it goes on from the last one, only what is new."""
        kept = array("i", text[-(self._limit - 1) :])
        known = max(_common_prefix(kept, self._last) - MATCH_MAX, 0)
        self._last = kept
        new = [*kept[known:], SEPARATOR]
        if not self.segments or len(self.segments[-1]) + len(new) > self._rooms[-1]:
            self._open(len(new))
        self.segments[-1].extend(new)
        while len(self) > self._limit and len(self.segments) > 1:
            del self.segments[0], self._rooms[0]

    def _open(self, tokens: int) -> None:
        """A new segment, larger than the last one, that has room for so many tokens."""
        room = min(2 * self._rooms[-1], SEGMENT_TOKENS) if self._rooms else FIRST_SEGMENT_TOKENS
        self._rooms.append(max(room, tokens))
        self.segments.append(SuffixIndex(self._shortest, self._rooms[-1]))


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
