"""Orders to the engine process and back, the process played by the test."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model
from engine_peer import DEATH, Peer, event, settled, step
from slipstream.errors import (
    BackendError,
    ContextFullError,
    DeadlineError,
    OptionError,
    RequestError,
    SlipstreamError,
    TemplateError,
    UnavailableError,
)
from slipstream.options import SamplingOptions
from slipstream.server.error_shapes import openai_error
from slipstream.server.link import Link
from slipstream.server.method_choice import echo, in_effect
from slipstream.server.order import Caller, Order
from slipstream.server.prompts import ModelText, open_text
from slipstream.server.refusals import BusyError
from slipstream.server.service import EngineService
from slipstream.server.wire import Cancel, Load, Ready, Slot, Speculation, StepFrame, WireEvent
from slipstream.server_options import ServerOptions

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ mood or '' }}"
METHODS: dict[str, dict[str, Any]] = {
    "suffix": {"offered": True, "parameters": {}},
    "ngram-mod": {"offered": True, "parameters": {}},
    "draft-simple": {"offered": False, "reason": "it needs a draft model"},
}
READY = Ready(
    facts={"context": 64, "parallel": 2},
    methods=METHODS,
    speculation=Speculation(methods=("suffix",), scope="session"),
)
ORDER = Order(prompt=[5, 6, 7], sampling=SamplingOptions(), endpoint="/x")
CALLER = Caller("who")


class Counted:
    """A meter that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def arrived(self, request: int, order: Order, now_s: float) -> None:
        del now_s
        self.calls.append(("arrived", request, order.endpoint))

    def refused(self, endpoint: str) -> None:
        self.calls.append(("refused", endpoint))

    def started(self, slot: Slot) -> None:
        self.calls.append(("started", slot.request))

    def event(self, event: WireEvent, now_s: float) -> None:
        del now_s
        self.calls.append(("event", event.request, event.finish_reason))

    def finished(self, request: int, reason: str) -> None:
        self.calls.append(("finished", request, reason))

    def loaded(self, load: Load) -> None:
        self.calls.append(("loaded", load.running))


