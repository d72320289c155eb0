"""Where a run's files lie: made when its manifest is frozen, found again when it goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from slipstream.errors import OperationError, OptionError, SlipstreamError
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import Plan
from slipstream.lab.freezing.assembly import Runtimes
from slipstream.lab.freezing.freeze import MANIFEST, freeze, now, read_manifest
from slipstream.lab.running.analysis_state import progress_of
from slipstream.lab.running.kept_run import read_run

RUNS: Final = Path("runs")
RECORDS: Final = "records.jsonl"
_FROZEN, _FINISHED, _BEGUN = range(3)


def _unsaid(_text: str) -> None:
    """Where nobody listens."""


def freeze_into(
    plan: Plan,
    runtimes: Runtimes,
    out: Path | None,
    *,
    missing: list[str] | None = None,
    clock: Callable[[], datetime] = now,
) -> tuple[Path, Manifest]:
    """A new run's folder with its manifest; see ``freeze``.

    Args:
        out: the folder; None = ``runs/NAME-DATE-DIGEST``, which appears when all is found out.

    Raises:
        OptionError: the folder has records of a run; or as ``freeze``.
        OperationError: it cannot be written.
    """
    try:
        if out is not None:
            _require_new(out)
            return out, freeze(plan, runtimes, out, missing=missing, clock=clock)
        return _under_its_name(plan, runtimes, missing, clock)
    except OSError as problem:
        found = f"{problem.filename or out}: {problem.strerror or type(problem).__name__}"
        remedy = "Name another: --out."
        raise OperationError("a folder that can be written", found, remedy) from None


def _under_its_name(
    plan: Plan,
    runtimes: Runtimes,
    missing: list[str] | None,
    clock: Callable[[], datetime],
) -> tuple[Path, Manifest]:
    """The name holds the manifest's digest, which is known last."""
    new = RUNS / f".{plan.name}-{os.getpid()}.new"
    try:
        manifest = freeze(plan, runtimes, new, missing=missing, clock=clock)
        folder = RUNS / manifest.run
        _require_new(folder)
        return new.replace(folder), manifest
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _require_new(folder: Path) -> None:
    """A plan that was frozen and never run may be frozen anew."""
    if (folder / RECORDS).exists():
        found = f"a run's records in `{folder}`"
        raise OptionError("a new folder", found, "Go on with --resume, or name another: --out.")


def resumable(plan: Plan, out: Path | None, note: Callable[[str], object] = _unsaid) -> Path:
    """The folder of the run of this plan that goes on, unless one is named.

    The newest that began and has blocks left; else the newest that began; else the newest that was
    frozen and never begun, as a dry run leaves it.

    Args:
        note: gets what a user must know: which folder it is, and which could not be read.

    Raises:
        OptionError: there is none, or it is the run of another plan.
    """
    if out is not None:
        if read_manifest(out).plan != plan:
            remedy = "Name its own plan, or begin a new run."
            raise OptionError(f"the run of this plan in `{out}`", "that of another", remedy)
        return out
    found = list(_own_runs(plan, note))
    if not found:
        told = f"none of `{plan.name}` in `{RUNS}`"
        raise OptionError("a run of this plan", told, "Leave out --resume, or name it: --out.")
    *_, folder, state = max(found)
    others = f"; other runs of this plan: {len(found) - 1}" if len(found) > 1 else ""
    note(f"going on with {folder}: {state}{others}")
    return folder


def _own_runs(plan: Plan, note: Callable[[str], object]) -> Iterator[tuple[int, str, Path, str]]:
    """(rank, name, folder, state) of each run of the plan; the highest goes on."""
    for folder in sorted(RUNS.glob(f"{plan.name}-*")):
        if not (folder / MANIFEST).is_file():
            continue
        try:
            if read_manifest(folder).plan == plan:
                rank, state = _state(folder)
                yield rank, folder.name, folder, state
        except SlipstreamError as problem:
            note(f"{folder} is passed over: {problem}")


def _state(folder: Path) -> tuple[int, str]:
    """(rank, how far it came).

    Raises:
        InputError: the records are damaged, or of another manifest.
    """
    manifest, lines = read_run(folder)
    if not lines:
        return _FROZEN, "its plan was frozen and not begun"
    progress = progress_of(manifest, lines)
    told = f"{progress.ended} of {progress.blocks} blocks ended"
    finished = progress.state in ("complete", "stopped")
    return (_FINISHED, f"{told}, it is {progress.state}") if finished else (_BEGUN, told)
