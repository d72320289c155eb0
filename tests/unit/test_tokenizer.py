"""The tokeniser on vocabularies small enough to work out by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import bpe_vocabulary, spm_vocabulary, write_gguf
from gguf_writer import Typed
from slipstream.errors import TokenizerError
from slipstream.gguf import open_gguf
from slipstream.tokenizer import Tokenizer, build_tokenizer
from slipstream.vocabulary.bpe import CHUNK_CHARACTERS, SAFE_CUT
from slipstream.vocabulary.pretokenizers import PRE_TOKENIZERS

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
P = "tokenizer.ggml."


def plain(vocabulary: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Metadata as plain Python values, with changes to ``tokenizer.ggml.`` keys; None removes."""
    values = {key: v.value if isinstance(v, Typed) else v for key, v in vocabulary.items()}
    values |= {P + key: value for key, value in changes.items()}
    return {key: value for key, value in values.items() if value is not None}


def bpe(**changes: Any) -> Tokenizer:
    return build_tokenizer(plain(bpe_vocabulary(), **changes))


def spm(**changes: Any) -> Tokenizer:
    return build_tokenizer(plain(spm_vocabulary(), **changes))


def scored(pieces: dict[str, float], **changes: Any) -> Tokenizer:
    """A SentencePiece vocabulary of these pieces and nothing else."""
    return build_tokenizer(
        {
            P + "model": "llama",
            P + "tokens": ["<unk>", "<s>", "</s>", *pieces],
            P + "scores": [0.0, 0.0, 0.0, *pieces.values()],
            P + "token_type": [2, 3, 3] + [1] * len(pieces),
            P + "unknown_token_id": 0,
            P + "add_bos_token": False,
            P + "add_space_prefix": False,
        }
        | {P + key: value for key, value in changes.items()}
    )


def texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(token) for token in ids]


def test_byte_pairs_merge_by_rank() -> None:
    tokenizer = bpe()
    assert texts(tokenizer, tokenizer.encode("the thering and")) == [
        *("t", "he", "Ġthe", "r", "ing", "Ġand")
    ]


def test_control_tokens_are_text_unless_asked_for() -> None:
    tokenizer = bpe()
    end = tokenizer.token_id("<|im_end|>")
    assert end in tokenizer.encode("a<|im_end|>b", parse_special=True)
    assert end not in tokenizer.encode("a<|im_end|>b")
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>b")) == "a<|im_end|>b"


def test_user_defined_tokens_are_always_found() -> None:
    vocabulary = plain(bpe_vocabulary())
    tokens, types = vocabulary[P + "tokens"], vocabulary[P + "token_type"]
    changes = {"tokens": [*tokens, "<tool>"], "token_type": [*types, 4]}
    tokenizer = bpe(**changes)
    assert tokenizer.encode("<tool>") == [len(tokens)]
    assert not tokenizer.is_control(len(tokens))


def test_missing_byte_keeps_neighbours_apart() -> None:
    tokens = [t for t in plain(bpe_vocabulary())[P + "tokens"] if t not in ("t", "Ġt", "Ġthe")]
    types = [3] * 3 + [1] * (len(tokens) - 3)
    tokenizer = bpe(tokens=tokens, merges=["h e"], token_type=types)
    assert texts(tokenizer, tokenizer.encode("hte")) == ["h", "e"]
    assert texts(tokenizer, tokenizer.encode("he")) == ["he"]


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
@given(text=ANY_TEXT)
def test_byte_pairs_are_lossless(pre: str, text: str) -> None:
    tokenizer = _cached_bpe(pre)
    assert tokenizer.decode(tokenizer.encode(text)) == text


_BUILT: dict[str, Tokenizer] = {}


