"""The vocabulary of a GGUF file, read from its ``tokenizer.ggml.*`` metadata and checked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import TokenizerError

PREFIX: Final = "tokenizer.ggml."
REMEDY: Final = "Convert the model again with a current converter, or use another file."

END_TEXTS: Final = frozenset(
    """<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn>
    <|endoftext|> <|end_of_text|> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <eos> </s>
    <end_of_utterance> <\uff5cend\u2581of\u2581sentence\uff5c>
    <|fim_pad|> <fim-pad> <fim_pad> <PAD> <|fim_repo|>
    <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>""".split()  # noqa: SIM905
)
END_KEYS: Final = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")

# Marks of a prompt to fill in the middle by role; `fim_pre_token_id` and so on come before texts.
FIM_TEXTS: Final = {
    "pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "\u2581<PRE>"),
    "suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "\u2581<SUF>"),
    "mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "\u2581<MID>"),
    "rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "sep": ("<|file_sep|>",),
}


class TokenType(IntEnum):
    """Values of ``tokenizer.ggml.token_type`` (GGUF specification)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """A checked vocabulary.

    Attributes:
        model: ``gpt2`` (byte-pair encoding) or ``llama`` (SentencePiece).
        pre_tokenizer: name of the pre-tokeniser, "" where the file has none.
        tokens: text of each id, in the alphabet of ``model``.
        types: ``TokenType`` value of each id, one byte each; texts known to end a generation
            count as control tokens whatever the file says, as in llama.cpp.
        scores: merge score of each id (``llama`` only, else empty).
        merges: pairs joined by a space, best first (``gpt2`` only, else empty).
        ids: id of each text; of equal texts the last.
        fim: ids of the marks `pre`, `suf`, `mid`, `rep` and `sep` that it has.
    """

    model: str
    pre_tokenizer: str
    tokens: Sequence[str]
    types: bytes
    scores: Sequence[float]
    merges: Sequence[str]
    ids: Mapping[str, int]
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    end_ids: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    fim: Mapping[str, int]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides which ids a text gets, as hexadecimal."""
        digest = hashlib.sha256(f"{self.model}\n{self.pre_tokenizer}\n".encode())
        parts: tuple[Iterable[object], ...] = (self.tokens, self.types, self.scores, self.merges)
        for part in parts:
            digest.update(repr(tuple(part)).encode())
        return digest.hexdigest()

    def texts_of(self, *types: TokenType) -> dict[str, int]:
        """Id by text of the tokens of these types."""
        wanted = frozenset(types)
        if wanted.isdisjoint(self.types):
            return {}
        return {self.tokens[i]: i for i, kind in enumerate(self.types) if kind in wanted}


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Read and check a vocabulary.

    Raises:
        TokenizerError: a key is missing, of the wrong type or out of range, or the kind of
            vocabulary is not supported.
    """
    model = _string(metadata, "model")
    if model not in ("gpt2", "llama"):
        raise TokenizerError("a vocabulary of type 'gpt2' or 'llama'", repr(model[:80]), REMEDY)
    tokens = _texts(metadata, "tokens")
    if not tokens:
        raise TokenizerError("at least one token", "an empty vocabulary", REMEDY)
    ids = {text: token for token, text in enumerate(tokens)}
    sentencepiece = model == "llama"
    bos, eos = _boundary_ids(metadata, len(tokens), sentencepiece)
    end_ids = _end_ids(metadata, ids, len(tokens), eos)
    pre_tokenizer = _pre_tokenizer(metadata)
    vocabulary = Vocabulary(
        model=model,
        pre_tokenizer=pre_tokenizer,
        tokens=tokens,
        types=_types(metadata, len(tokens), ids),
        scores=_scores(metadata, len(tokens)) if sentencepiece else (),
        merges=() if sentencepiece else _texts(metadata, "merges"),
        ids=ids,
        bos_id=bos,
        eos_id=eos,
        unknown_id=_id(metadata, "unknown", len(tokens)),
        end_ids=end_ids,
        add_bos=_flag(metadata, "add_bos_token", _adds_bos(sentencepiece, pre_tokenizer)),
        add_eos=_flag(metadata, "add_eos_token", False),
        add_space_prefix=sentencepiece and _flag(metadata, "add_space_prefix", True),
        fim=_fim_ids(metadata, ids, len(tokens)),
    )
    _require_boundaries(vocabulary)
    return vocabulary


def _adds_bos(sentencepiece: bool, pre_tokenizer: str) -> bool:
    """What a file without ``add_bos_token`` means (llama.cpp's defaults)."""
    return sentencepiece or pre_tokenizer in ("llama-bpe", "llama3", "llama-v3")


