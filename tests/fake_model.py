"""The Python API's ``Model`` over a fake program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fake_program import FakeProgram, FakeTokenizer
from slipstream import Model
from slipstream.sampling import NumpyPrimitives

LETTERS = "abcdefghijklmnopqrstuvwx"
MakeModel = Callable[..., Model]


class LetterTokenizer(FakeTokenizer):
    """One letter per id."""

    def __init__(self) -> None:
        super().__init__([letter.encode() for letter in LETTERS])

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        assert parse_special
        return [LETTERS.index(letter) for letter in text]


def fake_models(monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    """Builds a ``Model`` whose loading is replaced."""

    def load(options: Any, *_: Any) -> SimpleNamespace:
        return SimpleNamespace(
            program=FakeProgram(24, order=2),
            tokenizer=LetterTokenizer(),
            context=options.context or 200,
            file=SimpleNamespace(metadata={}),
            primitives=NumpyPrimitives(),
            path=Path("fake.gguf"),
            backend=SimpleNamespace(name="fake", precision="float32"),
        )

    monkeypatch.setattr("slipstream.api.load_model", load)
    return lambda **keywords: Model("fake", **keywords)