def _cached_bpe(pre: str) -> Tokenizer:
    if pre not in _BUILT:
        _BUILT[pre] = bpe(pre=pre)
    return _BUILT[pre]


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("smollm", ["1", "2", "3", "4"]),
        ("qwen2", ["1", "2", "3", "4"]),
        ("llama-bpe", ["123", "4"]),
        ("gpt-2", ["1234"]),
        ("default", ["123", "4"]),
    ],
)
def test_pre_tokenizers_cut_numbers(pre: str, words: list[str]) -> None:
    vocabulary = plain(bpe_vocabulary())
    added = ["12", "123", "1234"]
    tokenizer = bpe(
        pre=pre,
        tokens=vocabulary[P + "tokens"] + added,
        token_type=vocabulary[P + "token_type"] + [1] * len(added),
        merges=[*vocabulary[P + "merges"], "1 2", "12 3", "123 4"],
    )
    assert texts(tokenizer, tokenizer.encode("1234")) == words


def test_long_text_has_the_ids_of_its_whole() -> None:
    tokenizer = bpe(pre="gpt-2")
    line = "the ring, and her 12 a's.\nand on\n\n\tin  the\n"
    whole = tokenizer._model._encode(line * 6000)  # type: ignore[attr-defined]
    assert tokenizer.encode(line * 6000) == whole


TEXT = st.text(st.sampled_from("ab the\n\t .,!'s1é\u3000\u0301日<|"), max_size=60)


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
@given(text=TEXT)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_a_text_cut_at_every_place_that_is_safe_has_the_same_ids(pre: str, text: str) -> None:
    model = _models(pre)
    cut = [part for part in SAFE_CUT.split(text) if part]
    assert [token for part in cut for token in model._encode(part)] == model._encode(text)


@cache
def _models(pre: str) -> Any:
    return bpe(pre=pre)._model


@pytest.mark.parametrize(
    "text", ["the end " * 4000, "the<|im_end|>\n" * 3000, "a" * 40_000, "ab" * 600, ""]
)
def test_slices_of_a_text_are_its_ids(text: str) -> None:
    for tokenizer in (bpe(pre="qwen2"), spm()):
        for special in (True, False):
            slices = list(tokenizer.encoded_slices(text, parse_special=special))
            ids = tokenizer.encode(text, parse_special=special)
            assert [token for part in slices for token in part] == ids
            assert max(map(len, slices), default=0) <= max(2 * CHUNK_CHARACTERS, len(text))
    long = "the end " * 4000
    assert len(list(bpe(pre="qwen2").encoded_slices(long))) > 1


def test_many_ids_that_are_no_text_are_decoded_as_one() -> None:
    tokenizer = bpe(pre="qwen2")
    ids = tokenizer.encode("é日😀" * 3000)
    for shift in range(4):
        data = b"".join(map(tokenizer.token_bytes, ids[shift:-1]))
        assert tokenizer.decode(ids[shift:-1]) == data.decode("utf-8", "replace")


def test_sentencepiece_bytes_and_spaces() -> None:
    tokenizer = spm()
    ids = tokenizer.encode("the é 日")
    assert ids[0] == tokenizer.bos_id
    assert texts(tokenizer, ids[1:]) == [*("t", "he", "▁", "é", "▁", "<0xE6>", "<0x97>", "<0xA5>")]
    assert tokenizer.decode(ids, skip_special=True) == "the é 日"


@given(text=ANY_TEXT.filter(lambda text: "▁" not in text))
def test_sentencepiece_is_lossless(text: str) -> None:
    for prefix in (False, True):
        tokenizer = _SPM[prefix]
        assert tokenizer.decode(tokenizer.encode(text), skip_special=True) == text


_SPM = {prefix: spm(add_space_prefix=prefix) for prefix in (False, True)}


def test_equal_scores_merge_from_the_left() -> None:
    tokenizer = scored({"a": -9, "b": -9, "ab": -1, "ba": -1})
    assert texts(tokenizer, tokenizer.encode("bab")) == ["ba", "b"]
    assert texts(tokenizer, tokenizer.encode("abab")) == ["ab", "ab"]


