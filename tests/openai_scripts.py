"""A ``Service`` whose outputs are written beforehand, and endpoints over it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route

from gguf_writer import Typed
from slipstream.chat import ChatTemplate, Message, encode_chat
from slipstream.errors import SlipstreamError
from slipstream.options import SamplingOptions
from slipstream.server.order import Caller, Order
from slipstream.server.texts import Texts
from slipstream.server.wire import Load, WireError, WireEvent, WireToken
from slipstream.tokenizer import Tokenizer, build_tokenizer
from vocabularies import bpe_vocabulary

END = 2  # <|im_end|>
SEED = 77

_TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls %}CALL{% endfor %}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
PLAIN_TEMPLATE = _TURNS.replace("{% for c in m.tool_calls %}CALL{% endfor %}", "")
QWEN_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "Answer by <tool_call></tool_call>.<|im_end|>\n{% endif %}"
    + _TURNS.replace(
        "CALL",
        '<tool_call>{"name": "{{ c.function.name }}", "arguments": '
        "{{ c.function.arguments | tojson }}}</tool_call>",
    )
)
LLAMA_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    'Answer by {"name": .., "parameters": ..}.<|im_end|>\n{% endif %}'
    + _TURNS.replace("CALL", "{{ c.function.name + '(' + c.function.arguments + ')' }}")
)

Script = Sequence[WireEvent | Exception | asyncio.Event]


def tokenizer_with(*control: str) -> Tokenizer:
    """A byte-pair vocabulary; ``control`` are further tokens without text in an output."""
    vocabulary = bpe_vocabulary(400)
    values = {k: v.value if isinstance(v, Typed) else v for k, v in vocabulary.items()}
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    for place, text in enumerate(control, 390):
        tokens[place], types[place] = text, 3
    return build_tokenizer(values)


def said(
    *pieces: str,
    finish: str = "stop",
    stop: str | None = None,
    drafted: int = 0,
    top: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> list[WireEvent]:
    """Events of an output, one per piece of ASCII text and one for its end.

    Args:
        drafted: the last tokens of each event that come from a draft.
        top: log-probabilities asked for; None = none.
    """
    vocabulary = tokenizer or tokenizer_with()
    events = []
    for piece in pieces:
        tokens = _tokens(vocabulary, piece, drafted, top)
        events.append(WireEvent(1, tokens, piece, drafted, drafted, drafted))
    end = (WireToken(END, "", False, None if top is None else -0.25),)
    ended = finish == "stop" and stop is None
    count = sum(len(event.tokens) for event in events) + ended
    last = WireEvent(1, end if ended else (), "", 0, 0, 0, finish, stop, None, summary(count))
    return [*events, last]


def _tokens(
    tokenizer: Tokenizer, piece: str, drafted: int, top: int | None
) -> tuple[WireToken, ...]:
    ids = tokenizer.encode(piece, add_special=False)
    made = []
    for place, token in enumerate(ids):
        likely = () if top is None else tuple((token + i, -0.5 - i) for i in range(top))
        made.append(
            WireToken(
                token,
                tokenizer.token_bytes(token).decode(),
                place >= len(ids) - drafted,
                None if top is None else -0.5,
                likely,
            )
        )
    return tuple(made)


def summary(emitted: int, reused: int = 3) -> dict[str, Any]:
    """What the last event of an output says of it."""
    return {
        "prompt_tokens": 9,
        "emitted": emitted,
        "target_passes": emitted,
        "verification_steps": 0,
        "tested": 0,
        "discarded": 0,
        "acceptance_at": (),
        "drafters": (),
        "seed_exact": True,
        "reused_tokens": reused,
        "times": {"queue_s": 0.001, "prompt_s": 0.002},
    }


def failed(kind: str = "DeadlineError") -> WireEvent:
    """The last event of an output that met an error."""
    error = WireError(kind=kind, expected="it to work", found="it did not", remedy="Try again.")
    return WireEvent(1, (), "", finish_reason="error", error=error)


class ScriptedGeneration:
    """Plays a script per choice, in turns.

    Attributes:
        cancelled: times it was cancelled.
        closed: whether its events were closed or came to their end.
    """

    def __init__(self, order: Order, scripts: Sequence[Script], number: int) -> None:
        self.order = order
        self.id = f"n{number}"
        self.created_s = 1_700_000_000
        self.speculation: Mapping[str, Any] = {"type": "none"}
        self.cancelled = 0
        self.closed = False
        self._scripts = scripts

    async def events(self) -> AsyncIterator[tuple[int, WireEvent]]:
        try:
            longest = max(map(len, self._scripts))
            for place in range(longest):
                for choice, script in enumerate(self._scripts):
                    if place >= len(script):
                        continue
                    item = script[place]
                    await asyncio.sleep(0)
                    if isinstance(item, asyncio.Event):
                        await item.wait()
                    elif isinstance(item, Exception):
                        raise item
                    else:
                        yield choice, item
        finally:
            self.closed = True

    def cancel(self) -> None:
        self.cancelled += 1


class ScriptedService:
    """
    Args:
        scripts: of the generations to come, one each; the last one again and again.
        template: Jinja text; "" = a base model.
        refusal: raised by ``generate``.

    Attributes:
        orders, callers, generations: of what was asked so far.
        prompts: texts of the chats so far.
    """

    def __init__(
        self,
        *scripts: Script,
        template: str = QWEN_TEMPLATE,
        tokenizer: Tokenizer | None = None,
        refusal: SlipstreamError | None = None,
    ) -> None:
        self.name = "tiny"
        self.longest = 1 << 18
        self.tokenizer = tokenizer or tokenizer_with()
        self.context = 512
        self.sampling = SamplingOptions()
        self.facts: Mapping[str, Any] = {"sha256": "ab" * 32, "architecture": "llama"}
        self.methods: Mapping[str, Mapping[str, Any]] = {
            "suffix": {"offered": True, "parameters": {}},
            "ngram-mod": {"offered": True, "parameters": {}},
            "draft-simple": {"offered": False, "reason": "it needs a draft model"},
        }
        self.load = Load()
        self.orders: list[Order] = []
        self.callers: list[Caller] = []
        self.generations: list[ScriptedGeneration] = []
        self.prompts: list[str] = []
        self._scripts = list(scripts) or [said("Hello", " there.")]
        self._template = ChatTemplate(template)
        self._refusal = refusal

    @property
    def texts(self) -> Texts:
        return Texts(self.tokenizer, self.longest)

    async def prompt_ids(self, text: str, *, add_special: bool = True) -> list[int]:
        return self.tokenizer.encode(text, add_special=add_special, parse_special=True)

    async def chat_ids(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        text = self._template.render(messages, tools=tools, **(variables or {}))
        self.prompts.append(text)
        return encode_chat(self.tokenizer, text)

    async def generate(self, order: Order, caller: Caller) -> ScriptedGeneration:
        if self._refusal is not None:
            raise self._refusal
        self.orders.append(order)
        self.callers.append(caller)
        if order.sampling.seed is None:
            sampling = msgspec.structs.replace(order.sampling, seed=SEED)
            order = dataclasses.replace(order, sampling=sampling)
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        scripts = [script] * order.choices
        made = ScriptedGeneration(order, scripts, len(self.generations))
        self.generations.append(made)
        return made

    async def ask(self, what: str, session: str | None) -> dict[str, Any]:
        raise NotImplementedError(f"{what} {session}")


Routes = Callable[[Any], list[Route]]


def app_of(service: ScriptedService, *routes: Routes) -> Starlette:
    """An application with some endpoints."""
    return Starlette(routes=[route for make in routes for route in make(service)])


def messages_of(body: str) -> list[Any]:
    """The JSON of each server-sent event of a stream, ``[DONE]`` as a text."""
    found: list[Any] = []
    for event in body.split("\n\n"):
        for line in event.splitlines():
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
                found.append(data if data == "[DONE]" else msgspec.json.decode(data))
    return found
