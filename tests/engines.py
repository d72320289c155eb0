"""Running requests through an engine over the fake program, to the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fake_program import FakeProgram, FakeTokenizer
from slipstream.drafters import create
from slipstream.drafters.base import Drafter
from slipstream.drafters.resources import Resources
from slipstream.engine.engine import Engine
from slipstream.engine.events import EmittedToken, Event
from slipstream.engine.sequence import Request
from slipstream.engine.statistics import Statistics
from slipstream.options import EngineOptions, SamplingOptions, SpeculationOptions
from slipstream.sampling import NumpyPrimitives, Primitives
from slipstream.verify.base import Verifier
from slipstream.verify.matching import Matching

if TYPE_CHECKING:
    from slipstream.tokenizer import Tokenizer


class Clock:
    """Advances by a millisecond at every reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@dataclass(frozen=True)
class Output:
    """All events of one request, joined."""

    tokens: tuple[EmittedToken, ...]
    text: str
    finish_reason: str
    stop: str | None
    statistics: Statistics

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    def visible(self) -> tuple[object, ...]:
        """What a user sees; it must not depend on the drafter."""
        logprobs = tuple((token.logprob, token.top) for token in self.tokens)
        texts = tuple(token.text for token in self.tokens)
        usage = (self.statistics.prompt_tokens, self.statistics.emitted)
        return (self.ids, self.text, texts, logprobs, usage, self.finish_reason, self.stop)


def drafters_of(drafter: Drafter | Sequence[Drafter] | None) -> tuple[Drafter, ...]:
    if drafter is None:
        return ()
    return tuple(drafter) if isinstance(drafter, Sequence) else (drafter,)


def fake_resources(vocabulary: int = 24) -> Resources:
    """For drafters that need no draft model."""
    return Resources(cast("Tokenizer", FakeTokenizer()), vocabulary, 256, 4)


def named_drafters(names: Sequence[str], options: SpeculationOptions) -> tuple[Drafter, ...]:
    return create(names, options, fake_resources())


def fake_engine(
    drafter: Drafter | Sequence[Drafter] | None = None,
    program: FakeProgram | None = None,
    tokenizer: FakeTokenizer | None = None,
    *,
    context: int = 256,
    parallel: int = 1,
    verifier: Verifier | None = None,
    primitives: Primitives | None = None,
    pace: float = 0.0,
    **keywords: Any,
) -> Engine:
    """A row of the fake program takes a millisecond, so prompts are not cut by pace here."""
    return Engine(
        program or FakeProgram(),
        tokenizer or FakeTokenizer(),
        drafters=drafters_of(drafter),
        verifier=verifier or Matching(),
        context=context,
        options=EngineOptions(parallel=parallel, pace=pace),
        clock=Clock(),
        primitives=primitives or NumpyPrimitives(),
        **keywords,
    )


def drain(engine: Engine, most_steps: int = 10_000) -> list[Event]:
    events: list[Event] = []
    for _ in range(most_steps):
        if not engine.busy:
            return events
        events += engine.step()
    raise AssertionError("the engine never came to rest")


def joined(events: Iterable[Event], request: int) -> Output:
    own = [event for event in events if event.request == request]
    last = own[-1]
    assert [event.finish_reason for event in own[:-1]] == [None] * (len(own) - 1)
    assert last.finish_reason is not None
    assert last.statistics is not None
    tokens = tuple(token for event in own for token in event.tokens)
    text = "".join(event.text for event in own)
    return Output(tokens, text, last.finish_reason, last.stop, last.statistics)


def run_all(
    engine: Engine, requests: Sequence[Request], cancel: Mapping[int, int] | None = None
) -> list[Output]:
    """One output per request, all submitted at once.

    Args:
        cancel: place of a request -> steps after which it is cancelled.
    """
    ids = [engine.submit(request) for request in requests]
    events: list[Event] = []
    for step in range(max((cancel or {}).values(), default=-1) + 1):
        for place, after in (cancel or {}).items():
            if after == step:
                engine.cancel(ids[place])
        events += engine.step()
    events += drain(engine)
    return [joined(events, identity) for identity in ids]


def run(engine: Engine, *prompts: Sequence[int], **sampling: Any) -> list[Output]:
    """One output per prompt, all submitted at once."""
    options = SamplingOptions(**{"seed": 1, **sampling})
    ids = [engine.submit(Request(prompt, options)) for prompt in prompts]
    events = drain(engine)
    return [joined(events, identity) for identity in ids]


def check_counts(output: Output) -> None:
    """The conservation laws of design.md section 4, against the tokens that were delivered."""
    s = output.statistics
    check_rounds(s)
    assert s.emitted == len(output.tokens)
    marks = [token.from_draft for token in output.tokens]
    expected = [i < r.accepted for r in s.rounds for i in range(r.emitted)]
    assert marks == expected


def check_rounds(s: Statistics) -> None:
    """The laws that need only the counts, each of which is recorded on its own."""
    assert s.drafted >= s.tested >= s.accepted >= 0
    assert s.accepted + s.target_passes == s.emitted + s.discarded
    assert s.verification_steps <= s.target_passes
    assert (s.acceptance_rate is None) == (s.drafted == 0)
    for r in s.rounds:
        assert r.sampled == r.accepted + 1 == r.emitted + r.discarded
        assert r.proposed >= r.drafted + r.cut_for_time
        assert r.proposed >= r.drafted >= r.tested >= r.accepted
        assert 0 <= r.reached - r.accepted <= 1
        assert 1 <= r.emitted <= r.accepted + 1
        assert r.discarded == 0 or r is s.rounds[-1]


def greedy(prompt: Sequence[int], count: int, program: FakeProgram | None = None) -> list[int]:
    """Greedy decoding, by hand."""
    program = program or FakeProgram()
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(program.logits(tokens))))
    return tokens[len(prompt) :]
