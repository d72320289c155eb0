"""What a reader must know beside the figures: findings by name, each a pure detector over records.

Some only the run can see (a router, a wrong model, a flag that the program does not have): it
records them, and so does anything that notes ``NAME: text`` in a request's diagnostics or a block's
log findings. The others are found here, from records alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal

from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import FindingRecord, Line
from slipstream.lab.judging import clock_findings, draft_findings, service_findings
from slipstream.lab.judging.cells import Evidence

Effect = Literal["reject", "inconclusive", "not run", "note"]
Detector = Callable[[Evidence], Iterator[FindingRecord]]

CHANGED: Final = "records-changed"
"""Of ``kept_run``: blocks whose records are not those that were written; no verdict stands."""
UNTIED: Final = "not-tied"
"""Of ``kept_run``: records that do not tell the digest of their manifest."""

EFFECTS: Final[Mapping[str, Effect]] = MappingProxyType(
    {
        CHANGED: "inconclusive",
        UNTIED: "note",
        "never-fired": "reject",
        "drafter-is-noise": "reject",
        "flag-ignored": "inconclusive",
        "flag-unknown": "not run",
        "counts-disagree": "inconclusive",
        "counters-reset": "inconclusive",
        "stalled": "inconclusive",
        "diverged": "note",
        "crashed": "reject",
        "router": "not run",
        "wrong-model": "not run",
        "drifted": "note",
        "rows-left-range": "reject",
        "shared-pool": "note",
        "degenerate-output": "note",
        "path-unknown": "note",
        "identity-changed": "reject",
        "late-arrivals": "note",
        "device-unknown": "not run",
        "layout-unknown": "not run",
        "outputs-differ": "inconclusive",
        "reused-prompt": "note",
        "refused": "not run",
        "log-cut": "note",
        "clock-disagrees": "note",
    }
)
"""Name -> what it makes of a verdict; of a ``note`` the gates decide (output, time, isolation)."""

NAMES: Final = tuple(EFFECTS)

DETECTORS: Final[Mapping[str, Detector]] = MappingProxyType(
    {
        "never-fired": draft_findings.never_fired,
        "drafter-is-noise": draft_findings.drafter_is_noise,
        "flag-ignored": draft_findings.flag_ignored,
        "flag-unknown": draft_findings.flag_unknown,
        "counts-disagree": draft_findings.counts_disagree,
        "counters-reset": draft_findings.counters_reset,
        "clock-disagrees": clock_findings.clock_disagrees,
        "rows-left-range": draft_findings.rows_left_range,
        "shared-pool": draft_findings.shared_pool,
        "stalled": service_findings.stalled,
        "diverged": service_findings.diverged,
        "crashed": service_findings.crashed,
        "refused": service_findings.refused,
        "drifted": service_findings.drifted,
        "degenerate-output": service_findings.degenerate_output,
        "path-unknown": service_findings.path_unknown,
    }
)


def noted(evidence: Evidence) -> Iterator[FindingRecord]:
    """What requests and blocks carry as ``NAME: text``."""
    for cell in evidence.cells:
        for block in evidence.attempts(cell):
            told = (d for r in block.requests for d in r.diagnostics)
            for text in (*block.record.log_findings, *told):
                name, colon, rest = text.partition(": ")
                if colon and name in EFFECTS:
                    yield service_findings.finding(evidence, cell, name, rest[:400])


def detect(evidence: Evidence) -> tuple[FindingRecord, ...]:
    """Every finding, what the run recorded first; in the order of ``NAMES``, none twice.

    A finding that the run recorded for the same scope is not made again.
    """
    found = list(evidence.recorded)
    recorded = {(f.name, f.runtime, f.condition, f.stratum) for f in found}
    for made in (noted(evidence), *(detector(evidence) for detector in DETECTORS.values())):
        found += [f for f in made if (f.name, f.runtime, f.condition, f.stratum) not in recorded]
    rank = {name: number for number, name in enumerate(NAMES)}
    distinct = {_scope(f): f for f in reversed(found)}
    return tuple(sorted(distinct.values(), key=lambda f: rank.get(f.name, len(rank))))


def _scope(finding: FindingRecord) -> tuple[str, str, str, str, int]:
    f = finding
    return f.name, f.runtime, f.condition, f.stratum, f.slots


def findings(manifest: Manifest, lines: Iterable[Line]) -> tuple[FindingRecord, ...]:
    """As ``detect``, from the files' content."""
    return detect(Evidence(manifest, lines))
