"""Printing shared by the verbs: JSON last, progress bars, tables, tints."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="End with one JSON object on stdout.")]
ProgressCallback = Callable[[int, int | None, str], None]


def print_json(record: dict[str, Any]) -> None:
    """One object on one line: the last line of stdout."""
    print(json.dumps(record, ensure_ascii=False), flush=True)


@contextlib.contextmanager
def progress_bar(unit: str = "bytes") -> Iterator[ProgressCallback]:
    """A progress bar on a terminal, plain lines every 10 % elsewhere (stderr in both cases)."""
    if sys.stderr.isatty():
        with _bar(unit) as update:
            yield update
    else:
        yield _plain_lines(unit)


@contextlib.contextmanager
def _bar(unit: str) -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()]
    if unit == "bytes":
        columns.insert(2, DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def update(done: int, total: int | None, label: str) -> None:
            progress.update(task, completed=done, total=total, description=label)

        yield update


def _plain_lines(unit: str) -> ProgressCallback:
    shown: dict[str, int] = {}

    def update(done: int, total: int | None, label: str) -> None:
        tenth = 10 * done // total if total else -1
        if shown.get(label) != tenth:
            shown[label] = tenth
            amount = f"{done / 1e6:.0f} MB" if unit == "bytes" else str(done)
            share = f" ({10 * tenth} %)" if total else ""
            print(f"{label}: {amount}{share}", file=sys.stderr, flush=True)

    return update


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Plain aligned columns; the first is left-aligned, numbers right."""
    cells = [list(map(str, header)), *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def tinted(text: str, *, accepted: bool) -> str:
    """Accepted draft tokens in green on a terminal, in [brackets] elsewhere."""
    if not accepted:
        return text
    return f"\x1b[32m{text}\x1b[0m" if sys.stdout.isatty() else f"[{text}]"


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
