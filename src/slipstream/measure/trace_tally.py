"""Every count of a request again, from the trees and paths of its rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from slipstream.drafters.base import GRAMMAR
from slipstream.engine.trace_format import End, RoundRecord
from slipstream.errors import TraceError

MOST_REASONS = 1024
Memory = Literal["cold", "warm", "unknown"]
"""What a request started from; known from its end, which the trace of a killed run lacks."""


def examined(record: RoundRecord) -> list[list[int]]:
    """Per depth, the nodes that verification looked at; the accepted one, if any, is the last."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(record.parents):
        children.setdefault(parent, []).append(node)
    found, parent = [], -1
    for node in record.path:
        siblings = children[parent]
        found.append(siblings[: siblings.index(node) + 1])
        parent = node
    if record.rejected:
        found.append(children.get(parent, []))
    return found


def _least_tested(record: RoundRecord) -> int:
    return sum(map(len, examined(record)))


def _most_tested(record: RoundRecord) -> int:
    """A rule that draws an end token may have looked at the last children, or not."""
    leaf = record.path[-1] if record.path else -1
    unseen = 0 if record.rejected else record.parents.count(leaf)
    return _least_tested(record) + unseen


@dataclass
class DrafterTally:
    """What one drafter did.

    Attributes:
        asked: times.
        proposed, verified, accepted: nodes.
        seconds: of its calls; a call that served several sequences is shared among them.
        reached: depth -> drafts in which a node of its was examined there.
        accepted_at: depth -> drafts in which a node of its was accepted there.
    """

    asked: int = 0
    proposed: int = 0
    verified: int = 0
    accepted: int = 0
    seconds: float = 0.0
    reached: Counter[int] = field(default_factory=Counter)
    accepted_at: Counter[int] = field(default_factory=Counter)

    def add(self, name: str, record: RoundRecord, looked: Sequence[Sequence[int]]) -> None:
        for asked in record.asked:
            if asked.method == name:
                self.asked += 1
                self.proposed += len(asked.tokens)
                self.seconds += asked.seconds / asked.shared
        self.verified += record.methods.count(name)
        self.accepted += sum(record.methods[node] == name for node in record.path)
        for depth, nodes in enumerate(looked):
            if any(record.methods[node] == name for node in nodes):
                self.reached[depth] += 1
        for depth, node in enumerate(record.path):
            if record.methods[node] == name:
                self.accepted_at[depth] += 1

    def merge(self, other: DrafterTally) -> None:
        for name in ("asked", "proposed", "verified", "accepted", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reached.update(other.reached)
        self.accepted_at.update(other.accepted_at)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON; ``by_position``: [accepted, reached] per depth."""
        return {
            "asked": self.asked,
            "proposed": self.proposed,
            "verified": self.verified,
            "accepted": self.accepted,
            "seconds": self.seconds,
            "by_position": [
                [self.accepted_at[depth], self.reached[depth]] for depth in sorted(self.reached)
            ],
        }


@dataclass
class RequestTally:
    """One request, from its rounds.

    Attributes:
        engine, sequence: see ``RoundRecord``.
        drafters: at work for it: those of its engine, or what its rounds say that it chose.
        seconds: by phase: draft, verify, sample, commit; of passes that it may have shared.
        tallies: drafter -> what it did for this request.
        faults: what the rounds themselves contradict.
        end: its last record, or None where the trace lacks it.
    """

    engine: int
    sequence: int
    drafters: tuple[str, ...]
    rounds: int = 0
    verification_steps: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    emitted: int = 0
    discarded: int = 0
    cut_for_time: int = 0
    context: int | None = None
    prompt_tokens: int | None = None
    reached: Counter[int] = field(default_factory=Counter)
    accepted_at: Counter[int] = field(default_factory=Counter)
    fired: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    tallies: dict[str, DrafterTally] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    end: End | None = None

    def add(self, record: RoundRecord) -> None:
        self.rounds += 1
        self._chose(record.drafters)
        self.verification_steps += bool(record.tokens)
        self.drafted += len(record.tokens)
        self.accepted += len(record.path)
        self.emitted += record.emitted
        self.discarded += len(record.sampled) - record.emitted
        self.cut_for_time += record.cut_for_time
        self.reached.update(range(len(record.path) + record.rejected))
        self.accepted_at.update(range(len(record.path)))
        self.asked.update(asked.method for asked in record.asked)
        self.fired.update(asked.method for asked in record.asked if asked.tokens)
        self.reasons.update(record.reasons)
        if len(self.reasons) > MOST_REASONS:
            found = f"more than {MOST_REASONS} reasons of one request"
            raise TraceError("a trace of an engine", found, "Trace again.")
        for phase in ("draft", "verify", "sample", "commit"):
            self.seconds[phase] += getattr(record, f"{phase}_s")
        self._add_tested(record)
        count_drafters(self.tallies, record)
        self._follow(record)

    def close(self, end: End) -> None:
        """The request is over."""
        self._chose(end.drafters)
        self.end = end

    def _chose(self, drafters: Sequence[str] | UnsetType) -> None:
        """It may have chosen some of its engine's drafters."""
        if drafters is not UNSET and len(drafters) < len(self.drafters):
            self.drafters = tuple(name for name in self.drafters if name in drafters)

    @property
    def memory(self) -> Memory:
        warm = None if self.end is None else self.end.summary.get("warm")
        return "warm" if warm is True else "cold" if warm is False else "unknown"

    def _add_tested(self, record: RoundRecord) -> None:
        least, most = _least_tested(record), _most_tested(record)
        agrees = record.tested in (least, most)
        self.tested += record.tested if agrees else most
        if not agrees:
            self._fault(f"tested {record.tested} where the tree says {most}")

    def _follow(self, record: RoundRecord) -> None:
        """Positions: each round starts where the one before it ended."""
        if record.prompt:
            return
        if self.prompt_tokens is None:
            self.prompt_tokens = record.context
        elif self.context != record.context:
            self._fault(f"context {record.context} where the rounds before say {self.context}")
        self.context = record.context + len(record.path) + 1

    def _fault(self, text: str) -> None:
        if len(self.faults) < 8:
            self.faults.append(f"round {self.rounds}: {text}")

    def recomputed(self) -> dict[str, Any]:
        """Every statistic that rounds determine, by its name in the summary."""
        steps, passes = self.verification_steps, self.rounds
        found: dict[str, Any] = {
            "emitted": self.emitted,
            "target_passes": passes,
            "verification_steps": steps,
            "drafted": self.drafted,
            "tested": self.tested,
            "accepted": self.accepted,
            "discarded": self.discarded,
            "acceptance_rate": self.accepted / self.drafted if self.drafted else None,
            "tokens_per_pass": self.emitted / passes if passes else None,
            "mean_acceptance_length": 1 + self.accepted / steps if steps else None,
            "acceptance_at": [
                self.accepted_at[depth] / self.reached[depth] for depth in sorted(self.reached)
            ],
            "drafters": list(self.drafters),
            "never_fired": self._without(self.fired),
            "never_asked": self._without(self.asked),
            "cut_for_time": self.cut_for_time,
        }
        if self.prompt_tokens is not None:
            found["prompt_tokens"] = self.prompt_tokens
        if self.end is not None:
            found["rejected_drafts"] = dict(self.reasons + Counter(self.end.reasons))
            found["decode_tok_s"] = _rate(self.emitted, self.end.summary)
        return found

    def _without(self, active: set[str]) -> list[str]:
        """The drafters that were not active; a grammar need not be."""
        return [name for name in self.drafters if name not in active and name != GRAMMAR]

    def differences(self) -> list[str]:
        """Where the recorded summary is not what the rounds say; empty where there is none."""
        if self.end is None:
            return list(self.faults)
        summary = self.end.summary
        differing = [
            f"{name}: recorded {summary.get(name)!r:.60}, recomputed {value!r:.60}"
            for name, value in self.recomputed().items()
            if name not in summary or not _equal(summary[name], value)
        ]
        return self.faults + differing


def _rate(emitted: int, summary: Mapping[str, Any]) -> float | None:
    """Tokens after the first per second since the first, from the recorded times."""
    first, total = summary.get("ttft_s"), summary.get("total_s")
    if not isinstance(first, float) or not isinstance(total, float) or emitted < 2:
        return None
    return (emitted - 1) / (total - first) if total > first else None


def _equal(recorded: Any, value: Any) -> bool:
    if isinstance(value, float) and isinstance(recorded, int | float):
        return math.isclose(recorded, value, rel_tol=1e-6)
    if isinstance(value, list) and isinstance(recorded, list | tuple):
        return len(value) == len(recorded) and all(map(_equal, recorded, value))
    return bool(recorded == value) and isinstance(recorded, bool) == isinstance(value, bool)


def count_drafters(tallies: dict[str, DrafterTally], record: RoundRecord) -> None:
    """Count a round for every drafter that was asked or has nodes in it."""
    looked = examined(record)
    for name in dict.fromkeys((*(asked.method for asked in record.asked), *record.methods)):
        tallies.setdefault(name, DrafterTally()).add(name, record, looked)
