"""A vocabulary as llguidance reads it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from slipstream.errors import TokenizerError


class GrammarVocabulary(Protocol):
    """What a grammar needs of a tokenizer."""

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def end_ids(self) -> Collection[int]: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...

    def is_control(self, token_id: int, /) -> bool: ...

    def encode(self, text: str, /, *, add_special: bool, continues: bool) -> list[int]: ...


class TokenTable:
    """A vocabulary in the form that llguidance reads (its ``TokenizerWrapper``).

    A token that begins with the byte FF, which is no part of any text, and an unused token have no
    bytes here: no grammar allows them.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        ids = range(vocabulary.vocabulary_size)
        self.special_token_ids = [token for token in ids if vocabulary.is_control(token)]
        special = set(self.special_token_ids)
        pieces = map(vocabulary.token_bytes, ids)
        self.tokens = [
            piece if token in special or not piece.startswith(b"\xff") else b""
            for token, piece in enumerate(pieces)
        ]
        self.eos_token_id = min(vocabulary.end_ids)
        self._ordinary: dict[bytes, int] | None = None

    def __call__(self, text: str) -> list[int]:
        """Ids of a text, exactly; empty where the vocabulary cannot spell it. Never raises."""
        try:
            ids = self._vocabulary.encode(text, add_special=False, continues=True)
        except TokenizerError:
            ids = []
        data = text.encode()
        return ids if b"".join(self.tokens[token] for token in ids) == data else self._spell(data)

    def _spell(self, data: bytes) -> list[int]:
        """The longest token at every place, for what the tokeniser would change (U+2581)."""
        if self._ordinary is None:
            special = set(self.special_token_ids)
            self._ordinary = {
                piece: token for token, piece in enumerate(self.tokens) if token not in special
            }
        longest = max(map(len, self._ordinary))
        ids, place = [], 0
        while place < len(data):
            sizes = range(min(longest, len(data) - place), 0, -1)
            found = (s for s in sizes if data[place : place + s] in self._ordinary)
            size = next(found, 0)
            if not size:
                return []
            ids.append(self._ordinary[data[place : place + size]])
            place += size
        return ids
