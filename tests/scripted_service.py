"""A ``Service`` without an engine: it says what a test wrote down, step by step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import msgspec
from starlette.routing import Route, Router

from slipstream.chat import ChatTemplate, Message, encode_chat
from slipstream.options import SamplingOptions
from slipstream.server.limits import Limits
from slipstream.server.order import Caller, Order
from slipstream.server.texts import Texts
from slipstream.server.wire import Load, WireError, WireEvent, WireToken
from slipstream.tokenizer import Tokenizer, build_tokenizer
from vocabularies import CONTROL, bpe_vocabulary

FIM_TEXTS = (
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|repo_name|>",
    "<|file_sep|>",
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SEED = 7


def tokenizer(fim: bool = True, **keys: Any) -> Tokenizer:
    """Bytes and a few merges; with the marks of Qwen2.5-Coder."""
    metadata = {k: getattr(v, "value", v) for k, v in bpe_vocabulary().items()}
    if fim:
        metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], *FIM_TEXTS]
        types = [*metadata["tokenizer.ggml.token_type"], *[CONTROL] * len(FIM_TEXTS)]
        metadata["tokenizer.ggml.token_type"] = types
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return build_tokenizer(metadata)


@dataclass(frozen=True)
class Step:
    """What one pass does for one output.

    Attributes:
        text: emitted, a token per character.
        accepted: of its tokens, the first ones that were drafted.
        drafted: draft tokens verified.
        held: characters at the end of ``text`` that a stop string may begin with: not shown.
    """

    text: str
    accepted: int = 0
    drafted: int = 0
    held: int = 0


@dataclass
class Script:
    """What every output says.

    Attributes:
        finish_reason, stop: of the last event.
        error: the last event's, instead.
        stuck: no event comes after the steps until the output is cancelled.
        summary: more keys of the last event's.
    """

    steps: Sequence[Step] = (Step("He"), Step("llo", 2, 4))
    finish_reason: str = "stop"
    stop: str | None = None
    error: WireError | None = None
    stuck: bool = False
    summary: Mapping[str, Any] = field(default_factory=dict)


class ScriptedGeneration:
    """See ``order.Generation``."""

    def __init__(self, order: Order, script: Script, spelled: Callable[[str], int]) -> None:
        seed = order.sampling.seed
        sampling = msgspec.structs.replace(order.sampling, seed=SEED if seed is None else seed)
        self.order = replace(order, sampling=sampling)
        self.id = "1f"
        self.created_s = 1_700_000_000
        self.speculation: Mapping[str, Any] = {"type": "suffix", "n_max": None}
        self.cancelled = asyncio.Event()
        self._script = script
        self._spelled = spelled

    def cancel(self) -> None:
        self.cancelled.set()

    async def events(self) -> AsyncIterator[tuple[int, WireEvent]]:
        for step in self._script.steps:
            for choice in range(self.order.choices):
                yield choice, self._event(step, choice)
            await asyncio.sleep(0)
            if self.cancelled.is_set():
                break
        if self._script.stuck:
            await self.cancelled.wait()
        for choice in range(self.order.choices):
            stopped = self.cancelled.is_set()
            yield choice, self._last("cancelled" if stopped else self._script.finish_reason)

    def _event(self, step: Step, choice: int) -> WireEvent:
        tokens = tuple(
            WireToken(self._spelled(c), c, i < step.accepted, -0.5, ((self._spelled(c), -0.5),))
            for i, c in enumerate(step.text)
        )
        text = step.text[: len(step.text) - step.held]
        return WireEvent(choice, tokens, text, step.drafted, step.drafted, step.accepted)

    def _last(self, reason: str) -> WireEvent:
        script = self._script
        steps = script.steps
        summary = {
            "prompt_tokens": len(self.order.prompt),
            "reused_tokens": 1,
            "emitted": sum(len(step.text) for step in steps),
            "target_passes": len(steps),
            "verification_steps": sum(step.drafted > 0 for step in steps),
            "drafted": sum(step.drafted for step in steps),
            "tested": sum(step.drafted for step in steps),
            "accepted": sum(step.accepted for step in steps),
            "discarded": 0,
            "acceptance_at": (1.0, 0.5),
            "drafters": ("suffix",),
            "seed_exact": True,
            "times": {"queue_s": 0.25, "prompt_s": 0.5, "draft_s": 0.01, "verify_s": 0.02},
            **script.summary,
        }
        if script.error is not None:
            return WireEvent(0, (), "", finish_reason="error", error=script.error, summary=summary)
        return WireEvent(0, (), "", finish_reason=reason, stop=script.stop, summary=summary)


class ScriptedService:
    """See ``order.Service``.

    Attributes:
        script: of every generation.
        orders, callers: what was asked, in order.
        generations: made so far.
    """

    def __init__(self, script: Script | None = None, *, fim: bool = True) -> None:
        self.name = "tiny"
        self.longest = 1 << 18
        self.tokenizer = tokenizer(fim)
        self.context = 128
        self.sampling = SamplingOptions()
        self.facts: Mapping[str, Any] = {
            "model": "/secret/folder/tiny.gguf",
            "path": "/secret/folder/tiny.gguf",
            "architecture": "llama",
            "isa": "avx2",
            "exact": True,
            "chat_template": TEMPLATE,
        }
        self.methods: Mapping[str, Mapping[str, Any]] = {
            "suffix": {"offered": True, "parameters": {"suffix_match": 1}},
            "draft-simple": {"offered": False, "reason": "no draft model /secret/folder/d.gguf"},
        }
        self.load = Load()
        self.script = script or Script()
        self.orders: list[Order] = []
        self.callers: list[Caller] = []
        self.generations: list[ScriptedGeneration] = []

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
        rendered = ChatTemplate(TEMPLATE).render(messages, tools=tools, **(variables or {}))
        return encode_chat(self.tokenizer, rendered)

    async def generate(self, order: Order, caller: Caller) -> ScriptedGeneration:
        self.orders.append(order)
        self.callers.append(caller)
        made = ScriptedGeneration(order, self.script, self._spelled)
        self.generations.append(made)
        return made

    async def ask(self, what: str, session: str | None) -> dict[str, Any]:
        del what, session
        return {}

    def _spelled(self, character: str) -> int:
        [token] = self.tokenizer.encode(character, add_special=False)
        return token


def ask(routes: Sequence[Route], method: str, path: str, body: Any = None) -> httpx.Response:
    """One request to an application of these routes, behind the server's limits."""
    app = Limits(Router(list(routes)), body_bytes=1 << 20, body_s=5.0)

    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.request(method, path, json=body)

    return asyncio.run(exchange())


def stream_of(reply: httpx.Response) -> list[dict[str, Any]]:
    """The JSON of a stream of server-sent events."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    data = [line[len("data: ") :] for line in reply.text.splitlines() if line.startswith("data: ")]
    return [json.loads(text) for text in data]
