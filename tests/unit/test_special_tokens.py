"""Special tokens in a text, against cutting token by token from the longest to the shortest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.vocabulary.special_tokens import SpecialTokens


def cut_one_by_one(ids: dict[str, int], text: str) -> list[str | int]:
    parts: list[str | int] = [text]
    for token in sorted(filter(None, ids), key=lambda token: -len(token.encode())):
        new: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                new.append(part)
                continue
            first, *others = part.split(token)
            new.append(first)
            for other in others:
                new += [ids[token], other]
        parts = new
    return [part for part in parts if part != ""]


def distinct_lengths(tokens: list[str]) -> dict[str, int]:
    """Ids of tokens, one of each length, because llama.cpp leaves the order of equals open."""
    by_length = {len(token.encode()): token for token in tokens}
    return {token: index for index, token in enumerate(by_length.values())}


@given(
    tokens=st.lists(st.text("ab<é", max_size=5), max_size=6),
    text=st.text("ab<é", max_size=30),
)
def test_equals_cutting_one_by_one(tokens: list[str], text: str) -> None:
    ids = distinct_lengths(tokens)
    assert list(SpecialTokens(ids).split(text)) == cut_one_by_one(ids, text)


def test_longer_token_wins_though_it_starts_later() -> None:
    assert list(SpecialTokens({"<a": 1, "a>>": 2}).split("x<a>>y")) == ["x<", 2, "y"]


def test_rest_of_a_run_joins_the_text_beside_it() -> None:
    assert list(SpecialTokens({"  ": 1}).split("x   y")) == ["x", 1, " y"]


def test_no_tokens() -> None:
    assert list(SpecialTokens({}).split("text")) == ["text"]
    assert list(SpecialTokens({}).split("")) == []
