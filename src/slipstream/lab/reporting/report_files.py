"""From a run's folder to its reports and its profile."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from slipstream.cache import write_atomically
from slipstream.errors import OperationError, OptionError, SlipstreamError
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.freezing.freeze import MANIFEST, read_manifest
from slipstream.lab.judging.profile_file import profile_text
from slipstream.lab.reporting.analysis import analysed
from slipstream.lab.reporting.analysis_data import Analysis
from slipstream.lab.reporting.published import claims
from slipstream.lab.reporting.report_content import document
from slipstream.lab.reporting.report_json import report_json
from slipstream.lab.reporting.report_page import page
from slipstream.lab.reporting.report_text import markdown
from slipstream.lab.running.kept_run import read_run
from slipstream.lab.running.outputs import load
from slipstream.lab.running.run_folder import RUNS

Format = Literal["html", "md", "json"]
FORMATS: Final[tuple[Format, ...]] = ("html", "md", "json")
PROFILE: Final = "profile.toml"
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
