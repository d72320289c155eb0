"""When a comparison of two builds ends before its end: what would come would rest on a guess.

A condition whose rows left their range is rejected and ends nothing; these end the run. Each is a
pure function of the manifest and the records so far, and of what was found on the disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from slipstream.errors import OptionError, SlipstreamError
from slipstream.lab.comparing.compare_flags import same_files
from slipstream.lab.comparing.compare_outputs import Load, beside, loader
from slipstream.lab.comparing.compare_rows import rows_of, unobservable
from slipstream.lab.contract.manifest import UNKNOWN, Manifest, RuntimeIdentity
from slipstream.lab.contract.plan import Plan, RuntimePlan
from slipstream.lab.contract.records import (
    BlockRecord,
    FindingRecord,
    Line,
    ObservedRecord,
    RequestRecord,
)
from slipstream.lab.evidence.refusals import REFUSED, is_refusal
from slipstream.lab.evidence.store import counted
from slipstream.lab.freezing.binary_identity import BinaryFacts, runtime_facts
from slipstream.lab.judging.cells import GREEDY, NONE, Evidence

IDENTITY: Final = "identity-changed"
DEVICE: Final = "device-unknown"
LAYOUT: Final = "layout-unknown"
OUTPUTS: Final = "outputs-differ"
EXIT: Final = "crashed"
TIMEOUT: Final = "stalled"
METAL_FACTS: Final = ("gpu family", "simdgroup matrix", "tensor API")
"""What decides on Metal which kernels can run; all three must have been told."""
_METAL: Final = re.compile(r"\b(?:metal|mtl)(?:\d+|\b)", re.IGNORECASE)
_ANY_FACT: Final = ("system", "isa", "gpu name", "gpu family", "device")
_MOST: Final = 600
Stop = tuple[str, str]
"""Name of a finding, and what was seen."""
Changed = Callable[[Manifest], Sequence[str]]
"""What differs now from the manifest's digests."""


def first_stop(
    manifest: Manifest, lines: Sequence[Line], load: Load, changed: Sequence[str] = ()
) -> FindingRecord | None:
    """The first stop condition that holds; None = the run may go on.

    Args:
        changed: files that are not those of the manifest any more.
    """
    for stop in _stops(manifest, lines, load, changed):
        name, text = stop
        return FindingRecord(run=manifest.run, name=name, text=text[:_MOST], stops=True)
    return None


def _stops(
    manifest: Manifest, lines: Sequence[Line], load: Load, changed: Sequence[str]
) -> Iterator[Stop]:
    yield from ((IDENTITY, text) for text in changed)
    yield from identity_stops(manifest)
    yield from device_stops(manifest)
    yield from failure_stops(lines)
    yield from capability_stops(manifest, lines)
    yield from layout_stops(manifest, lines)
    yield from output_stops(manifest, lines, load)


def builds_of(manifest: Manifest) -> tuple[RuntimeIdentity, RuntimeIdentity]:
    """The identities of A and B."""
    named = {r.name: r for r in manifest.runtimes}
    a, b = manifest.plan.comparison.builds
    return named[a], named[b]


def identity_stops(manifest: Manifest) -> Iterator[Stop]:
    """Before anything runs: two builds that are known, and are two."""
    a, b = builds_of(manifest)
    for build in (a, b):
        if build.binary_sha256 == UNKNOWN:
            yield IDENTITY, f"the SHA-256 of `{build.name}` is unknown"
    asked = manifest.plan.comparison.same_build
    if same_files(a, b) is not asked:
        digests = f"SHA-256 {a.binary_sha256} and {b.binary_sha256}"
        wanted = "one build, as the plan says" if asked else "two builds"
        yield IDENTITY, f"A and B are not {wanted}: {digests}"


def device_stops(manifest: Manifest) -> Iterator[Stop]:
    """Before anything runs: the device that was asked for, and weights whose types are known."""
    for build in builds_of(manifest):
        asked = manifest.plan.runtimes[build.name].device.get("backend", "")
        if asked and build.backend != UNKNOWN and not _is_device(asked, build.backend):
            yield DEVICE, f"`{build.name}` was asked for {asked}, and has {build.backend}"
    for artifact in manifest.artifacts:
        if artifact.role == "target" and not artifact.weight_types:
            yield LAYOUT, f"the weight types of {artifact.file} are unknown"


def is_metal(text: str) -> bool:
    """Whether the name of a device is one of Metal's."""
    return _METAL.search(text) is not None


def _is_device(asked: str, found: str) -> bool:
    return asked.lower() in found.lower() or (is_metal(asked) and is_metal(found))


def failure_stops(lines: Sequence[Line]) -> Iterator[Stop]:
    """A block that failed, whatever the reason, and any request without an answer."""
    for x in counted(lines):
        if isinstance(x, BlockRecord) and x.outcome == "failed":
            name, colon, text = x.reason.partition(": ")
            found = name if colon else EXIT
            told = text if colon else x.reason or "it failed"
            yield found, f"block {x.block}, {x.runtime}, {x.condition}: {told}"
        if isinstance(x, RequestRecord) and x.error:
            where = f"block {x.block}, {x.runtime}, {x.condition}, {x.prompt}"
            otherwise = REFUSED if is_refusal(x.error) else EXIT
            yield TIMEOUT if x.timed_out else otherwise, f"{where}: {x.error}"