class Halved:
    """A profile's rule that lets outputs be of 7 tokens, and nothing be drafted."""

    def applied(self, order: Order) -> tuple[Order, Halved]:
        sampling = SamplingOptions(max_tokens=7)
        return dataclasses.replace(
            order, sampling=sampling, speculation=Speculation(methods=())
        ), self

    def echo(self) -> dict[str, object]:
        return {"workload": "halved"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    extra = {"tokenizer.chat_template": TEMPLATE}
    return open_text(str(tiny_model(path, "llama", extra=extra)))


@pytest.fixture(scope="module")
def base_text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    path: Path = tmp_path_factory.mktemp("base") / "base.gguf"
    return open_text(str(tiny_model(path, "llama")))


Test = Callable[[EngineService, Peer], Awaitable[None]]


@pytest.fixture
def served(text: ModelText) -> Callable[..., None]:
    """Runs a test over a service."""

    def run(test: Test, model_text: ModelText = text, **keywords: Any) -> None:
        async def running() -> None:
            ours, theirs = socket.socketpair()
            peer = Peer(theirs)
            link = await Link.over(ours, lambda: DEATH)
            more = {name: keywords.pop(name) for name in ("rules", "meter") if name in keywords}
            service = EngineService(
                link,
                READY,
                model_text,
                SamplingOptions(),
                ServerOptions(**keywords),
                name="tiny",
                **more,
            )
            try:
                async with asyncio.timeout(60):
                    await test(service, peer)
            finally:
                service.close()
                peer.close()
                await asyncio.wait([link.gone], timeout=60)

        asyncio.run(running())

    return run


def test_an_order_becomes_a_request_and_its_events_come_back(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        generation = await service.generate(ORDER, CALLER)
        sent = await peer.next()
        assert (sent.prompt, sent.session, sent.choice) == ([5, 6, 7], "who", 0)
        assert sent.sampling.seed is not None
        assert generation.order.sampling == sent.sampling
        assert sent.speculation == READY.speculation
        assert generation.speculation["type"] == "suffix"
        number = sent.request
        await peer.send(step(event(number, "a")), step(event(number, "b", "stop")))
        got = [item async for item in generation.events()]
        assert [(choice, e.text, e.finish_reason) for choice, e in got] == [
            (0, "a", None),
            (0, "b", "stop"),
        ]
        assert service.active == 0

    served(test)


def test_choices_share_a_seed_and_come_mixed(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        order = dataclasses.replace(ORDER, choices=3, sampling=SamplingOptions(seed=9))
        generation = await service.generate(order, CALLER)
        sent = [await peer.next() for _ in range(3)]
        assert [frame.choice for frame in sent] == [0, 1, 2]
        assert {frame.sampling.seed for frame in sent} == {9}
        numbers = [frame.request for frame in sent]
        assert len(set(numbers)) == 3
        await peer.send(
            step(event(numbers[2], "c", "stop"), event(numbers[0], "a", "stop")),
            step(event(numbers[1], "b", "length")),
        )
        got = [(choice, e.text) async for choice, e in generation.events()]
        assert got == [(2, "c"), (0, "a"), (1, "b")]

    served(test)


def test_numbers_and_ids_are_never_used_twice(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        made = [await service.generate(ORDER, CALLER) for _ in range(5)]
        assert len({generation.id for generation in made}) == 5
        sent = [await peer.next() for _ in range(5)]
        assert len({frame.request for frame in sent}) == 5

    served(test)


def test_reading_no_further_cancels(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        generation = await service.generate(ORDER, CALLER)
        number = (await peer.next()).request
        await peer.send(step(event(number, "a")))
        events = generation.events()
        await anext(events)
        await events.aclose()  # type: ignore[attr-defined]
        assert await peer.next() == Cancel(request=number)
        assert service.active == 1
        await peer.send(step(event(number, finish="cancelled")))
        await settled()
        assert service.active == 0
        generation.cancel()

    served(test)


def test_a_generation_that_nobody_holds_is_cancelled(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        await service.generate(ORDER, CALLER)
        gc.collect()
        number = (await peer.next()).request
        assert await peer.next() == Cancel(request=number)

    served(test)


def test_one_that_is_over_is_not(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        generation = await service.generate(ORDER, CALLER)
        await peer.send(step(event((await peer.next()).request, "a", "stop")))
        await settled()
        del generation
        gc.collect()
        last = await service.generate(ORDER, CALLER)
        assert not isinstance(await peer.next(), Cancel)
        last.cancel()

    served(test)


def test_beyond_the_queue_it_is_busy(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        held = [await service.generate(ORDER, CALLER) for _ in range(3)]
        with pytest.raises(BusyError) as caught:
            await service.generate(ORDER, CALLER)
        assert 1 <= caught.value.retry_after_s <= 60
        await peer.send(step(event((await peer.next()).request, "a", "stop")))
        await settled()
        held.append(await service.generate(ORDER, CALLER))
        with pytest.raises(BusyError):
            await service.generate(ORDER, CALLER)
        with pytest.raises(OptionError, match="`n` of at most 3"):
            await service.generate(dataclasses.replace(ORDER, choices=4), CALLER)

    served(test, queue=1)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"choices": 1000}, "n"),
        ({"prompt": [5] * 64}, "prompt"),
        ({"prompt": [5] * 64, "endpoint": "/v1/chat/completions"}, "messages"),
        ({"prompt": [1 << 30]}, "prompt"),
        ({"sampling": SamplingOptions(logit_bias={1 << 30: 1.0})}, "logit_bias"),
    ],
)
def test_the_key_at_fault_is_named(served: Any, change: dict[str, Any], name: str) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        del peer
        with pytest.raises(SlipstreamError) as caught:
            await service.generate(dataclasses.replace(ORDER, **change), CALLER)
        assert openai_error(caught.value)["error"]["param"] == name

    served(test)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"prompt": []}, RequestError),
        ({"prompt": [1 << 30]}, RequestError),
        ({"prompt": [-1]}, RequestError),
        ({"prompt": [5] * 64}, ContextFullError),
        ({"choices": 0}, OptionError),
        ({"choices": 1000}, OptionError),
        ({"sampling": SamplingOptions(logit_bias={1 << 30: 1.0})}, RequestError),
        ({"speculation": Speculation(methods=("draft-simple",))}, OptionError),
        ({"speculation": Speculation(methods=("sufix",))}, OptionError),
        ({"speculation": Speculation(methods=("none", "suffix"))}, OptionError),
        ({"speculation": Speculation(scope="all")}, OptionError),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused_at_once(
    served: Any, change: dict[str, Any], kind: type[SlipstreamError]
) -> None:
    counted = Counted()

    async def test(service: EngineService, peer: Peer) -> None:
        del peer
        with pytest.raises(kind):
            await service.generate(dataclasses.replace(ORDER, **change), CALLER)
        assert service.active == 0

    served(test, meter=counted)
    assert counted.calls[0] == ("refused", "/x")


def test_the_shorter_deadline_holds(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        held = []
        for asked, expected in ((None, 5.0), (2.0, 2.0), (9.0, 5.0)):
            order = dataclasses.replace(ORDER, deadline_s=asked)
            held.append(await service.generate(order, CALLER))
            assert (await peer.next()).deadline_s == expected

    served(test, deadline_s=5.0)


def test_a_profile_has_the_last_word(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        generation = await service.generate(ORDER, CALLER)
        sent = await peer.next()
        assert sent.sampling.max_tokens == 7
        assert sent.speculation.methods == ()
        assert generation.speculation["workload"] == "halved"
        assert generation.speculation["type"] == "none"

    served(test, rules=Halved())


def test_the_meter_hears_of_everything(served: Any) -> None:
    counted = Counted()

    async def test(service: EngineService, peer: Peer) -> None:
        generation = await service.generate(ORDER, CALLER)
        number = (await peer.next()).request
        slot = Slot(number, 0, 0.1)
        await peer.send(
            StepFrame(events=(event(number, "a"),), load=Load(running=1), started=(slot,)),
            step(event(number, "b", "stop")),
        )
        await settled()
        assert counted.calls == [
            ("arrived", number, "/x"),
            ("started", number),
            ("event", number, None),
            ("loaded", 1),
            ("event", number, "stop"),
            ("loaded", 0),
        ]
        assert len([e async for e in generation.events()]) == 2

    served(test, meter=counted)


def test_when_the_server_ends_outputs_end_with_an_error(served: Any) -> None:
    counted = Counted()

    async def test(service: EngineService, peer: Peer) -> None:
        generation = await service.generate(dataclasses.replace(ORDER, choices=2), CALLER)
        first, second = [(await peer.next()).request for _ in range(2)]
        service.stop_accepting()
        with pytest.raises(UnavailableError):
            await service.generate(ORDER, CALLER)
        await peer.send(step(event(first, "a", "stop"), event(second, "b")))
        await settled()
        service.end_all(DeadlineError("a", "b", "c"))
        got = [(choice, e.finish_reason) async for choice, e in generation.events()]
        assert got == [(0, "stop"), (1, None), (1, "error")]
        assert await peer.next() == Cancel(request=second)
        await peer.send(step(event(second, "late", "cancelled")))
        await settled()
        assert service.active == 0
        assert counted.calls[-1][0] == "loaded"

    served(test, meter=counted)


def test_when_the_process_dies_outputs_end_with_an_error(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        generation = await service.generate(ORDER, CALLER)
        await peer.next()
        assert service.failure is None
        peer.close()
        [(_, last)] = [item async for item in generation.events()]
        assert last.finish_reason == "error"
        assert last.error is not None
        assert isinstance(service.failure, BackendError)
        with pytest.raises(BackendError):
            await service.generate(ORDER, CALLER)
        with pytest.raises(BackendError):
            await service.ask("observed", None)

    served(test)


def test_prompts_are_those_of_the_tokenizer(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        del peer
        for words in ("hello", "hello " * 400):
            expected = service.tokenizer.encode(words, parse_special=True)
            assert await service.prompt_ids(words) == expected
            bare = service.tokenizer.encode(words, add_special=False, parse_special=True)
            assert await service.prompt_ids(words, add_special=False) == bare
        assert await service.prompt_ids("x" * 3000)
        with pytest.raises(RequestError, match="at most 3000 characters"):
            await service.prompt_ids("x" * 3001)

    served(test, prompt_limit=3000)


def test_conversations_go_through_the_template(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        del peer
        said = [{"role": "user", "content": "hello"}]
        ids = await service.chat_ids(said)
        assert service.tokenizer.decode(ids, skip_special=True) == "<user>hello"
        ids = await service.chat_ids(said, variables={"mood": "glad"})
        assert service.tokenizer.decode(ids, skip_special=True) == "<user>helloglad"
        assert service.facts["chat_template"] == TEMPLATE
        for name in ("messages", "tools", "self"):
            with pytest.raises(OptionError, match=name):
                await service.chat_ids(said, variables={name: []})
        with pytest.raises(TemplateError):
            await service.chat_ids([{"role": "user"}])
        with pytest.raises(RequestError):
            await service.chat_ids([{"role": "user", "content": "x" * 5000}])
        most = 3000 - len("<user>")
        assert await service.chat_ids([{"role": "user", "content": "x" * most}])
        with pytest.raises(RequestError, match="at most 3000 characters"):
            await service.chat_ids([{"role": "user", "content": "x" * (most + 1)}])

    served(test, prompt_limit=3000)


def test_a_base_model_says_that_it_has_no_template(served: Any, base_text: ModelText) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        del peer
        for _ in range(2):
            with pytest.raises(TemplateError, match="base model"):
                await service.chat_ids([{"role": "user", "content": "hello"}])
        assert service.facts["chat_template"] == ""

    served(test, base_text)


DEFAULT = Speculation(methods=("suffix",), scope="session")


@pytest.mark.parametrize(
    ("asked", "methods"),
    [
        (None, ("suffix",)),
        (Speculation(), ("suffix",)),
        (Speculation(methods=()), ()),
        (Speculation(methods=("none",)), ()),
        (Speculation(methods=("auto",)), ("suffix",)),
        (Speculation(methods=("ngram-mod", "suffix")), ("suffix", "ngram-mod")),
    ],
)
def test_methods_in_effect(asked: Speculation | None, methods: tuple[str, ...]) -> None:
    chosen = in_effect(asked, DEFAULT, METHODS)
    assert chosen.methods == methods
    assert chosen.scope == "session"
    assert echo(chosen)["type"] == (",".join(methods) or "none")
    assert in_effect(chosen, DEFAULT, METHODS) == chosen


def test_a_method_that_is_not_offered_has_its_reason() -> None:
    with pytest.raises(OptionError, match="needs a draft model"):
        in_effect(Speculation(methods=("draft-simple",)), DEFAULT, METHODS)
    with pytest.raises(OptionError, match="Did you mean `suffix`"):
        in_effect(Speculation(methods=("sufix",)), DEFAULT, METHODS)


def test_limits_are_passed_on() -> None:
    asked = Speculation(n_max=4, n_min=2, p_min=0.5, scope="request")
    assert echo(in_effect(asked, DEFAULT, METHODS)) == {
        "type": "suffix",
        "n_max": 4,
        "n_min": 2,
        "p_min": 0.5,
        "scope": "request",
    }


def test_the_echo_has_what_the_methods_themselves_keep_to() -> None:
    methods = {
        "draft-simple": {"offered": True, "parameters": {"n_max": 3, "n_min": 1, "p_min": 0.3}},
        "suffix": {"offered": True, "parameters": {"suffix_n_max": 48, "suffix_p_min": 0.1}},
        "ngram-simple": {"offered": True, "parameters": {"ngram_simple_size_m": 12}},
        "mine": {"offered": True, "parameters": {}},
    }

    def told(*names: str, **limits: Any) -> tuple[Any, ...]:
        found = echo(Speculation(methods=names, **limits), methods)
        return found["n_max"], found["n_min"], found["p_min"]

    assert told("draft-simple") == (3, 1, 0.3)
    assert told("draft-simple", n_max=2, n_min=2, p_min=0.1) == (2, 2, 0.3)
    assert told("draft-simple", n_max=9, p_min=0.5) == (3, 1, 0.5)
    assert told("draft-simple", n_max=0) == (0, 1, 0.3)
    assert told("ngram-simple", "suffix", "draft-simple") == (48, 0, 0.0)
    assert told("mine", "suffix") == (None, 0, 0.0)
    assert told() == (None, 0, 0.0)


def test_what_is_not_to_be_reused_is_not_learned_either(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        held = []
        for reuse in (True, False):
            held.append(await service.generate(dataclasses.replace(ORDER, reuse=reuse), CALLER))
            frame = await peer.next()
            assert frame.reuse is reuse
            assert frame.speculation.scope == ("session" if reuse else "request")
            assert frame.session == CALLER.session
        for generation in held:
            generation.cancel()

    served(test)


def test_a_reader_that_is_far_behind_is_given_up(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.server.service.MOST_UNREAD", 10)

    async def test(service: EngineService, peer: Peer) -> None:
        slow = await service.generate(ORDER, CALLER)
        quick = await service.generate(ORDER, CALLER)
        first, second = [(await peer.next()).request for _ in range(2)]
        events = quick.events()
        for _ in range(4):
            await peer.send(step(event(first, "abc"), event(second, "abc")))
            await anext(events)
        assert await peer.next() == Cancel(request=first)
        await peer.send(step(event(first, "late"), event(second, "d", "stop")))
        assert (await anext(events))[1].finish_reason == "stop"
        got = [e async for _, e in slow.events()]
        assert len(got) == 5
        assert got[-1].error is not None
        assert got[-1].error.kind == "OverloadedError"

    served(test)


def test_what_cannot_become_a_prompt_is_not_rendered(served: Any) -> None:
    async def test(service: EngineService, peer: Peer) -> None:
        del peer
        said = [{"role": "user", "content": "hello"}]
        tools = [{"type": "function", "function": {"description": "x" * 90_000}}]
        with pytest.raises(RequestError, match="tools"):
            await service.chat_ids(said, tools=tools)
        assert await service.chat_ids(said, tools=tools[:0])

    served(test, prompt_limit=3000)
