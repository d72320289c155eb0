"""The vocabulary as llguidance sees it: exact bytes, special tokens, the way texts are cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import bpe_vocabulary, spm_vocabulary
from gguf_writer import Typed
from slipstream.gguf import open_gguf
from slipstream.grammar_tokens import TokenTable
from slipstream.options import SamplingOptions
from slipstream.structured import Grammars
from slipstream.tokenizer import Tokenizer, build_tokenizer
from structured_for_tests import PERSON


def plain(vocabulary: dict[str, Any], **changes: Any) -> Tokenizer:
    values = {key: v.value if isinstance(v, Typed) else v for key, v in vocabulary.items()}
    return build_tokenizer(values | {f"tokenizer.ggml.{k}": v for k, v in changes.items()})


VOCABULARIES: dict[str, Callable[[], Tokenizer]] = {
    "bpe": lambda: plain(bpe_vocabulary()),
    "spm": lambda: plain(spm_vocabulary(600)),
    "spm, space before": lambda: plain(spm_vocabulary(), add_space_prefix=True),
}


def check_table(tokenizer: Tokenizer) -> None:
    """Bytes as llguidance has them, and the way texts are cut."""
    grammars = Grammars(tokenizer)
    known = grammars._read_vocabulary()
    assert known.vocab_size == tokenizer.vocabulary_size
    assert known.is_canonical
    for token in range(tokenizer.vocabulary_size):
        piece = tokenizer.token_bytes(token)
        if tokenizer.is_control(token):
            assert known.is_special_token(token)
        elif not piece or piece.startswith(b"\xff"):  # has no bytes there
            assert known.decode_bytes([token]) == f"<[{token}]>".encode()
        else:
            assert known.decode_bytes([token]) == piece
    table = TokenTable(tokenizer)
    for text in (
        '{"name": "Ada", "age": 36}',
        "  indented\n\n\tlines ",
        "naïve café ☕",
        "a\u2581b",
    ):
        ids = table(text)
        assert b"".join(tokenizer.token_bytes(token) for token in ids) == text.encode()
    for text in ('{"name": "Ada", "age": 36}', "  indented\n\n\tlines ", "naïve café ☕"):
        assert table(text) == tokenizer.encode(text, add_special=False, continues=True)


def check_document(tokenizer: Tokenizer) -> None:
    """A document in any cutting passes, and its end tokens come after it."""
    text = '{"name": "Jé \\n😀", "age": 36, "tags": ["red"]}'
    grammars = Grammars(tokenizer)
    for ids in (
        tokenizer.encode(text, add_special=False, continues=True),
        [t for c in text for t in tokenizer.encode(c, add_special=False, continues=True)],
    ):
        constraint = grammars.constraint(SamplingOptions(json_schema=PERSON))  # type: ignore[arg-type]
        assert constraint is not None
        assert constraint.admitted(ids, range(-1, len(ids) - 1)) == list(range(len(ids)))
        for token in ids:
            assert not constraint.mask()[sorted(tokenizer.end_ids)].any()
            constraint.advance(token)
        assert constraint.may_stop
        assert np.flatnonzero(constraint.mask()).tolist() == sorted(tokenizer.end_ids)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_token_bytes_of_small_vocabularies(name: str) -> None:
    check_table(VOCABULARIES[name]())
    check_document(VOCABULARIES[name]())


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
)
def test_token_bytes_of_the_catalogue(name: str, model_path: Callable[[str], Path]) -> None:
    tokenizer = build_tokenizer(open_gguf(model_path(name)).metadata)
    check_table(tokenizer)
    check_document(tokenizer)
