"""A server's ``Service`` without a model: prompts are characters, outputs are scripts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.options import SamplingOptions
from slipstream.server.order import Caller, Order
from slipstream.server.texts import Texts
from slipstream.server.wire import Load, WireError, WireEvent, WireToken

Script = Sequence[WireEvent | float]
"""Events, and seconds to wait before the next one."""


def said(text: str, *, drafted: int = 0) -> WireEvent:
    """A step that gave a text, one token per word, the first ones of them drafted."""
    words = [f" {word}" if place else word for place, word in enumerate(text.split(" "))]
    tokens = tuple(
        WireToken(1000 + place, word, place < drafted) for place, word in enumerate(words)
    )
    return WireEvent(1, tokens, text, drafted, drafted, drafted)


def ended(
    reason: str = "stop", stop: str | None = None, text: str = "", **summary: Any
) -> WireEvent:
    """A last event, with the token that ended the output."""
    found = {"prompt_tokens": 12, "target_passes": 3, "reused_tokens": 0, **summary}
    tokens = (WireToken(2, text, False),) if reason == "stop" else ()
    return WireEvent(1, tokens, text, finish_reason=reason, stop=stop, summary=found)


def failed(kind: str = "BackendError") -> WireEvent:
    error = WireError(kind=kind, expected="a pass", found="a fault", remedy="Try again.")
    return WireEvent(1, (), "", finish_reason="error", error=error)


class CharacterTokenizer:
    """An id is a code point."""

    kind = "characters"
    vocabulary_size = 0x110000
    bos_id = None
    eos_id = 2
    end_ids = (2,)
    add_bos = False

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(map(chr, ids))

    def token_id(self, _text: str) -> int | None:
        return None

    def token_text(self, token: int) -> str:
        return chr(token)

    def is_control(self, _token: int) -> bool:
        return False


@dataclass
class CharacterGeneration:
    """An order that runs by a script.

    Attributes:
        cancelled: whether it was told to end.
        closed: whether its events were read to the end, or given up.
    """

    order: Order
    script: Script
    id: str = "0f3a"
    created_s: int = 1_796_000_000
    speculation: Mapping[str, Any] = field(default_factory=lambda: {"type": "suffix"})
    cancelled: bool = False
    closed: bool = False

    async def events(self) -> AsyncIterator[tuple[int, WireEvent]]:
        try:
            for step in self.script:
                if isinstance(step, WireEvent):
                    yield 0, step
                else:
                    await asyncio.sleep(step)
        finally:
            self.closed = True

    def cancel(self) -> None:
        self.cancelled = True


class CharacterService:
    """Every order runs by the same script.

    Args:
        script: of every output; default: "Hello there." in two steps.
        knows_tools: whether the template offers functions, in the way of Qwen 2.
        refusal: raised by ``generate``.

    Attributes:
        said: (messages, tools) of every conversation.
        generations, callers: of every order.
    """

    name = "scripted"
    longest = 1 << 18
    context = 4096

    def __init__(
        self,
        script: Script | None = None,
        *,
        knows_tools: bool = True,
        refusal: Exception | None = None,
    ) -> None:
        self.script = [said("Hello"), said(" there."), ended()] if script is None else script
        self.knows_tools = knows_tools
        self.refusal = refusal
        self.tokenizer: Any = CharacterTokenizer()
        self.sampling = SamplingOptions()
        self.facts: Mapping[str, Any] = {"exact": True}
        self.methods: Mapping[str, Mapping[str, Any]] = {
            "suffix": {"offered": True, "parameters": {}},
            "draft-simple": {"offered": False, "reason": "no draft model was given"},
        }
        self.load = Load()
        self.said: list[tuple[Sequence[Mapping[str, Any]], Any]] = []
        self.generations: list[CharacterGeneration] = []
        self.callers: list[Caller] = []

    @property
    def orders(self) -> list[Order]:
        return [generation.order for generation in self.generations]

    @property
    def texts(self) -> Texts:
        return Texts(self.tokenizer, self.longest)

    async def prompt_ids(self, text: str, *, add_special: bool = True) -> list[int]:
        del add_special
        return list(map(ord, text))

    async def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        del variables
        self.said.append((messages, tools))
        offered = f"<tools><tool_call>{json.dumps(list(tools))}</tools>" if tools else ""
        turns = "".join(f"<{turn['role']}>{turn['content']}" for turn in messages)
        text = (offered if self.knows_tools else "") + turns
        return list(map(ord, text))

    async def generate(self, order: Order, caller: Caller) -> CharacterGeneration:
        if self.refusal is not None:
            raise self.refusal
        self.callers.append(caller)
        self.generations.append(CharacterGeneration(order, self.script))
        return self.generations[-1]

    async def ask(self, what: str, session: str | None) -> dict[str, Any]:
        del what, session
        return {}
