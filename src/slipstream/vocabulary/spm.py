"""SentencePiece merging by score (``tokenizer.ggml.model = llama``).

Of all neighbours whose concatenation is a token, those with the best score are merged first,
ties from the left (Kudo and Richardson 2018, arXiv 1808.06226, and llama.cpp). The `tokenizers`
library ranks merges strictly, so it cannot express equal scores, and would need every split of
every token (515,000 for Gemma 3) spelled out before the first text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final

from slipstream.errors import TokenizerError
from slipstream.vocabulary.metadata import REMEDY, Vocabulary

SPACE: Final = "\u2581"
SEPARATOR: Final = "\U0010ffff"  # a noncharacter, so in no token
CACHED_WORDS: Final = 1 << 16
CACHED_CHARACTERS: Final = 64
MAX_WORD_CHARACTERS: Final = 1 << 20

Candidate = tuple[float, int, int, str]  # negated score, left symbol, right symbol, their text


class SentencePieceModel:
    """Ids of ordinary text, spaces escaped as U+2581 and unknown characters spelled in bytes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.ids
        self._scores = vocabulary.scores
        self._unknown = vocabulary.unknown_id
        self._add_space_prefix = vocabulary.add_space_prefix
        self._cut = _word_boundary(vocabulary)
        self._cached_word = lru_cache(CACHED_WORDS)(self._encode_word)

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a text.

        Args:
            text: ordinary text.
            after_special: the text begins the input or follows a special token, where some
                vocabularies put a space.

        Raises:
            TokenizerError: a stretch without a space is absurdly long, or a character is neither
                in the vocabulary nor can be spelled in it.
        """
        return list(chain.from_iterable(self.slices(text, after_special)))

    def slices(self, text: str, after_special: bool) -> Iterator[Sequence[int]]:
        """The ids of ``encode``, a word at a time; errors as there."""
        if self._add_space_prefix and after_special:
            text = " " + text
        for word in self._cut.split(text.replace(" ", SPACE)):
            short = len(word) <= CACHED_CHARACTERS
            yield self._cached_word(word) if short else self._encode_word(word)

    def _encode_word(self, word: str) -> tuple[int, ...]:
        if len(word) > MAX_WORD_CHARACTERS:
            raise TokenizerError(
                f"at most {MAX_WORD_CHARACTERS} characters between spaces",
                f"{len(word)}",
                "Break the text into lines or words.",
            )
        whole = self._ids.get(word) if len(word) == 1 else None
        if whole is not None:
            return (whole,)
        return tuple(token for symbol in self._merge(word) for token in self._spell(symbol))

    def _merge(self, word: str) -> list[str]:
        """Symbols of a word once no two neighbours make a token."""
        symbols = list(word)
        following = list(range(1, len(word) + 1))
        preceding = list(range(-1, len(word) - 1))
        queue = [
            found
            for left in range(len(word) - 1)
            if (found := self._candidate(symbols, left, left + 1))
        ]
        heapify(queue)
        while queue:
            _, left, right, text = heappop(queue)
            if not (symbols[left] and symbols[right]):
                continue  # one of the two has been merged with another neighbour since
            if len(symbols[left]) + len(symbols[right]) != len(text):
                continue
            symbols[left], symbols[right] = text, ""
            after, before = following[right], preceding[left]
            following[left] = after
            if after < len(symbols):
                preceding[after] = left
                self._push(queue, symbols, left, after)
            if before >= 0:
                self._push(queue, symbols, before, left)
        return [symbol for symbol in symbols if symbol]

    def _candidate(self, symbols: list[str], left: int, right: int) -> Candidate | None:
        text = symbols[left] + symbols[right]
        token = self._ids.get(text)
        return None if token is None else (-self._scores[token], left, right, text)

    def _push(self, queue: list[Candidate], symbols: list[str], left: int, right: int) -> None:
        if found := self._candidate(symbols, left, right):
            heappush(queue, found)

    def _spell(self, symbol: str) -> Iterator[int]:
        token = self._ids.get(symbol)
        if token is not None:
            yield token
            return
        for byte in symbol.encode():
            token = self._ids.get(f"<0x{byte:02X}>", self._unknown)
            if token is None:
                raise TokenizerError(
                    "a vocabulary with byte tokens or an unknown token",
                    f"no token for the character {symbol!a}",
                    REMEDY,
                )
            yield token


def _word_boundary(vocabulary: Vocabulary) -> re.Pattern[str]:
    """Matches before each space that no token can reach across, so words can be merged alone."""
    joined = SEPARATOR.join(vocabulary.tokens)
    crossed = set(re.findall(f"([^{SEPARATOR}]){SPACE}", joined)) | {SPACE}
    return re.compile(f"(?<=[^{re.escape(''.join(sorted(crossed)))}])(?={SPACE})")