def test_better_score_merges_first() -> None:
    tokenizer = scored({"a": -9, "b": -9, "c": -9, "ab": -2, "bc": -1, "abc": -5})
    assert texts(tokenizer, tokenizer.encode("abc")) == ["abc"]
    assert texts(tokenizer, tokenizer.encode("abcb")) == ["abc", "b"]
    without = scored({"a": -9, "b": -9, "c": -9, "ab": -2, "bc": -1})
    assert texts(without, without.encode("abc")) == ["a", "bc"]


def test_tokens_that_reach_across_a_space() -> None:
    tokenizer = scored({"▁": -9, ">": -9, "<": -9, "a": -9, ">▁": -1, ">▁<": -2, "▁a": -1})
    assert texts(tokenizer, tokenizer.encode("> < a")) == [">▁<", "▁a"]


def test_space_prefix_follows_special_tokens_too() -> None:
    tokenizer = scored({"▁": -9, "a": -9, "▁a": -1}, add_space_prefix=True)
    assert texts(tokenizer, tokenizer.encode("a</s>a", parse_special=True)) == ["▁a", "</s>", "▁a"]


def test_character_nowhere_in_the_vocabulary() -> None:
    tokenizer = scored({"a": -1})
    assert texts(tokenizer, tokenizer.encode("aé")) == ["a", "<unk>", "<unk>"]
    with pytest.raises(TokenizerError, match="byte tokens or an unknown token"):
        scored({"a": -1}, unknown_token_id=None).encode("é")


def test_absurd_word_is_refused() -> None:
    with pytest.raises(TokenizerError, match="between spaces"):
        scored({"a": -1}).encode("a" * (1 << 20) + "a")


def test_boundary_tokens() -> None:
    tokenizer = spm(add_eos_token=True)
    assert tokenizer.encode("") == [2, 1]
    assert tokenizer.encode("", add_special=False) == []
    assert tokenizer.end_ids >= {1, tokenizer.token_id("<end_of_turn>")}
    assert bpe().encode("") == []


def test_end_ids_by_key_and_by_text() -> None:
    assert bpe(eot_token_id=7).end_ids == {0, 2, 7}
    assert bpe(eos_token_id=None).end_ids == {0, 2}


@pytest.mark.parametrize("build", [bpe_vocabulary, spm_vocabulary])
def test_metadata_of_any_kind_builds_the_same(build: Any, tmp_path: Path) -> None:
    lists = plain(build(400))
    arrays = lists | {P + "token_type": np.array(lists[P + "token_type"], np.int32)}
    path = tmp_path / "vocabulary.gguf"
    write_gguf(path, build(400), [])
    with open_gguf(path) as file:
        built = [build_tokenizer(m) for m in (lists, arrays, file.metadata)]
    assert len({tokenizer.digest for tokenizer in built}) == 1
    assert len({tuple(tokenizer.encode("the ring\n")) for tokenizer in built}) == 1
    assert built[0].vocabulary_size == 400


def test_digest_tells_vocabularies_apart() -> None:
    digests = {bpe().digest, bpe(pre="qwen2").digest, bpe(merges=["h e"]).digest, spm().digest}
    assert len(digests) == 4
    assert bpe().digest == bpe(bos_token_id=0).digest


def test_pieces() -> None:
    tokenizer = spm()
    assert tokenizer.token_bytes(6 + 0xE6) == b"\xe6"
    assert tokenizer.token_bytes(2) == b"<bos>"
    assert tokenizer.token_bytes(2, skip_special=True) == b""
    assert tokenizer.token_bytes(tokenizer.encode(" the")[-1]) == b" the"
    unused = build_tokenizer(plain(bpe_vocabulary(400)))
    assert unused.token_text(399).startswith("[UNUSED")
    assert unused.token_bytes(399) == b""


