"""From a run's folder to its reports and its profile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from slipstream.cache import write_atomically
from slipstream.errors import OperationError, OptionError, RequestError, SlipstreamError
from slipstream.lab.analysis import analysed
from slipstream.lab.analysis_data import Analysis
from slipstream.lab.freeze import MANIFEST, read_manifest
from slipstream.lab.manifest import Manifest
from slipstream.lab.outputs import load
from slipstream.lab.plan import SAME
from slipstream.lab.profile_file import profile_text
from slipstream.lab.published import claims
from slipstream.lab.records import BlockRecord, Line, RequestRecord
from slipstream.lab.report_content import document
from slipstream.lab.report_json import report_json
from slipstream.lab.report_page import page
from slipstream.lab.report_text import markdown
from slipstream.lab.run_folder import RUNS
from slipstream.lab.store import RECORDS, read_records

Format = Literal["html", "md", "json"]
FORMATS: Final[tuple[Format, ...]] = ("html", "md", "json")
PROFILE: Final = "profile.toml"
MOST_RECORD_BYTES: Final = 512 << 20
_LONGEST_S: Final = 1e8
_OWN_KIND: Final = "slipstream"


def newest_run() -> Path:
    """The run under ``runs/`` that was frozen last.

    Raises:
        OptionError: there is none.
    """
    found = []
    for path in sorted(RUNS.glob(f"[!.]*/{MANIFEST}")):
        try:
            found.append((datetime.fromisoformat(read_manifest(path.parent).created), path.parent))
        except (SlipstreamError, ValueError):
            continue  # no run of this version; named outright, it says why
    if not found:
        remedy = "Name a run's folder, or run a plan: slipstream lab run."
        raise OptionError(f"a run in `{RUNS}`", "none", remedy)
    return max(found, key=lambda pair: (pair[0].timestamp(), pair[1]))[1]


def read_run(folder: Path) -> tuple[Manifest, list[Line]]:
    """The manifest and the records of a run; of a plan that was not executed there are none.

    Raises:
        OptionError: there is no manifest, or it is of another version.
        RequestError: the records are too large, malformed or of another run, or tell times that
            cannot be.
    """
    manifest = read_manifest(folder)
    _require_whole(manifest, folder)
    path = folder / RECORDS
    try:
        size = path.stat().st_size if path.exists() else 0
        if size > MOST_RECORD_BYTES:
            expected = f"at most {MOST_RECORD_BYTES} bytes of records in {RECORDS}"
            raise RequestError(expected, f"{size}", "Restore the file, or run a smaller plan.")
        lines = read_records(path)
    except OSError as problem:
        found = f"`{path}`: {problem.strerror or type(problem).__name__}"
        raise OperationError("records that can be read", found, "Check the folder.") from None
    _require_own(manifest, lines)
    return manifest, lines


def _require_whole(manifest: Manifest, folder: Path) -> None:
    """Its parts speak of the same programs: a file that was changed by hand may not."""
    planned, found = set(manifest.plan.runtimes), {r.name for r in manifest.runtimes}
    kept = manifest.plan.rollback
    strangers = planned ^ found | ({kept} - {"", SAME} - planned)
    if strangers:
        where = f"a manifest in `{folder / MANIFEST}` whose parts speak of the same runtimes"
        told = f"`{min(strangers)[:128]}` in one of them alone"
        raise OptionError(where, told, "Restore the file.")


def _require_own(manifest: Manifest, lines: Iterable[Line]) -> None:
    for number, line in enumerate(lines, 1):
        if line.run != manifest.run:
            raise RequestError(
                f"records of the run `{manifest.run}`",
                f"one of `{line.run[:128]}` in line {number}",
                "Bring each run's manifest and records back together.",
            )
        if not all(math.isfinite(s) and abs(s) < _LONGEST_S for s in _seconds(line)):
            found = f"one that cannot be, in line {number} of {RECORDS}"
            raise RequestError("times of the client's clock", found, "Restore the file.")


def _seconds(line: Line) -> Sequence[float]:
    """What the client's own clock said."""
    if isinstance(line, RequestRecord):
        told = (line.first_s, line.total_s)
        return [line.sent_s, *(s for s in told if s is not None), *line.token_times_s]
    return [line.elapsed_s] if isinstance(line, BlockRecord) else []


def analysed_run(folder: Path) -> tuple[Manifest, Analysis]:
    """Everything that a report of this folder shows; errors as ``read_run``."""
    manifest, lines = read_run(folder)
    made = analysed(manifest, lines, outputs=lambda name: load(folder, name), claims=claims())
    return manifest, made


def rendered(analysis: Analysis, form: Format) -> bytes:
    """One report; the same bytes of the same analysis, always."""
    if form == "json":
        return report_json(analysis)
    made = document(analysis)
    return (page(made) if form == "html" else markdown(made)).encode()


def write_reports(
    manifest: Manifest, analysis: Analysis, out: Path, formats: Iterable[Format]
) -> list[Path]:
    """``report.*`` of each format, and ``profile.toml`` of a run that Slipstream's server was in.

    Raises:
        OperationError: the folder cannot be written.
    """
    content = {f"report.{form}": rendered(analysis, form) for form in formats}
    if profile := profile_of(manifest, analysis):
        content[PROFILE] = profile.encode()
    written = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, raw in content.items():
            write_atomically(out / name, raw)
            written.append(out / name)
    except OSError as problem:
        found = f"`{problem.filename or out}`: {problem.strerror or type(problem).__name__}"
        remedy = "Name another folder with --out."
        raise OperationError("a folder that can be written", found, remedy) from None
    return written


def profile_of(manifest: Manifest, analysis: Analysis) -> str:
    """The profile that ``serve`` reads; empty where no one build of it was judged."""
    own = [r.name for r in manifest.runtimes if r.kind == _OWN_KIND]
    judged = {v.runtime for v in analysis.verdicts if v.word != "not run"} & set(own)
    return profile_text(manifest, analysis.verdicts) if len(judged) == 1 else ""
