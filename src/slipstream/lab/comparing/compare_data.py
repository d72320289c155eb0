"""What a comparison of two builds says, as data: the JSON file is this, the pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from slipstream.lab.contract.manifest import ArtifactIdentity, RuntimeIdentity
from slipstream.lab.evidence.definitions import Figure
from slipstream.lab.planning.few_rows import FewRows

Ended = Literal["unexecuted", "unfinished", "boundary", "complete"]
State = Literal["compared", "inconclusive", "rejected", "not run", "unfinished"]
Role = Literal["one row", "few rows", "many rows"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something that A and B have differently; a side that tells nothing is empty."""

    name: str
    a: str
    b: str
    where: str = ""


class HelpDifference(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        only_a, only_b: flags that one of them has.
        defaults, values: flags of both whose default, or allowed values, differ.
        unknown: why the texts could not be compared; empty = they were.
    """

    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    defaults: tuple[Change, ...] = ()
    values: tuple[Change, ...] = ()
    unknown: str = ""

    @property
    def count(self) -> int:
        return sum(map(len, (self.only_a, self.only_b, self.defaults, self.values)))


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a verification step under a condition.

    Attributes:
        asked: longest draft and the token before it, of one slot; None = not known.
        mean: of one slot's steps, of a histogram of whole passes; None where the program does not
            tell, or nothing was drafted.
        least, most: that a pass of all slots can have had on average.
        source: what ``mean`` is made of.
        histogram: rows -> steps, where the program tells them.
    """

    asked: int | None
    mean: float | None
    least: float | None
    most: float | None
    source: str
    histogram: Mapping[str, int] = {}


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """B's outputs beside A's of the same prompts, by the plan's rule.

    Attributes:
        near_ties: that part where A's two best logits lie nearer than the plan's tolerance.
        differ: that part elsewhere, or nobody knows why.
        missing: that could not be compared.
        parted: of those that part: prompt, token, gap and cause.
        unrepeatable: prompts of which one build itself gave several outputs.
    """

    equal: int = 0
    near_ties: int = 0
    differ: int = 0
    missing: int = 0
    parted: tuple[str, ...] = ()
    unrepeatable: tuple[str, ...] = ()


class TimeRatio(msgspec.Struct, frozen=True, kw_only=True):
    """Time of B / time of A over pairs of blocks with equal outputs; below 1 = B takes less.

    Attributes:
        figure: of the ratios of the pairs; ``low`` and ``high`` its bootstrap interval,
            None of fewer than five pairs.
        shorter, longer: pairs in which B took less, and more.
        p: of the two-sided sign test.
        needed: pairs that the plan's margin needs at the run's own noise; None = unknown.
        statement: what may be said.
    """

    figure: Figure
    low: float | None
    high: float | None
    confidence: float
    shorter: int
    longer: int
    p: float
    needed: int | None
    statement: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One condition on one workload at one concurrency, under both builds.

    Attributes:
        state: ``reason`` says why it is not ``compared``.
        rounds, planned: pairs of blocks that ended and that the manifest has.
        drift: largest change of the machine around its blocks; ``left_out`` those beyond the limit.
        acceptance: accepted / drafted of A and B; undefined where nothing was drafted.
        drafted: tokens of A and B; None = not told.
        equal_to_none: outputs that each build gave as without drafts, and those compared.
    """

    condition: str
    role: Role
    stratum: str
    slots: int
    state: State
    reason: str = ""
    rows: tuple[Rows, Rows] | None = None
    outputs: Outputs = Outputs()
    time: TimeRatio | None = None
    rounds: int = 0
    planned: int = 0
    drift: float | None = None
    left_out: int = 0
    acceptance: tuple[float | None, float | None] = (None, None)
    drafted: tuple[int | None, int | None] = (None, None)
    equal_to_none: tuple[str, str] = ("", "")


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """(B / A with few rows) / (B / A with many), round by round: what is due to few rows alone."""

    stratum: str
    slots: int
    ratio: TimeRatio


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel paths of a build under a condition: told before (a prediction), and observed."""

    build: str
    condition: str
    predicted: tuple[str, ...]
    observed: tuple[str, ...]
    evidence: tuple[str, ...]


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run ended before its end: nothing beyond it is known, and nothing is put there.

    Attributes:
        name, text: of the finding that ended it.
        blocks: that had ended by then.
        established, open: what is known and what is not.
    """

    name: str
    text: str
    blocks: int
    established: tuple[str, ...]
    open: tuple[str, ...]


class ComparisonResult(msgspec.Struct, frozen=True, kw_only=True):
    """All that is said of two builds.

    Attributes:
        manifest_sha256: of the manifest's file.
        same_build: A and B are one build, so that every difference is noise.
        identity: parts of the builds' identities that differ; the digests come first.
        settings: in effect, that differ; ``left`` parameters that neither was given.
        scope: what the figures do not say.
    """

    run: str
    manifest_sha256: str
    question: str
    ended: Ended
    same_build: bool
    scope: tuple[str, ...]
    builds: tuple[RuntimeIdentity, RuntimeIdentity]
    artifacts: tuple[ArtifactIdentity, ...]
    machine: str
    identity: tuple[Change, ...]
    help: HelpDifference
    left: tuple[Change, ...]
    settings: tuple[Change, ...]
    few_rows: FewRows
    series: tuple[Series, ...]
    contrasts: tuple[Contrast, ...]
    paths: tuple[Paths, ...]
    findings: tuple[str, ...]
    boundary: Boundary | None = None