def capability_stops(manifest: Manifest, lines: Sequence[Line]) -> Iterator[Stop]:
    """Once a build ran: which device it ran on, and what that can do, as the program itself says.

    On Metal the family, simdgroup matrices and the tensor API decide which kernels can run.
    """
    ran = {x.runtime for x in counted(lines) if isinstance(x, BlockRecord)}
    for build in builds_of(manifest):
        if build.name not in ran:
            continue
        told = capability(lines, build.name)
        metal = is_metal(build.backend) or any(name in told for name in METAL_FACTS)
        wanted = METAL_FACTS if metal else ()
        lacks = [n for n in wanted if n not in told and f"{n} note" not in told]
        if lacks:
            yield DEVICE, f"`{build.name}` runs on Metal and does not tell {', '.join(lacks)}"
        if not any(name in told for name in _ANY_FACT):
            yield DEVICE, f"`{build.name}` does not tell what its device can do"


def capability(lines: Sequence[Line], build: str) -> dict[str, str]:
    """Everything that a build said of its device; unknown values are none."""
    found: dict[str, str] = {}
    for x in lines:
        if isinstance(x, ObservedRecord) and x.runtime == build:
            found |= {k: v for k, v in x.capability.items() if v and v != UNKNOWN}
    return found


def layout_stops(manifest: Manifest, lines: Sequence[Line]) -> Iterator[Stop]:
    """Once a condition ran: how many rows its steps had."""
    evidence = Evidence(manifest, lines)
    for cell in evidence.cells:
        if cell.stage != GREEDY or cell.condition == NONE:
            continue
        rows = rows_of(evidence, cell)
        why = "" if rows is None else unobservable(manifest, cell.condition, rows)
        if why:
            yield LAYOUT, f"`{cell.runtime}`, {cell.condition}, {cell.slots} slots: {why}"


def output_stops(manifest: Manifest, lines: Sequence[Line], load: Load) -> Iterator[Stop]:
    """Outputs that part at no near-tie; told once the pass with A's logits has been."""
    for found in beside(manifest, lines, load):
        if found.differs and found.settled:
            where = f"A and B part under {found.condition}, {found.slots} slots"
            yield OUTPUTS, f"{where}: {found.text}"


class Watch:
    """The tools' ``boundary`` of a comparison; looks at the disk only when a block has ended.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path, changed: Changed) -> None:
        self._load, self._changed = loader(folder), changed
        self._seen = -1

    def __call__(self, manifest: Manifest, lines: Sequence[Line]) -> FindingRecord | None:
        ended = sum(isinstance(x, BlockRecord) for x in lines)
        if ended == self._seen:
            return None
        found = first_stop(manifest, lines, self._load, self._changed(manifest))
        self._seen = ended if found is None else -1
        return found


def require_builds(plan: Plan) -> None:
    """Before anything is written; what is not here is left to freezing.

    Raises:
        OptionError: A and B are one build and were not named so, or the other way round.
    """
    a, b = (_facts(plan.runtimes[name]) for name in plan.comparison.builds)
    if a is None or b is None:
        return
    same, asked = (a.sha256, a.libraries) == (b.sha256, b.libraries), plan.comparison.same_build
    if same and not asked:
        found = f"one build twice: SHA-256 {a.sha256}"
        remedy = "Name another, or --same-build for an A/A check of the procedure."
        raise OptionError("two builds", found, remedy)
    if asked and not same:
        found = f"SHA-256 {a.sha256} and {b.sha256}"
        raise OptionError("one build twice (--same-build)", found, "Leave out --same-build.")


def _facts(runtime: RuntimePlan) -> BinaryFacts | None:
    """Of a program's files; None where they are not here."""
    try:
        return runtime_facts(runtime)
    except OSError:
        return None


def changed_files(manifest: Manifest) -> list[str]:
    """Programs and models on the disk that are not those of the manifest; what is gone, too."""
    from slipstream.catalog import locate
    from slipstream.lab.freezing.identity import draft_role, file_digest

    plan, found = manifest.plan, []
    for build in builds_of(manifest):
        facts = _facts(plan.runtimes[build.name])
        now = {} if facts is None else {"binary": facts.sha256, **facts.libraries}
        before = {build.binary_sha256, *build.libraries.values()} - {UNKNOWN}
        if before - set(now.values()):
            found.append(f"files of `{build.name}` are not those of the manifest any more")
    models = {"target": plan.target.model}
    models |= {draft_role(key): draft.model for key, draft in plan.drafts.items()}
    for artifact in manifest.artifacts:
        try:
            digest, _ = file_digest(locate(models.get(artifact.role, artifact.file)))
        except SlipstreamError as problem:
            found.append(f"{artifact.role}: {problem.found}")
            continue
        if artifact.sha256 not in (UNKNOWN, digest):
            found.append(f"{artifact.role} had SHA-256 {artifact.sha256}, and has {digest} now")
    return found