def _require_boundaries(vocabulary: Vocabulary) -> None:
    for name, added, token in (
        ("bos", vocabulary.add_bos, vocabulary.bos_id),
        ("eos", vocabulary.add_eos, vocabulary.eos_id),
    ):
        if added and token is None:
            key = f"{PREFIX}{name}_token_id"
            raise TokenizerError(f"the key {key!r}, as prompts need it", "no such key", REMEDY)


def _boundary_ids(
    metadata: Mapping[str, object], size: int, sentencepiece: bool
) -> tuple[int | None, int | None]:
    """Ids of BOS and EOS; a SentencePiece file may leave out the customary 1 and 2."""
    bos, eos = _id(metadata, "bos", size), _id(metadata, "eos", size)
    if sentencepiece and size > 2:
        bos, eos = (1 if bos is None else bos), (2 if eos is None else eos)
    return bos, eos


def _end_ids(
    metadata: Mapping[str, object], ids: Mapping[str, int], size: int, eos: int | None
) -> frozenset[int]:
    found = {ids[text] for text in END_TEXTS if text in ids}
    found.update(token for key in END_KEYS if (token := _id(metadata, key, size)) is not None)
    return frozenset(found if eos is None else found | {eos})


def _fim_ids(metadata: Mapping[str, object], ids: Mapping[str, int], size: int) -> dict[str, int]:
    """Ids that the file names come before those known by their texts."""
    found: dict[str, int] = {}
    for role, texts in FIM_TEXTS.items():
        told = _id(metadata, f"fim_{role}", size)
        known = [ids[text] for text in texts if text in ids]
        if told is not None or known:
            found[role] = known[0] if told is None else told
    return found


def _value(metadata: Mapping[str, object], key: str) -> Any:
    value = metadata.get(PREFIX + key)
    if value is None:
        raise TokenizerError(f"the metadata key '{PREFIX}{key}'", "no such key", REMEDY)
    return value


def _wrong(key: str, expected: str, value: object) -> TokenizerError:
    found = f"{type(value).__name__} {' '.join(ascii(value).split())[:80]}"
    return TokenizerError(f"'{PREFIX}{key}' to be {expected}", found, REMEDY)


def _string(metadata: Mapping[str, object], key: str) -> str:
    value = _value(metadata, key)
    if not isinstance(value, str):
        raise _wrong(key, "a string", value)
    return value


def _pre_tokenizer(metadata: Mapping[str, object]) -> str:
    return _string(metadata, "pre") if PREFIX + "pre" in metadata else ""


def _flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, bool):
        raise _wrong(key, "true or false", value)
    return value


def _id(metadata: Mapping[str, object], name: str, size: int) -> int | None:
    key = f"{name}_token_id"
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
        raise _wrong(key, f"an id below {size}", value)
    return value


def _array(metadata: Mapping[str, object], key: str) -> list[Any]:
    value = _value(metadata, key)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise _wrong(key, "an array", value)
    return list(value)


def _texts(metadata: Mapping[str, object], key: str) -> list[str]:
    values = _array(metadata, key)
    if set(map(type, values)) - {str}:
        raise _wrong(key, "an array of strings", values)
    return values


def _numbers(
    metadata: Mapping[str, object], key: str, size: int, kinds: str
) -> NDArray[np.generic]:
    """An array of ``size`` numbers whose NumPy kind is among ``kinds``."""
    values = _value(metadata, key)
    try:
        array = np.asarray(values)
    except ValueError:  # lists of unequal length
        raise _wrong(key, f"an array of {size} numbers", values) from None
    if array.shape != (size,) or array.dtype.kind not in kinds:
        raise _wrong(key, f"an array of {size} numbers", values)
    return array


def _types(metadata: Mapping[str, object], size: int, ids: Mapping[str, int]) -> bytes:
    if PREFIX + "token_type" not in metadata:
        types = np.full(size, TokenType.NORMAL, np.uint8)
    else:
        values = _numbers(metadata, "token_type", size, "iu")
        if wrong := set(np.unique(values).tolist()) - set(TokenType):
            raise _wrong("token_type", "values from 1 to 6", min(wrong))
        types = values.astype(np.uint8)
    types[[ids[text] for text in END_TEXTS if text in ids]] = TokenType.CONTROL
    return types.tobytes()


def _scores(metadata: Mapping[str, object], size: int) -> list[float]:
    with np.errstate(over="ignore"):
        scores = _numbers(metadata, "scores", size, "fiu").astype(np.float32)
    if np.isnan(scores).any():
        raise _wrong("scores", "numbers", math.nan)
    values: list[float] = scores.tolist()
    return values
