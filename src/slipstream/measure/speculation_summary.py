"""Samples of speculation, summed up: speed, counts, acceptance, time by phase, identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from slipstream.engine.statistics import Round
from slipstream.measure.balance import Balance, summed, time_balance
from slipstream.measure.interleave import Timing
from slipstream.measure.speculation import PLAIN, Memory, Sample
from slipstream.measure.statistics import Drift, Ratio, drift, paired_ratio

FEWEST_PAIRS: Final = 6
"""Of fewer pairs the bootstrap of a median says little: no interval is shown."""


@dataclass(frozen=True)
class Position:
    """A place in the drafts, the first is 1; in a tree a depth.

    Attributes:
        reached: drafts of which a token was examined there: the denominator of acceptance.
        accepted: drafts accepted there.
    """

    position: int
    reached: int
    accepted: int


@dataclass(frozen=True)
class Phases:
    """Seconds after each first token, and the tokens they gave.

    Attributes:
        other_s: between the passes: events, text, scheduling.
    """

    tokens: int
    draft_s: float
    verify_s: float
    sample_s: float
    commit_s: float
    other_s: float


@dataclass(frozen=True)
class Summary:
    """One workload under one method.

    Attributes:
        memory: of the drafters; the plain samples have none.
        plain_tok_s, tok_s: decoded tokens / seconds, off and on, over the fit prompts.
        speed_up: over pairs of the same prompt and round, None when no prompt is fit.
        identical: whether every output equals the plain one.
        degenerate: prompt -> reason; left out of speeds and counts.
        drift_change: fitted last-to-first change of the plain time of a token over these samples,
            relative; 0 when there are too few.
        drifting: whether that change is beyond the noise.
        positions: acceptance by position.
        plain_phases, phases: where the time went, off and on.
        balance: cost and saving against the plain rounds, None when no prompt is fit.
    """

    name: str
    method: str
    memory: Memory
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
    positions: tuple[Position, ...]
    plain_phases: Phases
    phases: Phases
    balance: Balance | None


def acceptance(rounds: Sequence[Round]) -> tuple[Position, ...]:
    """Of every position that a draft reached."""
    deepest = max((r.reached for r in rounds), default=0)
    return tuple(
        Position(i + 1, sum(r.reached > i for r in rounds), sum(r.accepted > i for r in rounds))
        for i in range(deepest)
    )


def phases(samples: Sequence[Sample]) -> Phases:
    """The rounds of the prompts are left out, as in ``decode_s``."""
    rounds = [r for s in samples for r in s.rounds[1:]]
    draft_s = sum(r.draft_s for r in rounds)
    verify_s = sum(r.elapsed_s for r in rounds)
    sample_s = sum(r.sample_s for r in rounds)
    commit_s = sum(r.commit_s for r in rounds)
    known_s = draft_s + verify_s + sample_s + commit_s
    return Phases(
        tokens=sum(max(s.emitted - 1, 0) for s in samples),
        draft_s=draft_s,
        verify_s=verify_s,
        sample_s=sample_s,
        commit_s=commit_s,
        other_s=max(sum(s.decode_s for s in samples) - known_s, 0.0),
    )


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


def _balance(plain: Sequence[Sample], drafted: Sequence[Sample]) -> Balance | None:
    off = {(s.prompt, s.round): s.rounds for s in plain}
    made = [time_balance(s.rounds, off.get((s.prompt, s.round), ())) for s in drafted]
    return summed([balance for balance in made if balance is not None])


def summarise(
    name: str, method: str, samples: Sequence[Sample], memory: Memory = "cold"
) -> Summary:
    """One line of the table; degenerate prompts are named and left out of the figures."""
    plain = [s for s in samples if s.condition == PLAIN]
    drafted = [s for s in samples if s.condition == method and s.memory == memory]
    expected = {s.prompt: s.ids for s in plain}
    unfit = {s.prompt: s.degenerate for s in plain if s.degenerate is not None}
    fit_plain = [s for s in plain if s.prompt not in unfit]
    fit = [s for s in drafted if s.prompt not in unfit]
    passes = sum(s.target_passes for s in fit)
    change = _drift(fit_plain)
    return Summary(
        name=name,
        method=method,
        memory=memory,
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
        positions=acceptance([r for s in fit for r in s.rounds]),
        plain_phases=phases(fit_plain),
        phases=phases(fit),
        balance=_balance(fit_plain, fit),
    )


def by_workload(method: str, samples: Sequence[Sample], memory: Memory = "cold") -> list[Summary]:
    """A line per task, one per stratum of several tasks, and one of all."""
    tasks = {s.task: s.stratum for s in samples}
    lines = [
        summarise(task, method, [s for s in samples if s.task == task], memory) for task in tasks
    ]
    for stratum in dict.fromkeys(tasks.values()):
        members = [task for task, of in tasks.items() if of == stratum]
        if len(members) > 1:
            name = f"{stratum} (all)"
            lines.append(
                summarise(name, method, [s for s in samples if s.stratum == stratum], memory)
            )
    return [*lines, _whole(method, samples, memory, lines)]


def _whole(
    method: str, samples: Sequence[Sample], memory: Memory, lines: Sequence[Summary]
) -> Summary:
    """The summary of everything; it drifts if a workload does, for workloads differ anyway."""
    worst = max((s.drift_change for s in lines if s.drifting), key=abs, default=0.0)
    made = summarise("all", method, samples, memory)
    return replace(made, drift_change=worst, drifting=any(s.drifting for s in lines))


def by_prompt(method: str, samples: Sequence[Sample], memory: Memory = "cold") -> list[Summary]:
    """A line per prompt, in the order they ran."""
    return [
        summarise(prompt, method, [s for s in samples if s.prompt == prompt], memory)
        for prompt in dict.fromkeys(s.prompt for s in samples)
    ]


def record(summary: Summary) -> dict[str, Any]:
    """Plain values for JSON; of few pairs there is no interval, so none is passed on."""
    made = asdict(summary)
    ratio, balance = summary.speed_up, summary.balance
    if ratio is not None and ratio.pairs < FEWEST_PAIRS:
        made["speed_up"] |= {"low": None, "high": None}
    if balance is not None:
        made["balance"] = balance.to_mapping()
    return made
