"""ngram-simple: continue as the text did after the last earlier occurrence of its newest tokens.

As llama.cpp's method of that name (``common/ngram-map.cpp``), with its parameters and defaults:
index 0 never matches, the most recent match decides, and a continuation shorter than the key is
not proposed. ``min_hits`` has no effect there and does not exist here.
"""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.drafters.base import BaseDrafter, Draft, DraftRequest
from slipstream.drafters.history import TokenHistory
from slipstream.drafters.resources import Resources
from slipstream.options import SpeculationOptions


class NgramSimple(BaseDrafter):
    """Stateless apart from the tokens of each sequence.

    Args:
        size_n: tokens of the key, and the shortest continuation proposed.
        size_m: most tokens proposed.
    """

    name = "ngram-simple"

    def __init__(self, size_n: int = 12, size_m: int = 48) -> None:
        self.size_n = size_n
        self.size_m = size_m
        self._histories: dict[int, TokenHistory] = {}

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        del scope
        self._histories[sequence] = TokenHistory()
        self._histories[sequence].follow(tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft.chain(self._continuation(request), self.name) for request in requests]

    def _continuation(self, request: DraftRequest) -> Sequence[int]:
        tokens, n, m = request.tokens, self.size_n, self.size_m
        prompt = len(tokens) - 1
        if prompt <= n + m + 1:
            return ()
        history = self._histories[request.sequence]
        history.follow(tokens)
        match = history.last_match(tokens[-n:], 1, prompt - n)
        found = tokens[match + n : min(match + n + m, prompt)]
        return found if match >= 0 and len(found) >= n else ()

    def fork(self, source: int, target: int) -> None:
        self._histories[target] = self._histories[source].copy()

    def close(self, sequence: int) -> None:
        self._histories.pop(sequence, None)


def create(options: SpeculationOptions, resources: Resources) -> NgramSimple:
    del resources
    return NgramSimple(options.ngram_simple_size_n, options.ngram_simple_size_m)
