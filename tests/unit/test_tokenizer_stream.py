"""Streaming: text as tokens come, never half a character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_tokenizer import ANY_TEXT, bpe, spm

BPE, SPM = bpe(), spm()


@given(text=ANY_TEXT)
def test_stream_is_decode(text: str) -> None:
    for tokenizer in (BPE, SPM):
        ids = tokenizer.encode(text, add_special=False)
        stream = tokenizer.stream()
        streamed = "".join([*map(stream.push, ids), stream.flush()])
        assert streamed == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(0, SPM.vocabulary_size - 1), max_size=40))
def test_stream_of_any_ids_is_decode(ids: list[int]) -> None:
    stream = SPM.stream(skip_special=False)
    assert "".join([*map(stream.push, ids), stream.flush()]) == SPM.decode(ids)


def test_character_waits_for_its_last_byte() -> None:
    ids = BPE.encode("👍")
    stream = BPE.stream()
    assert [stream.push(token) for token in ids] == ["", "", "", "👍"]
    assert stream.flush() == ""


def test_cut_character_is_replaced_at_the_end() -> None:
    stream = BPE.stream()
    assert [stream.push(token) for token in BPE.encode("👍")[:3]] == ["", "", ""]
    assert stream.flush() == "\ufffd"


def test_control_tokens_are_hidden_unless_asked_for() -> None:
    assert BPE.stream().push(2) == ""
    assert BPE.stream(skip_special=False).push(2) == "<|im_end|>"
