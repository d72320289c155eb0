"""A small vocabulary for JSON, and requests with grammars over the fake program."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from engines import Output, drain, fake_engine, joined
from fake_program import FakeProgram, FakeTokenizer
from slipstream.constraint import Constraint
from slipstream.engine.engine import Engine
from slipstream.engine.sequence import Request
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, SamplerState
from slipstream.structured import Grammars

ENDS = ("<end>", "<stop>")
WORDS = ('{"', '":', '": ', '"}', '",', ', "', "name", "age", "tags", "true", "false", "null")
MORE_WORDS = ("red", "green", "blue", "  ", "\n", "[]", "{}", "}}", "\\u00e9", "nam", "tag", "10")
CHARACTERS = '{}[]":, abcdefghijklmnopqrstuvwxyz0123456789.-+eE\\/_Ü'


class ByteDecoder:
    """Text of any bytes; those that are not UTF-8 become U+FFFD."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int, /) -> str:
        return self._decoder.decode(self._pieces[token_id])

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class JsonTokenizer(FakeTokenizer):
    """Two end-of-generation tokens, the bytes of some characters, and words.

    It cuts a text into the longest tokens from the left.
    """

    def __init__(self) -> None:
        data = [character.encode() for character in CHARACTERS]
        halves = [bytes([byte]) for byte in "é€😀".encode()]
        words = [word.encode() for word in (*WORDS, *MORE_WORDS)]
        ends = [end.encode() for end in ENDS]
        super().__init__([*ends, *dict.fromkeys([*data, *halves, *words])], frozenset({0, 1}))
        self.vocabulary_size = len(self.pieces)

    def token_bytes(self, token_id: int, /) -> bytes:
        return self.pieces[token_id]

    def is_control(self, token_id: int, /) -> bool:
        return token_id in self.end_ids

    def encode(
        self, text: str, /, *, add_special: bool = False, continues: bool = True
    ) -> list[int]:
        assert continues
        assert not add_special
        data, ids = text.encode(), []
        while data:
            fitting = [
                (len(piece), token)
                for token, piece in enumerate(self.pieces)
                if token not in self.end_ids and data.startswith(piece)
            ]
            if not fitting:
                raise AssertionError(f"no token begins {data!r}")
            size, token = max(fitting)
            ids.append(token)
            data = data[size:]
        return ids

    def stream(self) -> ByteDecoder:  # type: ignore[override]
        return ByteDecoder(self.pieces)

    def text(self, ids: Sequence[int]) -> str:
        return b"".join(self.pieces[i] for i in ids if i not in self.end_ids).decode()


@cache
def json_tokenizer() -> JsonTokenizer:
    return JsonTokenizer()


@cache
def json_grammars() -> Grammars:
    return Grammars(json_tokenizer())


def constraint_of(**sampling: Any) -> Constraint:
    found = json_grammars().constraint(SamplingOptions(**sampling))
    assert found is not None
    return found


VOCABULARY = json_tokenizer().vocabulary_size


PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
FIXED: dict[str, Any] = {
    "x-guidance": {"whitespace_flexible": False},
    "const": {"name": "age", "tags": ["red", "green", {"age": [10, True, None]}]},
}


@dataclass(frozen=True)
class Job:
    """A prompt with the sampling options of its request."""

    prompt: Sequence[int]
    sampling: dict[str, Any] = field(default_factory=dict)

    def request(self, **sampling: Any) -> Request:
        options = SamplingOptions(**{"seed": 7, **sampling, **self.sampling})
        return Request(self.prompt, options, constraint=json_grammars().constraint(options))


def json_engine(drafter: Any = None, order: int | None = None, **keywords: Any) -> Engine:
    tokenizer = json_tokenizer()
    program = FakeProgram(tokenizer.vocabulary_size, order)
    return fake_engine(drafter, program, tokenizer, **keywords)


def run_jobs(engine: Engine, jobs: Sequence[Job], **sampling: Any) -> list[Output]:
    """One output per job, all submitted at once."""
    ids = [engine.submit(job.request(**sampling)) for job in jobs]
    events = drain(engine)
    return [joined(events, identity) for identity in ids]


Holds = Callable[[Any], bool]


def is_person(value: Any) -> bool:
    assert list(value) == ["name", "age", "tags"]
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 8
    assert type(value["age"]) is int
    assert 0 <= value["age"] <= 130
    return len(value["tags"]) <= 3 and set(value["tags"]) <= {"red", "green", "blue"}


CASES: dict[str, tuple[dict[str, Any], Holds]] = {
    "object": (PERSON, is_person),
    "nested": (
        {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {"type": "array", "maxItems": 2, "items": PERSON},
        },
        lambda value: all(is_person(person) for row in value for person in row),
    ),
    "enum": (
        {"enum": ["red", 10, None, {"age": [True]}]},
        lambda v: v in ["red", 10, None, {"age": [True]}],
    ),
    "number": (
        {"type": "number", "minimum": -2.5, "maximum": 11},
        lambda value: -2.5 <= value <= 11,
    ),
    "string with escapes": (
        {"type": "string", "maxLength": 12},
        lambda value: isinstance(value, str) and len(value) <= 12,
    ),
    "pattern": (
        {"type": "string", "pattern": "^[a-cé😀]{2,4}$"},
        lambda value: re.fullmatch("[a-cé😀]{2,4}", value) is not None,
    ),
    "either": (
        {"anyOf": [{"type": "boolean"}, {"type": "integer", "maximum": 99, "minimum": 0}]},
        lambda value: isinstance(value, bool) or 0 <= value <= 99,
    ),
    "constant": (FIXED, lambda value: value == FIXED["const"]),
    "reference": (
        {
            "$defs": {"a": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/a"}}},
            "$ref": "#/$defs/a",
        },
        lambda value: isinstance(value, list),
    ),
}


def sampler(constraint: Constraint | None, seed: int, **options: Any) -> SamplerState:
    settings = SamplingOptions(**{"temperature": 1.0, **options})
    return SamplerState(settings, [], seed, NumpyPrimitives(), constraint)


def decode(state: SamplerState, most: int = 300) -> list[int]:
    """Tokens under the state, from random logits, an end token last unless there are too many."""
    program, tokens = FakeProgram(VOCABULARY), [5]
    while len(tokens) <= most:
        tokens.append(state.sample(program.logits(tokens)).token)
        state.advance(tokens[-1])
        if tokens[-1] in json_tokenizer().end_ids:
            break
    return tokens[1:]
