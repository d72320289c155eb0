"""Writes a comparison beside the records that it is a function of."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from slipstream.cache import write_atomically
from slipstream.errors import OperationError
from slipstream.lab.comparing.compare_data import ComparisonResult
from slipstream.lab.comparing.compare_page import comparison_page, comparison_text

NAMES: Final = ("comparison.md", "comparison.json", "comparison.html")


def write_comparison(folder: Path, made: ComparisonResult) -> tuple[Path, ...]:
    """Markdown, JSON and HTML; those that are there are replaced.

    Raises:
        OperationError: the folder cannot be written.
    """
    contents = (
        comparison_text(made).encode(),
        comparison_json(made),
        comparison_page(made).encode(),
    )
    paths = tuple(folder / name for name in NAMES)
    try:
        for path, content in zip(paths, contents, strict=True):
            write_atomically(path, content)
    except OSError as problem:
        found = f"{problem.filename or folder}: {problem.strerror or type(problem).__name__}"
        raise OperationError("a folder that can be written", found, "Copy it elsewhere.") from None
    return paths


def comparison_json(made: ComparisonResult) -> bytes:
    """Indented, keys in the order of the structs, tables sorted."""
    plain = msgspec.json.encode(made, order="deterministic")
    return msgspec.json.format(plain, indent=1) + b"\n"
