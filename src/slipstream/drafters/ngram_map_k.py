"""ngram-map-k: continue as the text did after the latest match of its newest n tokens.

See ``ngram_map`` for what it shares with ngram-map-k4v and where both depart from llama.cpp. Of
this method alone: llama.cpp ignores ``min_hits`` for it, which is honoured here; and where branches
are allowed, the continuations after the last eight matches form a tree, those seen more often
first.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from slipstream.drafters.ngram_map import Guess, Key, NgramMap, Value
from slipstream.drafters.resources import Resources
from slipstream.options import SpeculationOptions


class NgramMapK(NgramMap):
    """A key has one limit, for whatever follows it."""

    name = "ngram-map-k"
    most_matches = 8

    def guess(self, key: Key, tokens: array[int], matches: Sequence[int]) -> list[Guess]:
        if not key.values:
            key.values.append(Value(0, self.size_m))
        [value] = key.values
        length = max(value.limit, 1)
        starts: dict[bytes, int] = {}
        weights: dict[bytes, int] = {}
        for match in matches:
            start = match + self.size_n
            text = tokens[start : start + length].tobytes()
            starts.setdefault(text, start)
            weights[text] = weights.get(text, 0) + 1
        return [Guess(start, weights[text], value) for text, start in starts.items()]


def create(options: SpeculationOptions, resources: Resources) -> NgramMapK:
    del resources
    return NgramMapK(
        options.ngram_map_k_size_n,
        options.ngram_map_k_size_m,
        options.ngram_map_k_min_hits,
        options.draft_branches,
    )
