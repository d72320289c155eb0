"""Emitted text: whole characters, stop strings, end tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engines import fake_engine, greedy, run
from fake_program import FakeTokenizer
from slipstream.engine.text import TextStream

PROMPT = [1, 2, 3, 4, 5]


def streamed(pieces: Sequence[str | bytes], *stops: str) -> tuple[list[str], str | None]:
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    stream = TextStream(FakeTokenizer(raw).stream(), stops)
    released = []
    for token in range(len(raw)):
        released.append(stream.push(token))
        if stream.stop is not None:
            break
    return [*released, stream.finish()], stream.stop


def test_half_characters_are_held_back() -> None:
    euro = "€".encode()
    assert streamed([euro[:1], euro[1:], "x"]) == (["", "€", "x", ""], None)
    assert streamed(["a", euro[:2]]) == (["a", "", "\ufffd"], None)


@pytest.mark.parametrize(
    ("pieces", "stops", "released", "stop"),
    [
        (["ab", "cd"], ["c"], ["ab", "", ""], "c"),
        (["ab", "cd", "ef"], ["bcde"], ["a", "", "", ""], "bcde"),
        (["ab", "cx", "ef"], ["bcd"], ["a", "bcx", "ef", ""], None),
        (["ab", "c"], ["bcd"], ["a", "", "bc"], None),
        (["aa", "aa", "ab"], ["aab"], ["", "aa", "a", ""], "aab"),
        (["xaby"], ["aby", "b", "ab"], ["x", ""], "ab"),
        (["xab", "y"], ["aby", "b"], ["xa", ""], "b"),
        (["stop"], ["stop"], ["", ""], "stop"),
        (["abc"], [], ["abc", ""], None),
    ],
)
def test_stop_strings(
    pieces: list[str], stops: list[str], released: list[str], stop: str | None
) -> None:
    assert streamed(pieces, *stops) == (released, stop)


def test_a_stop_string_across_tokens_ends_the_output() -> None:
    truth = greedy(PROMPT, 30)
    pieces = FakeTokenizer().pieces
    whole = "".join(pieces[token].decode() for token in truth)
    place = 21
    stop = whole[place : place + 4]
    [output] = run(fake_engine(), PROMPT, max_tokens=30, stop=(stop,))
    assert output.text == whole[: whole.index(stop)]
    assert output.finish_reason == "stop"
    assert output.stop == stop
    # the token that completes it is the last
    assert len(output.ids) == (whole.index(stop) + len(stop) + 1) // 2


def test_end_tokens_end_the_output_and_show_no_text() -> None:
    truth = greedy(PROMPT, 30)
    end = truth[9]
    tokenizer = FakeTokenizer(end_ids=frozenset({end}))
    [output] = run(fake_engine(tokenizer=tokenizer), PROMPT, max_tokens=30)
    length = truth.index(end) + 1
    assert output.ids == truth[:length]
    assert output.finish_reason == "stop"
    assert output.stop is None
    assert output.tokens[-1].text == ""
    [output] = run(fake_engine(tokenizer=tokenizer), PROMPT, max_tokens=30, ignore_eos=True)
    assert output.ids == truth
