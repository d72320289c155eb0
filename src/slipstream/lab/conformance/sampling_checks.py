"""Sampling and constraints: seeds, penalties, a JSON schema, a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from slipstream.lab.conformance.asking import Asker, chat
from slipstream.lab.conformance.checks import Room, measurable, require
from slipstream.lab.conformance.comparing import Output, parting
from slipstream.lab.conformance.outcomes import ContractError
from slipstream.lab.conformance.prompts import COPY, STORY
from slipstream.lab.conformance.replies import Reply
from slipstream.lab.tasks.json_answers import NotJsonError, json_value
from slipstream.lab.tasks.schema_subset import matches

SEEDS: Final = (11, 12, 13, 14)
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["kite", "heron", "wagtail", "owl"]},
        "shelf": {"enum": ["A41", "B17", "C86", "D23"]},
        "count": {"enum": [1, 2, 3, 5, 8]},
        "tags": {
            "type": "array",
            "items": {"enum": ["grey", "brown", "white"]},
            "minItems": 1,
            "maxItems": 3,
        },
    },
    "required": ["kind", "shelf", "count", "tags"],
    "additionalProperties": False,
}
GRAMMARS: Final[Mapping[str, str]] = {
    "slipstream": 'start: entry ("; " entry)~2\nentry: ("red" | "green" | "blue") " " /[0-9]{2}/',
    "llama.cpp": (
        'root ::= entry "; " entry "; " entry\nentry ::= ("red" | "green" | "blue") " " [0-9] [0-9]'
    ),
}
"""The same language for each server that has a language of grammars."""
_WORDS: Final = re.compile(r"(red|green|blue) [0-9]{2}(; (red|green|blue) [0-9]{2}){2}")
_OBJECT: Final = "Describe one bird of a shop as a JSON object with kind, shelf, count and tags."
_COLOURS: Final = "Name three colours, each with a number of two digits."
_TRIES: Final = (None, *SEEDS)  # None: at temperature 0


def seeds(asker: Asker, room: Room) -> list[Output]:
    """The same seed gives the same output, other seeds give others."""
    del room
    replies = {seed: asker.answer(_sampled(STORY, 40, seed)) for seed in SEEDS}
    first = replies[SEEDS[0]]
    again = asker.answer(_sampled(STORY, 40, SEEDS[0]))
    if first.text != again.text:
        place = parting(first.text, again.text)
        raise ContractError(
            f"seed {SEEDS[0]} twice: the outputs differ from character {place} on", again.request
        )
    different = {reply.text for reply in replies.values()}
    require(len(different) > 1, f"{len(SEEDS)} seeds at temperature 1, one output", again)
    return [Output(f"seed {seed}", reply.text, reply.request) for seed, reply in replies.items()]


def _sampled(prompt: str, most: int, seed: int | None, **more: Any) -> dict[str, Any]:
    sampling = {} if seed is None else {"temperature": 1.0, "seed": seed}
    return chat(prompt, most, **sampling, **more)


def penalties(asker: Asker, room: Room) -> list[Output]:
    """A penalty acts on drafted tokens too."""
    del room
    plain = asker.answer(chat(COPY, 64))
    punished = asker.answer(chat(COPY, 64, frequency_penalty=2.0))
    require(
        plain.text != punished.text,
        "`frequency_penalty` 2 changes nothing in an output that repeats itself",
        punished,
    )
    return [Output("punished", punished.text, punished.request)]


def json_schema(asker: Asker, room: Room) -> list[Output]:
    """Every output is whole JSON of the schema, also where tokens were drafted."""
    del room
    schema = {"name": "bird", "schema": SCHEMA, "strict": True}
    wanted = {"type": "json_schema", "json_schema": schema}
    found = []
    for place, seed in enumerate(_TRIES):
        asked = _sampled(_OBJECT, 192, seed, response_format=wanted, stream=place % 2 == 1)
        reply = asker.answer(asked)
        _require_schema(reply)
        found.append(Output(_try(seed), reply.text, reply.request))
    return found


def _require_schema(reply: Reply) -> None:
    require(reply.finish_reason == "stop", _unfinished(reply), reply)
    try:
        value = json_value(reply.text)
    except NotJsonError:
        raise ContractError(f"no JSON: {reply.text!r:.120}", reply.request) from None
    held = matches(value, SCHEMA)
    require(held, f"JSON that the schema forbids: {json.dumps(value)[:120]}", reply)


def _unfinished(reply: Reply) -> str:
    return f"finish reason {reply.finish_reason!r} after {reply.text!r:.100}"


def _try(seed: int | None) -> str:
    return "temperature 0" if seed is None else f"seed {seed}"


def grammar(asker: Asker, room: Room) -> list[Output]:
    """Every output is in the language of the grammar, also where tokens were drafted."""
    text = GRAMMARS.get(room.flavour)
    measurable(text, "no language of grammars is known for this server")
    found = []
    for seed in _TRIES:
        reply = asker.answer(_sampled(_COLOURS, 64, seed, grammar=text))
        held = _WORDS.fullmatch(reply.text.strip())
        require(held, f"outside the grammar: {reply.text!r:.120}", reply)
        require(reply.finish_reason == "stop", _unfinished(reply), reply)
        found.append(Output(_try(seed), reply.text, reply.request))
    return found
