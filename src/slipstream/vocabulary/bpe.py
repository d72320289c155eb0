"""Byte-pair encoding (``tokenizer.ggml.model = gpt2``) on the `tokenizers` library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from slipstream.errors import TokenizerError
from slipstream.vocabulary.metadata import REMEDY, Vocabulary
from slipstream.vocabulary.pieces import byte_of_character
from slipstream.vocabulary.pretokenizers import build_pre_tokenizer, find_rule

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Every pre-tokeniser cuts between a line end after visible ASCII and a letter, and between a letter
# and a lone space before another one.
SAFE_CUT: Final = re.compile(r"(?<=[!-~]\n)(?=[A-Za-z])|(?<=[A-Za-z])(?= [A-Za-z])")
CHUNK_CHARACTERS: Final = 1 << 14
MOST_LOCKED_CHARACTERS: Final = 1 << 10  # sooner encoded than other threads notice


class BytePairModel:
    """Ids of ordinary text.

    A byte that the vocabulary has no token for keeps its neighbours apart and is then left out,
    as in llama.cpp (SmolLM2 lacks eight control characters and the bytes above plane 3).

    Raises:
        TokenizerError: the pre-tokeniser is unknown or a merge does not fit the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._size = len(vocabulary.tokens)
        self._missing = [c for c in byte_of_character() if c not in vocabulary.ids]
        self._tokenizer = _build(vocabulary, self._missing)

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a text; what precedes it makes no difference to byte pairs."""
        return list(chain.from_iterable(self.slices(text, after_special)))

    def slices(self, text: str, after_special: bool) -> Iterator[list[int]]:  # noqa: ARG002
        """The ids of ``encode``, some at a time; other threads run meanwhile."""
        return map(self._encode, chunks(text))

    def _encode(self, text: str) -> list[int]:
        if len(text) <= MOST_LOCKED_CHARACTERS:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        else:  # of the library's ways to encode only those of batches release the interpreter
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
            ids = encoding.ids
        return [token for token in ids if token < self._size] if self._missing else ids


def chunks(text: str) -> Iterator[str]:
    """Cut a long text where every pre-tokeniser cuts too: bounds the memory of one encoding."""
    start = 0
    while len(text) - start > CHUNK_CHARACTERS:
        cut = SAFE_CUT.search(text, start + CHUNK_CHARACTERS)
        if cut is None:
            break
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def _pairs(merges: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        wrong = next(merge for merge in merges if merge.count(" ") != 1)
        raise TokenizerError("merges of two parts joined by a space", ascii(wrong[:80]), REMEDY)
    return cast(list[tuple[str, str]], pairs)


def _build(vocabulary: Vocabulary, missing: Sequence[str]) -> Tokenizer:
    """The library's tokeniser, with ids past the vocabulary for ``missing`` characters."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    rule = find_rule(vocabulary.pre_tokenizer)
    pairs = _pairs(vocabulary.merges)
    placeholders = {c: len(vocabulary.tokens) + index for index, c in enumerate(missing)}
    try:
        model = BPE({**vocabulary.ids, **placeholders}, pairs, ignore_merges=rule.whole_words)
    except BaseException as error:  # bare Exception, or a panic where a merge is too long
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError("merges of tokens in the vocabulary", str(error), REMEDY) from None
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = build_pre_tokenizer(rule)
    return tokenizer
