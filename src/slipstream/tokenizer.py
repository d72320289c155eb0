"""Text to ids and back, built from GGUF metadata alone.

Ids equal llama.cpp's. User-defined tokens are always found in a text; control tokens only when
asked for (``parse_special``). llama.cpp's per-model stripping of spaces beside special tokens
(Phi-3, Jina) is not done: no supported vocabulary needs it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, Protocol

from slipstream.errors import TokenizerError
from slipstream.vocabulary.bpe import BytePairModel
from slipstream.vocabulary.metadata import TokenType, Vocabulary, read_vocabulary
from slipstream.vocabulary.pieces import piece
from slipstream.vocabulary.special_tokens import SpecialTokens
from slipstream.vocabulary.spm import SentencePieceModel

DECODED_AT_ONCE: Final = 4096
"""Tokens whose bytes become text while no other thread runs."""


class TextModel(Protocol):
    """Ids of text without special tokens."""

    def encode(self, text: str, after_special: bool) -> list[int]: ...

    def slices(self, text: str, after_special: bool) -> Iterator[Sequence[int]]: ...


class Tokenizer:
    """A vocabulary and the way to use it.

    Attributes:
        kind: ``gpt2`` (byte-pair encoding) or ``llama`` (SentencePiece).
        texts: each token as the vocabulary spells it.
        vocabulary_size: number of ids.
        bos_id, eos_id: boundary tokens, None where the file names none.
        end_ids: every id that ends a generation.
        add_bos, add_eos: whether ``encode(add_special=True)`` puts them around a text.
        fim_ids: marks of a prompt to fill in the middle that it has: ``pre``, ``suf``, ``mid``,
            ``rep`` (project), ``sep`` (file).
    """

    def __init__(self, vocabulary: Vocabulary, model: TextModel) -> None:
        self._vocabulary = vocabulary
        self._model = model
        self._pieces: dict[int, bytes] = {}  # of tokens that were asked for
        self.kind = vocabulary.model
        self.texts = vocabulary.tokens
        self.vocabulary_size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.end_ids = vocabulary.end_ids
        self.add_bos = vocabulary.add_bos
        self.add_eos = vocabulary.add_eos
        self.fim_ids = vocabulary.fim

    @property
    def digest(self) -> str:
        """SHA-256 of the vocabulary: equal digests give equal ids for every text."""
        return self._vocabulary.digest

    def encode(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        continues: bool = False,
    ) -> list[int]:
        """Ids of a text.

        Args:
            text: any text; NUL characters are ordinary.
            add_special: put BOS before and EOS after it, where the vocabulary asks for them.
            parse_special: find control tokens in it, not only user-defined ones.
            continues: it follows other text, so no space is put before it.

        Raises:
            TokenizerError: the text holds a lone surrogate or a character that the vocabulary
                cannot spell.
        """
        return list(
            chain.from_iterable(
                self.encoded_slices(
                    text,
                    add_special=add_special,
                    parse_special=parse_special,
                    continues=continues,
                )
            )
        )

    def encoded_slices(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        continues: bool = False,
    ) -> Iterator[Sequence[int]]:
        """The ids of ``encode``, some at a time: a long text can be given up between slices."""
        _require_unicode(text)
        if add_special and self.add_bos and self.bos_id is not None:
            yield (self.bos_id,)
        special = self._all_special if parse_special else self._user_defined
        after_special = not continues
        for part in special.split(text):
            if isinstance(part, int):
                yield (part,)
            else:
                yield from self._model.slices(part, after_special)
            after_special = isinstance(part, int)
        if add_special and self.add_eos and self.eos_id is not None:
            yield (self.eos_id,)

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD.

        A space that ``encode`` put before the text is taken away again.

        Raises:
            TokenizerError: an id is outside the vocabulary.
        """
        shown = [token for token in ids if not (skip_special and self.is_control(token))]
        decoder, parts = codecs.getincrementaldecoder("utf-8")("replace"), []
        for start in range(0, len(shown), DECODED_AT_ONCE):
            data = b"".join(map(self.token_bytes, shown[start : start + DECODED_AT_ONCE]))
            parts.append(decoder.decode(data))
        text = "".join(parts) + decoder.decode(b"", final=True)
        if self._vocabulary.add_space_prefix and shown and not self.is_control(shown[0]):
            return text.removeprefix(" ")
        return text

    def token_bytes(self, token_id: int, *, skip_special: bool = False) -> bytes:
        """Exact bytes of a token; those of a control token are its text, or nothing if skipped.

        Raises:
            TokenizerError: the id is outside the vocabulary.
        """
        if skip_special and self.is_control(token_id):
            return b""
        known = self._pieces.get(token_id)
        if known is None:
            self._require_id(token_id)
            known = self._pieces[token_id] = piece(self._vocabulary, token_id)
        return known

    def token_text(self, token_id: int) -> str:
        """A token as the vocabulary spells it (``Ġthe``, ``▁the``, ``<|im_end|>``).

        Raises:
            TokenizerError: the id is outside the vocabulary.
        """
        self._require_id(token_id)
        return self._vocabulary.tokens[token_id]

    def token_id(self, text: str) -> int | None:
        """Id of the token spelled exactly so, or None."""
        return self._vocabulary.ids.get(text)

    def is_control(self, token_id: int) -> bool:
        """Whether a token is a mark for the model rather than text.

        Raises:
            TokenizerError: the id is outside the vocabulary.
        """
        self._require_id(token_id)
        return self._vocabulary.types[token_id] in (TokenType.CONTROL, TokenType.UNKNOWN)

    def stream(self, *, skip_special: bool = True) -> StreamDecoder:
        """A decoder for tokens that arrive one at a time."""
        return StreamDecoder(self, skip_special=skip_special)

    @cached_property
    def _user_defined(self) -> SpecialTokens:
        return SpecialTokens(self._vocabulary.texts_of(TokenType.USER_DEFINED))

    @cached_property
    def _all_special(self) -> SpecialTokens:
        kinds = (TokenType.USER_DEFINED, TokenType.CONTROL, TokenType.UNKNOWN)
        return SpecialTokens(self._vocabulary.texts_of(*kinds))

    def _require_id(self, token_id: int) -> None:
        if not 0 <= token_id < self.vocabulary_size:
            raise TokenizerError(
                f"a token id below {self.vocabulary_size}",
                str(token_id),
                "Ids of one vocabulary mean nothing in another.",
            )


class StreamDecoder:
    """Text of tokens as they come; never half a character.

    The pieces of ``push`` and ``flush`` joined are the text of all the tokens. A continuation
    keeps its leading space, unlike ``Tokenizer.decode``.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Text that is complete with this token, perhaps empty.

        Raises:
            TokenizerError: the id is outside the vocabulary.
        """
        data = self._tokenizer.token_bytes(token_id, skip_special=self._skip_special)
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was cut off, else nothing."""
        return self._decoder.decode(b"", final=True)


def build_tokenizer(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokeniser of a model file.

    Args:
        metadata: GGUF metadata by key; arrays may be lists, lazy sequences or NumPy arrays.

    Raises:
        TokenizerError: the metadata is incomplete, contradictory or of a kind not supported.
    """
    vocabulary = read_vocabulary(metadata)
    model: TextModel
    if vocabulary.model == "llama":
        model = SentencePieceModel(vocabulary)
    else:
        model = BytePairModel(vocabulary)
    return Tokenizer(vocabulary, model)


def _require_unicode(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            "text in valid Unicode",
            f"the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}",
            "Repair the encoding of the text before it is sent.",
        ) from None
