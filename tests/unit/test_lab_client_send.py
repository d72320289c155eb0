"""The run's requests: what is encoded here, and what a server is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from slipstream.chat import ChatTemplate
from slipstream.errors import OptionError
from slipstream.lab.client import client
from slipstream.lab.client.asking import Asked
from slipstream.lab.client.client_send import ClientSend
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.freezing.prompt_tokens import PromptCounter
from slipstream.measure.workload import WorkloadMessage, WorkloadPrompt

TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }}={{ t.function.parameters | tojson }};"
    "{% endfor %}{{ messages[0].content }}"
)
LOOK = {"name": "look", "description": "d", "parameters": {"type": "object"}}


class Letters:
    """A tokenizer of one id per letter."""

    add_bos = False
    bos_id = None

    def encode(self, text: str, **how: bool) -> list[int]:
        del how
        return list(map(ord, text))

    def encoded_slices(self, text: str, **how: bool) -> Iterator[list[int]]:
        yield self.encode(text, **how)

    def text_of(self, ids: tuple[int, ...]) -> str:
        return "".join(map(chr, ids))


def prompt(*tools: dict[str, Any]) -> WorkloadPrompt:
    return WorkloadPrompt(
        id="p", stratum="chat", messages=(WorkloadMessage("user", "Hi."),), max_tokens=4,
        source="", licence="", sha256="", tools=tools,
    )  # fmt: skip


def counter(template: str | None) -> PromptCounter:
    made = None if template is None else ChatTemplate(template)
    return PromptCounter(Letters(), made)  # type: ignore[arg-type]


def sent(
    dialect: str, asked: WorkloadPrompt, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> client.Prompt:
    """What the client was given."""
    found: list[client.Prompt] = []

    async def send(endpoint: Endpoint, prompt: client.Prompt, *rest: Any, **more: Any) -> None:
        del endpoint, rest, more
        found.append(prompt)

    monkeypatch.setattr(client, "send", send)
    sender = ClientSend.__new__(ClientSend)
    sender._ids = {}
    sender.__dict__["_counter"] = counter(TEMPLATE)
    request = Asked(prompt=asked, max_tokens=4, seed=1, timeout_s=1.0, **more)
    asyncio.run(sender(Endpoint("http://127.0.0.1:1", dialect), request))
    return found[0]


def test_tools_are_part_of_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Letters().text_of(sent("llama", prompt(), monkeypatch).ids) == "Hi."
    told = Letters().text_of(sent("llama", prompt(LOOK), monkeypatch).ids)
    assert told == 'look={"type": "object"};Hi.'


def test_tools_are_part_of_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    given = sent("openai", prompt(LOOK), monkeypatch)
    assert given.tools == ({"type": "function", "function": LOOK},)
    assert (given.ids, given.messages) == ((), ({"role": "user", "content": "Hi."},))
    assert sent("openai", prompt(), monkeypatch).tools == ()


def test_an_output_that_is_gone_on_with_follows_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    given = sent("llama", prompt(), monkeypatch, after=(7, 8))
    assert given.ids == (*map(ord, "Hi."), 7, 8)
    assert sent("llama", prompt(), monkeypatch).ids == tuple(map(ord, "Hi."))
    for dialect in ("openai", "llama-chat"):
        with pytest.raises(OptionError, match="token ids"):
            sent(dialect, prompt(), monkeypatch, after=(7,))


def test_what_is_counted_is_what_is_sent() -> None:
    assert counter(TEMPLATE).tokens(prompt(LOOK)) == len('look={"type": "object"};Hi.')
    assert counter(None).ids(prompt(LOOK)) == list(map(ord, "Hi."))
