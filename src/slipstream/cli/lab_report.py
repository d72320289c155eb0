"""slipstream lab report"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.cli.output import add_json, print_json, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slipstream.lab.reporting.analysis_data import Analysis
    from slipstream.lab.reporting.report_files import Format


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="of a run [the newest under runs/]"
    )
    parser.add_argument("--out", metavar="DIR", help="where the reports go [the run's folder]")
    parser.add_argument(
        "--format", metavar="LIST", default="html,md,json", help="of the reports [html,md,json]"
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.cli.lab_verdict_lines import state_line, verdict_lines, width, wrapped
    from slipstream.lab.reporting.report_files import analysed_run, newest_run, write_reports

    formats = _formats(arguments.format)
    folder = Path(arguments.folder) if arguments.folder else newest_run()
    manifest, analysis = analysed_run(folder)
    columns = width()
    lines = [wrapped(analysis.question.text, columns)]
    lines += [wrapped(f"{analysis.run}: {state_line(analysis)}", columns), ""]
    lines += verdict_lines(analysis.verdicts, columns)
    for found in analysis.findings:
        parts = (found.runtime, found.condition, found.stratum)
        where = ", ".join(part for part in parts if part) or "the run"
        lines.append(wrapped(f"finding {found.name} ({where}): {found.text}", columns))
    written = write_reports(manifest, analysis, Path(arguments.out or folder), formats)
    lines += [f"written: {path}" for path in written]
    print(printable("\n".join(lines)))
    if arguments.json:
        print_json(_record(folder, analysis, written))
    return 0


def _formats(text: str) -> list[Format]:
    from slipstream.errors import OptionError
    from slipstream.lab.reporting.report_files import FORMATS

    wanted = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in wanted if word not in FORMATS]
    if unknown or not wanted:
        found = f"`{unknown[0]}`" if unknown else "nothing"
        raise OptionError(f"formats among {', '.join(FORMATS)}", found, "Correct --format.")
    return [form for form in FORMATS if form in wanted]


def _record(folder: Path, analysis: Analysis, written: Sequence[Path]) -> dict[str, Any]:
    import msgspec

    return {
        "run": analysis.run,
        "folder": str(folder),
        "manifest_sha256": analysis.manifest_sha256,
        "progress": msgspec.to_builtins(analysis.progress),
        "verdicts": msgspec.to_builtins(analysis.verdicts),
        "findings": msgspec.to_builtins(analysis.findings),
        "files": [str(path) for path in written],
    }
