"""The diagnostic boundary of a comparison that ended early: what was established, what was not."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.lab.comparing.compare_data import ComparisonResult, Series
from slipstream.lab.contract.manifest import UNKNOWN


def established(made: ComparisonResult) -> Iterator[str]:
    """What holds whatever came after."""
    for letter, build in zip("AB", made.builds, strict=True):
        yield f"{letter} is `{build.name}`, SHA-256 {build.binary_sha256}, commit {build.commit}"
    if not made.help.unknown:
        yield f"their help texts differ in {made.help.count} flags, defaults and values"
    for s in made.series:
        if s.outputs.equal or s.outputs.near_ties or s.outputs.differ:
            yield f"{label(s)}: outputs {outputs_text(s)}"
        if s.state == "rejected":
            yield f"{label(s)}: rejected, {s.reason}"
        if s.time is not None and s.state == "compared":
            yield f"{label(s)}: time of B / time of A, all {s.planned} rounds"


def left_open(made: ComparisonResult) -> Iterator[str]:
    """What nobody may read out of this run."""
    for s in made.series:
        if s.state in ("unfinished", "not run"):
            yield f"{label(s)}: time of B / time of A ({s.rounds} of {s.planned} rounds)"
    for build in dict.fromkeys(path.build for path in made.paths):
        unseen = [p.condition for p in made.paths if (p.build, p.observed) == (build, (UNKNOWN,))]
        if unseen:
            yield f"`{build}`: kernel paths under {', '.join(unseen)}"
    yield "whatever a run to the end would have shown; no figure stands in for it"


def label(s: Series) -> str:
    """A series in words."""
    slots = f", {s.slots} slots" if s.slots > 1 else ""
    return f"{s.condition} ({s.role}), {s.stratum}{slots}"


def outputs_text(s: Series) -> str:
    """How many outputs of B are those of A."""
    found = s.outputs
    parts = [f"{found.equal} equal"]
    parts += [f"{found.near_ties} part at a near-tie"] if found.near_ties else []
    parts += [f"{found.differ} part elsewhere"] if found.differ else []
    parts += [f"{found.missing} not compared"] if found.missing else []
    return ", ".join(parts)
