"""Speculation off and on over the same prompts, in turns: one sample per output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slipstream.api import Completion, Model
from slipstream.engine.statistics import Round
from slipstream.errors import TemplateError
from slipstream.measure.degenerate import degenerate_reason
from slipstream.measure.interleave import mirrored_order
from slipstream.measure.workload import WorkloadPrompt

PLAIN = "none"
Memory = Literal["cold", "warm"]


@dataclass(frozen=True)
class Sample:
    """One generation of one prompt under one condition.

    Attributes:
        condition: ``none`` or the method.
        decode_s: seconds from the first token to the last.
        degenerate: why the output is unfit for a figure, or None.
        start_s: when it began, on any clock that runs evenly.
        memory: ``cold`` = drafters knew this prompt alone; ``warm`` = the same request had run
            before in the session.
        stratum, task: of the prompt.
        rounds: of its statistics.
    """

    prompt: str
    condition: str
    round: int
    ids: tuple[int, ...]
    decode_s: float
    drafted: int
    tested: int
    accepted: int
    target_passes: int
    degenerate: str | None
    start_s: float = 0.0
    memory: Memory = "cold"
    stratum: str = ""
    task: str = ""
    rounds: tuple[Round, ...] = ()

    @property
    def emitted(self) -> int:
        return len(self.ids)


def prompt_ids(model: Model, prompt: WorkloadPrompt) -> list[int]:
    """By the model's template; a base model gets the text of the messages."""
    try:
        return model.chat_ids(prompt.chat_messages())
    except TemplateError:
        return model.tokenizer.encode("\n\n".join(m.content for m in prompt.messages))


def take_sample(
    model: Model,
    prompt: WorkloadPrompt,
    condition: str,
    number: int,
    options: Mapping[str, Any],
    memory: Memory = "cold",
) -> Sample:
    """Generate once.

    Args:
        number: of the round.
        options: of ``Model.complete``.
    """
    ids = prompt_ids(model, prompt)
    begin = time.perf_counter()
    done = model.complete(ids, **options)
    s = done.statistics
    return Sample(
        prompt=prompt.id,
        condition=condition,
        round=number,
        ids=done.ids,
        decode_s=_decode_s(done),
        drafted=s.drafted,
        tested=s.tested,
        accepted=s.accepted,
        target_passes=s.target_passes,
        degenerate=degenerate_reason(done.text, done.ids),
        start_s=begin,
        memory=memory,
        stratum=prompt.stratum,
        task=prompt.task,
        rounds=tuple(s.rounds),
    )


def _decode_s(done: Completion) -> float:
    first, last = done.statistics.first_token_s, done.statistics.finished_s
    return last - first if first is not None and last is not None else 0.0


def warm_up(model: Model, prompt: WorkloadPrompt, tokens: int = 8) -> None:
    """Generate a little and forget it, so that the first sample pays for no first touch."""
    model.complete(prompt_ids(model, prompt), max_tokens=tokens, type=(PLAIN,))
    model.forget()


def run_pairs(
    model: Model,
    prompts: Sequence[WorkloadPrompt],
    conditions: Mapping[str, Mapping[str, Any]],
    *,
    rounds: int,
    max_tokens: int | None,
    reset: Callable[[], object],
    warm: bool = False,
) -> Iterator[Sample]:
    """Every prompt under every condition, in mirrored order; drafter memory is reset in between.

    Args:
        conditions: name -> options of ``Model.complete``.
        max_tokens: bound on each prompt's own limit.
        reset: forgets what drafters learned, so that every first sample is cold.
        warm: repeat the request of each condition but ``none`` before the next reset.
    """
    for place, prompt in enumerate(prompts):
        limit = min(prompt.max_tokens, max_tokens or prompt.max_tokens)
        names = list(conditions)
        if place % 2 and rounds % 2:
            names.reverse()  # go on where the last prompt's order left off: A B B A over prompts
        for number, name in mirrored_order(names, rounds):
            reset()
            options = {**conditions[name], "max_tokens": limit}
            yield take_sample(model, prompt, name, number, options)
            if warm and name != PLAIN:
                yield take_sample(model, prompt, name, number, options, "warm")
