"""Two builds under one condition within the few-row range and one beyond it: what may be said.

A pure function of a run's manifest, records and kept texts. A series is one build; nothing is
pooled over builds, and nothing stands in for what a run that ended early did not come to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from slipstream.errors import OptionError
from slipstream.lab.comparing import compare_flags
from slipstream.lab.comparing.compare_boundary import established, left_open
from slipstream.lab.comparing.compare_data import Boundary, ComparisonResult, Ended, Paths, Series
from slipstream.lab.comparing.compare_outputs import Load, loader
from slipstream.lab.comparing.compare_series import AllSeries
from slipstream.lab.comparing.compare_stops import builds_of, is_metal
from slipstream.lab.contract.manifest import UNKNOWN, Manifest
from slipstream.lab.contract.records import BlockRecord, FindingRecord, Line
from slipstream.lab.freezing.freeze import read_manifest
from slipstream.lab.judging.cells import Cell, Evidence
from slipstream.lab.planning.compare_checks import comparison_faults
from slipstream.lab.planning.few_rows import few_rows
from slipstream.lab.planning.plan_lines import dotted
from slipstream.lab.running.kept_run import read_run
from slipstream.lab.scheduling.schedule import NONE

MOST_FINDINGS: Final = 64


def read_comparison(folder: Path) -> ComparisonResult:
    """The comparison of a kept run.

    Raises:
        OptionError: there is no manifest, or its plan compares no builds.
        RequestError: records or outputs are damaged, or of another manifest.
    """
    _require_comparison(read_manifest(folder))
    manifest, lines = read_run(folder)
    texts = [compare_flags.read_help(folder, build) for build in builds_of(manifest)]
    return compare(manifest, lines, loader(folder), (texts[0], texts[1]))


def _require_comparison(manifest: Manifest) -> None:
    """A manifest that was edited names no builds that are not in it."""
    asked, run = manifest.plan.comparison, manifest.run[:128]
    if not asked.builds:
        expected, found = "a run that compares two builds", f"`{run}`, a study"
        raise OptionError(expected, found, "See it with `slipstream lab report`.")
    for fault in comparison_faults(manifest.plan):
        expected = f"`{dotted(fault.place)}` of `{run}` {fault.expected}"
        raise OptionError(expected, fault.found, fault.remedy)
    missing = set(asked.builds) - {r.name for r in manifest.runtimes}
    if missing:
        found = f"no `{min(missing)[:64]}`"
        raise OptionError(f"both builds in the manifest of `{run}`", found, "Restore it.")


def compare(
    manifest: Manifest,
    lines: Sequence[Line],
    load: Load,
    help_texts: tuple[str | None, str | None],
) -> ComparisonResult:
    """
    Args:
        load: an output by the name that a record has for it.
        help_texts: of A and B; None = not kept.
    """
    return _Comparison(manifest, lines, load).result(help_texts)


class _Comparison:
    def __init__(self, manifest: Manifest, lines: Sequence[Line], load: Load) -> None:
        self._manifest, self._lines = manifest, lines
        self._evidence = Evidence(manifest, lines)
        self._load = load

    def result(self, help_texts: tuple[str | None, str | None]) -> ComparisonResult:
        manifest = self._manifest
        found = AllSeries(
            manifest, self._lines, self._evidence, self._load, stopped=self._stop is not None
        )
        series = tuple(found.series())
        a, b = builds_of(manifest)
        target = next((x for x in manifest.artifacts if x.role == "target"), None)
        made = ComparisonResult(
            run=manifest.run,
            manifest_sha256=manifest.digest,
            question=manifest.plan.question.text,
            ended=self._ended(series),
            same_build=manifest.plan.comparison.same_build,
            scope=tuple(self._scope()),
            builds=(a, b),
            artifacts=manifest.artifacts,
            machine=f"{manifest.hardware.cpu}, {manifest.hardware.system}",
            identity=tuple(compare_flags.identity_changes(a, b)),
            help=compare_flags.help_difference(*help_texts),
            left=tuple(compare_flags.left_changes(manifest)),
            settings=tuple(compare_flags.setting_changes(manifest, self._lines)),
            few_rows=few_rows(() if target is None else target.weight_types),
            series=series,
            contrasts=tuple(found.contrasts(series)),
            paths=tuple(self._paths()),
            findings=tuple(self._findings()),
        )
        return msgspec.structs.replace(made, boundary=self._boundary(made))

    # how it ended

    @cached_property
    def _stop(self) -> FindingRecord | None:
        ended = (x for x in self._lines if isinstance(x, FindingRecord) and x.stops)
        return next((x for x in ended if not (x.runtime or x.condition)), None)

    def _ended(self, series: Sequence[Series]) -> Ended:
        if self._stop is not None:
            return "boundary"
        if not any(isinstance(x, BlockRecord) for x in self._lines):
            return "unexecuted"
        return "unfinished" if any(s.state == "unfinished" for s in series) else "complete"

    def _boundary(self, made: ComparisonResult) -> Boundary | None:
        if self._stop is None:
            return None
        return Boundary(
            name=self._stop.name,
            text=self._stop.text,
            blocks=sum(isinstance(x, BlockRecord) for x in self._lines),
            established=tuple(established(made)),
            open=tuple(left_open(made)),
        )

    def _findings(self) -> Iterator[str]:
        found = [x for x in self._lines if isinstance(x, FindingRecord) and x is not self._stop]
        for x in found[:MOST_FINDINGS]:
            where = ", ".join(part for part in (x.runtime, x.condition, x.stratum) if part)
            yield f"{x.name} ({where or 'the whole run'}): {x.text}"

    def _scope(self) -> Iterator[str]:
        yield "One machine, these two builds, these files, these prompts."
        yield "No evidence for other devices, models, drafters or concurrencies."
        if self._manifest.plan.comparison.same_build:
            yield "A and B are one build: an A/A check of the procedure. Differences are noise."
        if not all(is_metal(build.backend) for build in builds_of(self._manifest)):
            yield (
                "Not a Metal run: it exercises the procedure and says nothing about Metal. The "
                "few-row range only sets the length of drafts here."
            )

    def _paths(self) -> Iterator[Paths]:
        asked = self._manifest.plan.comparison
        for build in builds_of(self._manifest):
            for condition in (NONE, asked.inside, asked.outside):
                told = self._evidence.observations(Cell(build.name, condition, ""))
                seen = dict.fromkeys(p for x in told for p in x.kernel_paths if p != UNKNOWN)
                yield Paths(
                    build=build.name,
                    condition=condition,
                    predicted=build.predicted_paths,
                    observed=tuple(seen) or (UNKNOWN,),
                    evidence=told[-1].path_evidence[:MOST_FINDINGS] if seen else (),
                )