def test_text_outside_unicode_is_refused() -> None:
    with pytest.raises(TokenizerError, match=r"U\+D800 at character 1"):
        bpe().encode("a\ud800")


@pytest.mark.parametrize("token", [-1, 10**9])
def test_foreign_ids_are_refused(token: int) -> None:
    with pytest.raises(TokenizerError, match="token id below"):
        bpe().decode([token])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "wordpiece"}, "'gpt2' or 'llama'"),
        ({"model": None}, "no such key"),
        ({"model": 7}, "a string"),
        ({"pre": "martian"}, "smollm, qwen2.*martian"),
        ({"pre": None}, "found no such key"),
        ({"tokens": []}, "at least one token"),
        ({"tokens": "abc"}, "an array"),
        ({"tokens": [1, 2]}, "array of strings"),
        ({"token_type": [1]}, "array of .* numbers"),
        ({"token_type": ["a"] * 273}, "array of .* numbers"),
        ({"token_type": [[1], [1, 2]]}, "array of .* numbers"),
        ({"token_type": [9] * 273}, "values from 1 to 6"),
        ({"merges": None}, "merges"),
        ({"merges": ["a b c"]}, "two parts"),
        ({"merges": ["h zz"]}, "merges of tokens in the vocabulary"),
        ({"bos_token_id": 10**6}, "an id below"),
        ({"bos_token_id": -1}, "an id below"),
        ({"bos_token_id": True}, "an id below"),
        ({"add_bos_token": 1}, "true or false"),
        ({"add_bos_token": True, "bos_token_id": None}, "bos_token_id"),
    ],
)
def test_bad_metadata_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        bpe(**changes)


@pytest.mark.parametrize("scores", [None, [1.0], [float("nan")] * 400, ["a"] * 400])
def test_bad_scores_are_named(scores: Any) -> None:
    vocabulary = plain(spm_vocabulary(400), scores=scores)
    with pytest.raises(TokenizerError, match="scores"):
        build_tokenizer(vocabulary)


def test_a_repeated_token_does_not_narrow_the_end_ids() -> None:
    metadata = bpe_vocabulary()
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[4] = tokens[5]
    last = len(tokens) - 1
    tokenizer = bpe(tokens=tokens, eos_token_id=last)
    assert last in tokenizer.end_ids


def test_absurd_scores_do_not_warn() -> None:
    vocabulary = spm_vocabulary(400)
    scores = np.full(400, 1e300)
    assert build_tokenizer(plain(vocabulary, scores=scores)).vocabulary_size == 400


def test_a_refused_array_is_named_on_one_line() -> None:
    with pytest.raises(TokenizerError) as caught:
        bpe(token_type=np.ones(300, np.int32))
    assert "\n" not in str(caught.value)


def test_a_merge_longer_than_every_token_is_refused() -> None:
    with pytest.raises(TokenizerError, match="merges of tokens"):
        bpe(tokens=["a"] * 273, merges=["\u0120 t"])


def test_marks_to_fill_in_the_middle_are_known_by_their_texts() -> None:
    assert bpe().fim_ids == {}
    tokens = plain(bpe_vocabulary())[P + "tokens"]
    tokens[10:13] = ["<|fim_prefix|>", "<|fim_suffix|>", "<|repo_name|>"]
    assert bpe(tokens=tokens).fim_ids == {"pre": 10, "suf": 11, "rep": 12}


def test_marks_to_fill_in_the_middle_that_the_file_names_come_first() -> None:
    tokens = plain(bpe_vocabulary())[P + "tokens"]
    tokens[10] = "<|fim_prefix|>"
    named = bpe(tokens=tokens, fim_pre_token_id=20, fim_mid_token_id=21)
    assert named.fim_ids == {"pre": 20, "mid": 21}
    with pytest.raises(TokenizerError, match="fim_pre_token_id"):
        bpe(fim_pre_token_id=10**6)
