"""Which printed lines are too wide for a terminal, whatever the figures in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

WIDTH = 100
# Of a table: columns are two spaces apart or more. It is as wide as its figures.
_COLUMNS = re.compile(r"\S {2,}\S")
_FIGURE = re.compile(r"[+-]?\d+\.\d+")
_NAMES = re.compile(r"^(drift: .*)\(.*?\)")  # of workloads during which the machine grew slower


def too_wide(text: str) -> Iterator[str]:
    """Lines over 100 characters; tables are left out, other measured figures count as "0.0"."""
    for line in text.splitlines():
        steady = _FIGURE.sub("0.0", _NAMES.sub(r"\1", line))
        if not _COLUMNS.search(line.strip()) and len(steady) > WIDTH:
            yield line
