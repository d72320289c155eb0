"""The least and the most that each number of a plan may be, and why: one table."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from slipstream.lab.contract.plan import Plan
from slipstream.lab.planning.plan_faults import Fault
from slipstream.lab.planning.plan_lines import Place

MOST_PROMPTS: Final = 4096
MOST_REPEATS: Final = 2000
"""As ``noise.MOST_PAIRS``: a margin that needs more pairs cannot be shown."""
MOST_ROWS: Final = 65536
"""Of one step: as ``EngineOptions.prefill_chunk``."""
DAY_S: Final = 86_400


class Range(NamedTuple):
    """
    Attributes:
        name: where it stands, as attributes of ``Plan``.
        why: the reason for both ends, as a remedy.
    """

    name: str
    least: float
    most: float
    why: str


RANGES: Final = (
    Range("prompts", 1, MOST_PROMPTS, "A workload keeps no more prompts."),
    Range("threads", 0, 4096, "0 is each program's own choice; no machine has more cores."),
    Range("context", 1, 1 << 24, "Positions per slot; no model is trained for more."),
    Range("sampling.max_tokens", 1, 1 << 20, "Tokens of one answer."),
    Range("sampling.seed", 0, 1 << 52, "JSON holds no larger seed exactly."),
    Range("arrivals.slots", 1, 1024, "Requests at a time; a server has no more slots."),
    Range("arrivals.rate_per_s", 0, 10_000, "Requests per second; one client sends no more."),
    Range("rules.tolerance_logit_gap", 0, 100, "A difference of two logits."),
    Range("rules.margin", 0, 100, "A speed-up minus 1; drafting gains no hundredfold."),
    Range("rules.slo_total_s", 0, DAY_S, "Seconds of one answer; 0 = no limit."),
    Range("rules.slo_tok_s", 0, 1_000_000, "Tokens per second of one answer; 0 = no limit."),
    Range("rules.slo_ttft_s", 0, DAY_S, "Seconds to the first token; 0 = no limit."),
    Range("rules.memory_margin_bytes", 0, 1 << 50, "Bytes; no machine has more memory."),
    Range("rules.timeout_s", 0.001, DAY_S, "Seconds of one request; a day is the most."),
    Range("rules.repeats", 1, MOST_REPEATS, "What needs more repeats cannot be shown."),
    Range("rules.warm_up", 1, 100, "Requests that warm a process; more change nothing."),
    Range("rules.drift_limit", 0.0001, 100, "A share: 0.2 repeats what changed by 20 %."),
    Range("rules.budget_s", 0, 366 * DAY_S, "Seconds of a run, at most a year; 0 = no limit."),
    Range("rules.confidence", 0.5, 0.9999, "0.95 is usual; certainty has no interval."),
)
_LEAST_RATE: Final = 0.0001
_SHARES: Final = (1e-6, 1e6)


def range_faults(plan: Plan) -> Iterator[Fault]:
    """Numbers beyond sense, in the order of the table."""
    for name, least, most, why in RANGES:
        value = attrgetter(name)(plan)
        if not least <= value <= most:
            expected = f"to be from {_number(least)} to {_number(most)}"
            yield Fault(tuple(name.split(".")), expected, _number(value), why)
    yield from _rate(plan)
    for name, share in plan.arrivals.mix.items():
        if share != 0 and not _SHARES[0] <= share <= _SHARES[1]:
            expected = f"to be 0, or a share from {_SHARES[0]:g} to {_SHARES[1]:g}"
            why = "Shares are weighed against one another: 3 and 1 do."
            yield Fault(("arrivals", "mix", name), expected, _number(share), why)
    yield from _rows(plan)


def _rate(plan: Plan) -> Iterator[Fault]:
    rate = plan.arrivals.rate_per_s
    if plan.arrivals.kind == "poisson" and 0 < rate < _LEAST_RATE:
        expected = f"to be from {_LEAST_RATE:g}"
        why = "Requests per second; at a lower rate a run takes weeks."
        yield Fault(("arrivals", "rate_per_s"), expected, _number(rate), why)


def _rows(plan: Plan) -> Iterator[Fault]:
    ranges: list[tuple[Place, tuple[int, int]]] = [(("rules", "rows_range"), plan.rules.rows_range)]
    ranges += [
        (("conditions", i, "rows_range"), c.rows_range) for i, c in enumerate(plan.conditions)
    ]
    for where, (low, high) in ranges:
        found = f"[{_number(low)}, {_number(high)}]"
        if max(low, high) > MOST_ROWS:
            why = "A step has no more rows; a most of 0 is any."
            yield Fault(where, f"to be rows of a step, at most {MOST_ROWS}", found, why)
        elif not (0 <= low <= high or (low > 0 and high == 0)):
            expected = "to be the least and the most rows of a step (a most of 0 = any)"
            yield Fault(where, expected, found, "Swap them?")


def _number(value: float) -> str:
    """Whole numbers as they are written, unless they are absurd."""
    whole = isinstance(value, int) or value.is_integer()
    return f"{int(value)}" if whole and abs(value) < 1e15 else f"{value!r:.40}"
