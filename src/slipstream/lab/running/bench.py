"""What every block of a run needs, and what a block comes to while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import Counts
from slipstream.lab.contract.runtimes import Runtime
from slipstream.lab.evidence.store import Store
from slipstream.lab.running.progress import Progress
from slipstream.lab.running.tools import Tools

LOGS: Final = "logs"
"""Folder of the run that servers' logs go to."""
MOST_TEXT: Final = 1000
"""Characters of a text that a program had a part in."""
FIGURES: Final = ("measured", "rollback")
"""Kinds of blocks that figures are made of, or compared with."""


@dataclass(frozen=True)
class Bench:
    """A run's folder, manifest, programs and tools."""

    folder: Path
    manifest: Manifest
    runtimes: Mapping[str, Runtime]
    tools: Tools
    store: Store
    progress: Progress
    clock: Callable[[], float]


@dataclass
class Seen:
    """What a block has come to so far.

    Attributes:
        start_s: clock reading that the times of its records begin at.
        failed: ``FINDING: what happened``; empty = nothing ended it.
        before, after: raw counters around its pass.
        findings: ``FINDING: text`` of what was noticed beside.
    """

    start_s: float
    failed: str = ""
    counts: Counts | None = None
    peak_rss_bytes: int | None = None
    energy_j: float | None = None
    before: str = ""
    after: str = ""
    log: str = ""
    findings: list[str] = field(default_factory=list)
