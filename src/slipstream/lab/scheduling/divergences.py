"""Where outputs leave those of ``none``, and why, as far as the records tell; pure functions.

A verification computes a position as one of several rows, plain decoding as a single row, and
kernels may round the two differently. A row probe (a request of a ``paths`` block) has ``none``
compute the place among the many rows of a prompt: if it gives the other output's token there, the
row count alone makes the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import Line, OutputCause, RequestRecord, RowProbe
from slipstream.lab.evidence.output_verdict import DIVERGED, EXPLAINED, cause
from slipstream.lab.evidence.store import counted
from slipstream.lab.scheduling.schedule import NONE, PATHS, Block

_JUDGED: Final = ("greedy", "trial")
"""Stages whose outputs must be those of ``none``."""
_DOUBTS: Final = ("reused-prompt: ", "flag-ignored: ", "counts-disagree: ")
"""What a server says of a probe that makes it another request than the one that was sent."""


@dataclass(frozen=True)
class Place:
    """A divergence that a probe can be asked about: both outputs go on, with other tokens.

    Attributes:
        baseline: file of the output of ``none``; it and the other have ``at`` tokens in common.
        tokens: of ``none`` and of the other output there.
    """

    runtime: str
    prompt: str
    baseline: str
    at: int
    tokens: tuple[int, int]


def place_of(record: RequestRecord) -> Place | None:
    """Of a record that diverged; None = it did not, or there is no token to ask for."""
    where = record.divergence
    if record.verdict != DIVERGED or where is None or not where.baseline or where.tokens is None:
        return None
    return Place(record.runtime, record.prompt, where.baseline, where.at, where.tokens)


def open_places(planned: Iterable[Block], lines: Sequence[Line], block: Block) -> tuple[Place, ...]:
    """What a ``paths`` block asks, each place once, in the order of the records.

    Those of its runtime that no near-tie explains and that came up after the ``paths`` block
    before it: only blocks before this one decide, so a resumed run asks the same.

    Args:
        planned: every block of the manifest.
        lines: without aborted attempts.
    """
    earlier = [b.number for b in planned if (b.kind, b.runtime) == (PATHS, block.runtime)]
    before = max((n for n in earlier if n < block.number), default=-1)
    wanted: dict[Place, None] = {}
    known: set[Place] = set()
    for x in lines:
        if not isinstance(x, RequestRecord) or x.runtime != block.runtime:
            continue
        place = place_of(x) if x.block < block.number and _unexplained(x) else None
        if place is not None:
            wanted[place] = None
            known |= {place} if x.block < before else set()
    return tuple(place for place in wanted if place not in known)


def _unexplained(record: RequestRecord) -> bool:
    where, judged = record.divergence, record.condition != NONE and record.stage in _JUDGED
    return judged and where is not None and where.cause not in EXPLAINED


def equal_at_same_rows(probe: RequestRecord) -> bool | None:
    """Whether ``none`` gave the other's token among many rows, or its own; None = neither."""
    asked = probe.row_probe
    if asked is None or probe.error or _doubt(probe):
        return None
    none, other = asked.tokens
    told: dict[int | None, bool] = {none: False, other: True}
    return told.get(asked.given)


def _doubt(probe: RequestRecord) -> str:
    return next((text for text in probe.diagnostics if text.startswith(_DOUBTS)), "")


class Causes:
    """Why outputs of a run part, with what its row probes told.

    Args:
        lines: of ``records.jsonl``; aborted attempts are left out here.
    """

    def __init__(self, manifest: Manifest, lines: Sequence[Line]) -> None:
        self._plan = manifest.plan
        self._probes: dict[Place, RequestRecord] = {}
        for x in counted(lines):
            if isinstance(x, RequestRecord) and x.row_probe is not None:
                self._probes.setdefault(_place_asked(x, x.row_probe), x)

    def probe(self, record: RequestRecord) -> RequestRecord | None:
        """The probe of a divergence; None = there was none."""
        place = place_of(record)
        return None if place is None else self._probes.get(place)

    def cause(self, record: RequestRecord) -> OutputCause:
        """As it was recorded; where a probe told more, or only the gap was known, by those."""
        where = record.divergence
        if where is None:
            return "unknown"
        probe = self.probe(record)
        equal = None if probe is None else equal_at_same_rows(probe)
        settled = where.cause in EXPLAINED or (where.cause == "defect" and not equal)
        if settled:
            return where.cause
        return cause(where.gap, self._plan.rules.tolerance_logit_gap, equal_at_same_rows=equal)

    def explained(self, record: RequestRecord) -> bool:
        """Whether rounding accounts for it, so that what is left to judge is the task."""
        return self.cause(record) in EXPLAINED

    def told(self, record: RequestRecord) -> str:
        """The cause, and the probe behind it where there was one."""
        named, probe = self.cause(record), self.probe(record)
        return named if probe is None else f"{named} (block {probe.block}: {_answer(probe)})"

    def shown_by(self, record: RequestRecord) -> str:
        """How the cause was established, or why it could not be."""
        if self.cause(record) == "near-tie":
            return f"a gap below {self._plan.rules.tolerance_logit_gap:g}"
        probe = self.probe(record)
        return f"block {probe.block}: {_answer(probe)}" if probe else self._unasked(record)

    def _unasked(self, record: RequestRecord) -> str:
        where, runtime = record.divergence, self._plan.runtimes.get(record.runtime)
        if self._plan.rules.comparison != "ids":
            return "no row probe: texts are compared"
        if runtime is not None and runtime.kind == "openai":
            return "no row probe: a server at a URL is sent messages, not tokens"
        if where is None or not where.baseline:
            return "no row probe: its tokens are not recorded"
        if where.tokens is None:
            return "no row probe: one output ends there"
        return "no row probe has been answered"


def _place_asked(record: RequestRecord, asked: RowProbe) -> Place:
    return Place(record.runtime, record.prompt, asked.baseline, asked.at, asked.tokens)


def _answer(probe: RequestRecord) -> str:
    """What a probe told, in words."""
    rows = f"{probe.prompt_tokens} rows" if probe.prompt_tokens else "the rows of a prompt"
    equal = equal_at_same_rows(probe)
    if equal is not None:
        return f"among {rows} none gives {'this token too' if equal else 'its own token again'}"
    if probe.error:
        return f"the row probe failed, {probe.error:.120}"
    if doubt := _doubt(probe):
        return f"the row probe tells nothing, {doubt:.120}"
    return f"among {rows} none gives neither token"
