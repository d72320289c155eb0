"""ngram-map-k4v: continue as most matches of the newest n tokens did, where that is clear.

A key counts up to four continuations of m tokens and proposes the one seen most, if it was seen at
least twice as often as the others together. See ``ngram_map`` for what it shares with ngram-map-k
and where both depart from llama.cpp. Of this method alone:

- an occurrence is counted once; llama.cpp counts the last one again at every draft, and none after
  it. The last ``most_matches`` occurrences since the key was last met are counted;
- the tokens proposed are those that were counted; there, those after the latest match, which may
  be another of the four;
- where branches are allowed, all four form a tree, the most frequent first, clear or not.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from slipstream.drafters.ngram_map import MOST_COUNT, Guess, Key, NgramMap, Value
from slipstream.drafters.resources import Resources
from slipstream.options import SpeculationOptions

MOST_VALUES = 4


class NgramMapK4V(NgramMap):
    """Each continuation of a key has a count and a limit of its own."""

    name = "ngram-map-k4v"
    most_matches = 32

    def guess(self, key: Key, tokens: array[int], matches: Sequence[int]) -> list[Guess]:
        for match in reversed(matches):
            if match > key.counted:
                self._count(key, tokens, match + self.size_n)
        key.counted = matches[0]
        ranked = sorted(key.values, key=lambda value: -value.count)
        most, others = ranked[0].count, sum(value.count for value in ranked[1:])
        if self.branches == 1 and most < 2 * others:
            return []
        return [Guess(value.start, value.count, value) for value in ranked]

    def _count(self, key: Key, tokens: array[int], start: int) -> None:
        text = tokens[start : start + self.size_m]
        for value in key.values:
            if tokens[value.start : value.start + self.size_m] == text:
                value.count = min(value.count + 1, MOST_COUNT)
                return
        if len(key.values) < MOST_VALUES:
            key.values.append(Value(start, self.size_m, 1))


def create(options: SpeculationOptions, resources: Resources) -> NgramMapK4V:
    del resources
    return NgramMapK4V(
        options.ngram_map_k4v_size_n,
        options.ngram_map_k4v_size_m,
        options.ngram_map_k4v_min_hits,
        options.draft_branches,
    )
