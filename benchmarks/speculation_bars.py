"""The bars of speculation, once, and how the record of speculation.py is held against them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slipstream.measure.speculation_summary import FEWEST_PAIRS
from slipstream.measure.statistics import Ratio, paired_ratio

Record = Mapping[str, Any]

LEAST_MEDIAN, LEAST_LOW, MOST_BALANCE = 0.98, 0.95, 0.01
# (section, condition, against, task) -> (bar, stretch)
SPEED_UPS: Final = {
    ("never_slower", "auto", "none", "code_edit"): (2.5, None),
    ("never_slower", "auto", "none", "csv_to_json"): (1.6, 2.0),
    ("sets", "draft-simple", "none", "code"): (1.4, None),
}
TREES: Final = {
    "code_edit": 0.99,
    "csv_to_json": 0.99,
    "code": 0.99,
    "chat": 1.05,
    "reasoning": 1.05,
}
DUELS: Final = {
    ("code_edit", "llama"): 1.9,
    ("code_edit", "ik_llama"): 1.25,
    ("csv_to_json", "llama"): 1.4,
    ("csv_to_json", "ik_llama"): 1.15,
}


@dataclass(frozen=True)
class Outcome:
    """A bar and what was measured.

    Attributes:
        low, high: 95 % interval over the pairs; None of fewer than six.
        pairs: behind the figure; 0 = nothing was fit for it.
        note: what else a reader must know.
    """

    title: str
    wanted: str
    figure: float | None
    low: float | None
    high: float | None
    pairs: int
    met: bool | None
    note: str = ""

    def shown(self) -> str:
        if self.figure is None:
            return f"not measured ({self.wanted}){self._noted()}"
        verdict = {True: "met", False: "MISSED", None: "too few pairs to say"}[self.met]
        return f"{self.measured()} ({self.wanted}): {verdict}{self._noted()}"

    def measured(self) -> str:
        if self.figure is None:
            return "-"
        if self.low is None or self.high is None:
            return f"{self.figure:.3f}"
        return f"{self.figure:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def _noted(self) -> str:
        return f"; {self.note}" if self.note else ""

    def plain(self) -> dict[str, Any]:
        names = ("figure", "low", "high", "pairs", "met")
        return {name: getattr(self, name) for name in names}


def _outcome(title: str, ratio: Ratio | None, bar: float, note: str = "") -> Outcome:
    wanted = f">= {bar:.2f}"
    if ratio is None:
        return Outcome(title, wanted, None, None, None, 0, None, note)
    enough = ratio.pairs >= FEWEST_PAIRS
    low, high = (ratio.low, ratio.high) if enough else (None, None)
    met = ratio.median >= bar
    return Outcome(title, wanted, ratio.median, low, high, ratio.pairs, met, note)


def unfit(prompt: Record) -> str | None:
    """Why a prompt's outputs are left out of the figures: its plain one says so."""
    reasons = [s["degenerate"] for s in prompt["samples"] if s["condition"] == "none"]
    return next((str(reason) for reason in reasons if reason), None)


def ratio_of(prompts: Sequence[Record], condition: str, against: str) -> Ratio | None:
    """How many times faster a condition is than another, over pairs of prompt and round."""
    slow: list[float] = []
    fast: list[float] = []
    for prompt in prompts:
        by_round: dict[int, dict[str, float]] = {}
        for sample in prompt["samples"]:
            by_round.setdefault(sample["round"], {})[sample["condition"]] = sample["decode_s"]
        for seconds in by_round.values():
            if min(seconds.get(condition, 0), seconds.get(against, 0)) > 0:
                slow.append(seconds[against])
                fast.append(seconds[condition])
    return paired_ratio(slow, fast) if slow else None


def _of_task(section: Record, task: str) -> tuple[list[Record], str]:
    """Fit prompts of a task, and a note that names the others."""
    prompts = {k: p for k, p in section["prompts"].items() if p["task"] == task}
    left = {key: reason for key, p in prompts.items() if (reason := unfit(p))}
    note = ", ".join(f"left out {key} ({reason})" for key, reason in left.items())
    return [p for key, p in prompts.items() if key not in left], note


def _speed_ups(record: Record) -> Iterator[Outcome]:
    for (section, condition, against, task), (bar, stretch) in SPEED_UPS.items():
        if section in record:
            prompts, note = _of_task(record[section], task)
            title = f"{task}: {condition} / plain"
            reach = f"stretch {stretch}" if stretch else ""
            notes = "; ".join(part for part in (reach, note) if part)
            yield _outcome(title, ratio_of(prompts, condition, against), bar, notes)


def _trees(record: Record) -> Iterator[Outcome]:
    for task, bar in TREES.items():
        if "sets" in record:
            prompts, note = _of_task(record["sets"], task)
            ratio = ratio_of(prompts, "draft-simple", "draft-simple chain")
            yield _outcome(f"{task}: tree / chain", ratio, bar, note)


def _duels(record: Record) -> Iterator[Outcome]:
    for (task, peer), bar in DUELS.items():
        measured = record.get("duel", {}).get("tasks", {}).get(task)
        if measured is None:
            continue
        known = record.get("never_slower", {}).get("prompts", {})
        left = [k for k in measured["prompts"] if k in known and unfit(known[k])]
        rates = [r for k, r in measured["prompts"].items() if r.get(peer) and k not in left]
        own = [value for r in rates for value in r["slipstream"]]
        theirs = [value for r in rates for value in r[peer]]
        ratio = paired_ratio(own, theirs) if own else None
        best = measured["best"].get(peer)
        note = f"its best: {best}" if best else "none of its settings ran"
        note += "".join(f"; left out {key} (degenerate)" for key in left)
        yield _outcome(f"{task}: auto / {peer}'s best", ratio, bar, note)


def never_slower(key: str, prompt: Record) -> Outcome:
    """Median and lower bound of one prompt, and its time balance.

    A prompt whose output is degenerate is judged too: it must not be slower either.
    """
    ratio = ratio_of([prompt], "auto", "none")
    wanted = f"median >= {LEAST_MEDIAN}, low >= {LEAST_LOW}, balance <= {MOST_BALANCE:.0%}"
    title = f"never slower: {key}"
    if ratio is None:
        return Outcome(title, wanted, None, None, None, 0, None)
    balances = [s["balance"] for s in prompt["samples"] if s["condition"] == "auto"]
    known = [balance for balance in balances if balance is not None]
    balance = statistics.median(known) if known else None
    differs = any(s["identical"] is False for s in prompt["samples"])
    enough = ratio.pairs >= FEWEST_PAIRS
    met = (
        ratio.median >= LEAST_MEDIAN
        and ratio.low >= LEAST_LOW
        and balance is not None
        and balance <= MOST_BALANCE
        and not differs
    )
    note = "balance unknown" if balance is None else f"balance {100 * balance:+.1f} %"
    reason = unfit(prompt)
    note += f"; degenerate: {reason}" if reason else ""
    note += "; THE OUTPUT DIFFERS" if differs else ""
    low, high = (ratio.low, ratio.high) if enough else (None, None)
    return Outcome(
        title, wanted, ratio.median, low, high, ratio.pairs, met if enough else None, note
    )


def outcomes(record: Record) -> list[Outcome]:
    """Every bar that the record says something of.

    Args:
        record: sections by name.
    """
    slower = record.get("never_slower", {}).get("prompts", {})
    return [
        *_speed_ups(record),
        *_trees(record),
        *_duels(record),
        *(never_slower(key, prompt) for key, prompt in slower.items()),
    ]
