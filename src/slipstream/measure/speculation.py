"""Speculation off and on over the same prompts: speed, counts and equality of the output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.api import Completion, Model
from slipstream.errors import OptionError, TemplateError
from slipstream.measure.degenerate import degenerate_reason
from slipstream.measure.interleave import Timing, mirrored_order
from slipstream.measure.statistics import Drift, Ratio, drift, paired_ratio
from slipstream.measure.workload import WorkloadPrompt

PLAIN = "none"


@dataclass(frozen=True)
class Sample:
    """One generation of one prompt under one condition.

    Attributes:
        condition: ``none`` or the method.
        decode_s: seconds from the first token to the last.
        degenerate: why the output is unfit for a figure, or None.
        start_s: when it began, on any clock that runs evenly.
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

    @property
    def emitted(self) -> int:
        return len(self.ids)


def _complete(model: Model, prompt: WorkloadPrompt, **options: Any) -> Completion:
    """By the model's template; a base model gets the text of the messages."""
    try:
        ids = model.chat_ids(prompt.chat_messages())
    except TemplateError:
        ids = model.tokenizer.encode("\n\n".join(m.content for m in prompt.messages))
    return model.complete(ids, **options)


def _sample(
    model: Model, prompt: WorkloadPrompt, name: str, number: int, options: Mapping[str, Any]
) -> Sample:
    begin = time.perf_counter()
    done = _complete(model, prompt, **options)
    s = done.statistics
    if not s.output_valid:
        raise OptionError("valid output, to compare", f"`{s.verification}`", "Leave out `synth_*`.")
    first, last = s.first_token_s, s.finished_s
    elapsed = last - first if first is not None and last is not None else 0.0
    return Sample(
        prompt=prompt.id,
        condition=name,
        round=number,
        ids=done.ids,
        decode_s=elapsed,
        drafted=s.drafted,
        tested=s.tested,
        accepted=s.accepted,
        target_passes=s.target_passes,
        degenerate=degenerate_reason(done.text, done.ids),
        start_s=begin,
    )


def warm_up(model: Model, prompt: WorkloadPrompt, tokens: int = 8) -> None:
    """Generate a little and forget it, so that the first sample pays for no first touch."""
    _complete(model, prompt, max_tokens=tokens, type=(PLAIN,))
    model.forget()


def run_pairs(
    model: Model,
    prompts: Sequence[WorkloadPrompt],
    conditions: Mapping[str, Mapping[str, Any]],
    *,
    rounds: int,
    max_tokens: int | None,
    reset: Callable[[], object],
) -> Iterator[Sample]:
    """Every prompt under every condition, in mirrored order; drafter memory is reset in between.

    Args:
        conditions: name -> options of ``Model.complete``.
        max_tokens: bound on each prompt's own limit.
        reset: forgets what drafters learned, so that every sample is cold.
    """
    for place, prompt in enumerate(prompts):
        limit = min(prompt.max_tokens, max_tokens or prompt.max_tokens)
        names = list(conditions)
        if place % 2 and rounds % 2:
            names.reverse()  # go on where the last prompt's order left off: A B B A over prompts
        for number, name in mirrored_order(names, rounds):
            reset()
            options = {**conditions[name], "max_tokens": limit}
            yield _sample(model, prompt, name, number, options)


@dataclass(frozen=True)
class Summary:
    """One stratum under one method.

    Attributes:
        plain_tok_s, tok_s: decoded tokens / seconds, off and on, over the fit prompts.
        speed_up: per-prompt paired ratio, None when no prompt is fit.
        identical: whether every output equals the plain one.
        degenerate: prompt -> reason; left out of speeds and counts.
        drift_change: fitted last-to-first change of the plain time of a token over these samples,
            relative; 0 when there are too few.
        drifting: whether that change is beyond the noise.
    """

    name: str
    method: str
    prompts: int
    plain_tok_s: float | None
    tok_s: float | None
    speed_up: Ratio | None
    drafted: int
    accepted: int
    tokens_per_pass: float | None
    identical: bool
    degenerate: Mapping[str, str]
    drift_change: float
    drifting: bool


def _drift(plain: Sequence[Sample]) -> Drift:
    """Of the seconds per token without drafts; what remains between prompts counts as noise."""
    timings = [
        Timing(s.condition, s.round, s.start_s, s.decode_s / (s.emitted - 1))
        for s in plain
        if s.emitted > 1
    ]
    return drift(timings)


def _rate(samples: Sequence[Sample]) -> float | None:
    """Tokens after the first of each sample, over the seconds they took."""
    seconds = sum(s.decode_s for s in samples)
    return sum(s.emitted - 1 for s in samples) / seconds if seconds > 0 else None


def _paired(plain: Sequence[Sample], drafted: Sequence[Sample]) -> Ratio | None:
    off = {(s.prompt, s.round): s.decode_s for s in plain if s.decode_s > 0}
    on = {(s.prompt, s.round): s.decode_s for s in drafted if s.decode_s > 0}
    keys = sorted(off.keys() & on.keys())
    return paired_ratio([off[k] for k in keys], [on[k] for k in keys]) if keys else None


def summarise(name: str, method: str, samples: Sequence[Sample]) -> Summary:
    """One line of the table; degenerate prompts are named and left out of the figures."""
    plain = [s for s in samples if s.condition == PLAIN]
    drafted = [s for s in samples if s.condition == method]
    expected = {s.prompt: s.ids for s in plain}
    unfit = {s.prompt: s.degenerate for s in plain if s.degenerate is not None}
    fit_plain = [s for s in plain if s.prompt not in unfit]
    fit = [s for s in drafted if s.prompt not in unfit]
    passes = sum(s.target_passes for s in fit)
    change = _drift(fit_plain)
    return Summary(
        name=name,
        method=method,
        prompts=len(expected),
        plain_tok_s=_rate(fit_plain),
        tok_s=_rate(fit),
        speed_up=_paired(fit_plain, fit),
        drafted=sum(s.drafted for s in fit),
        accepted=sum(s.accepted for s in fit),
        tokens_per_pass=sum(s.emitted for s in fit) / passes if passes else None,
        identical=all(s.ids == expected[s.prompt] for s in drafted + plain),
        degenerate=unfit,
        drift_change=change.change,
        drifting=change.drifting,
    )
