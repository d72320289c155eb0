"""Printing shared by the verbs: JSON last, progress bars, tables, tints."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

ProgressCallback = Callable[[int, int | None, str], None]

_WIDEST = 100  # columns of a line of words
_QUIET_S = 1.0  # what ends sooner shows no bar
_LINE_S = 2.0  # seconds between plain lines
_TINT, _PLAIN = "\x1b[32m", "\x1b[0m"
# Control characters would let a model or a file drive the terminal; each has a visible picture.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_PICTURES |= {0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD)}


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="end with one JSON object on stdout")


def print_json(record: dict[str, Any]) -> None:
    """One object on one line: the last line of stdout."""
    print(json.dumps(record, ensure_ascii=False), flush=True)


def printable(text: str) -> str:
    """The text with control characters made visible; tab and newline stay."""
    return text.translate(_PICTURES)


def wrapped(line: str) -> str:
    """Broken at words where it is wider than 100 columns."""
    return textwrap.fill(line, _WIDEST, subsequent_indent="  ", break_on_hyphens=False)


def for_terminal(text: str) -> str:
    """Model output: unchanged into a file or pipe, without control characters on a terminal."""
    return printable(text) if sys.stdout.isatty() else text


def tinted(text: str) -> str:
    """Accepted draft tokens: green on a terminal, in [brackets] elsewhere or with $NO_COLOR."""
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"{_TINT}{text}{_PLAIN}" if colours else f"[{text}]"


@contextlib.contextmanager
def progress_bar(unit: str = "bytes") -> Iterator[ProgressCallback]:
    """On stderr: a progress bar on a terminal, elsewhere a plain line every two seconds.

    Nothing is shown of what ends within a second.

    Args:
        unit: of the counts; ``bytes`` is shown in megabytes.
    """
    with contextlib.ExitStack() as stack:
        show: ProgressCallback | None = None
        start = time.monotonic()

        def update(done: int, total: int | None, label: str) -> None:
            nonlocal show
            if show is None:
                if time.monotonic() - start < _QUIET_S:
                    return
                live = sys.stderr.isatty()
                show = stack.enter_context(_bar(unit)) if live else _plain_lines(unit)
            show(done, total, label)

        yield update


@contextlib.contextmanager
def _bar(unit: str) -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()]
    if unit == "bytes":
        columns.insert(2, DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def update(done: int, total: int | None, label: str) -> None:
            progress.update(task, completed=done, total=total or None, description=label)

        yield update


def _plain_lines(unit: str) -> ProgressCallback:
    last_line = -_LINE_S

    def update(done: int, total: int | None, label: str) -> None:
        nonlocal last_line
        now = time.monotonic()
        if now - last_line < _LINE_S:
            return
        last_line = now
        amount = f"{done / 1e6:.0f} MB" if unit == "bytes" else f"{done} {unit}"
        share = f" ({100 * done // total} %)" if total else ""
        print(f"{label}: {amount}{share}", file=sys.stderr, flush=True)

    return update


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, text: int = 1) -> str:
    """Plain aligned columns.

    Args:
        text: so many leading columns are left-aligned, the others right-aligned.
    """
    cells = [list(map(str, header)), *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        left = [cell.ljust(width) for cell, width in zip(row[:text], widths, strict=False)]
        right = [c.rjust(w) for c, w in zip(row[text:], widths[text:], strict=True)]
        lines.append("  ".join([*left, *right]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
