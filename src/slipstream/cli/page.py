"""The file of ``--plot``: one HTML page."""

from __future__ import annotations

from pathlib import Path

from slipstream.cli.output import printable
from slipstream.errors import OptionError


def page_path(name: str | None) -> Path | None:
    """The file of ``--plot``, asked before anything is measured; None without it.

    Raises:
        OptionError: it is no page, or its folder does not exist.
    """
    if name is None:
        return None
    path = Path(name)
    if path.suffix.lower() not in {".html", ".htm"} or path.is_dir():
        raise OptionError(
            "a file name that ends in .html after --plot", f"`{name}`", "Name a page."
        )
    if not path.parent.is_dir():
        folder = f"no folder `{path.parent}`"
        raise OptionError("a folder that exists after --plot", folder, "Make the folder first.")
    return path


def write_page(path: Path, page: str) -> None:
    """
    Raises:
        OptionError: the file cannot be written.
    """
    try:
        path.write_bytes(page.encode("utf-8", "backslashreplace"))
    except OSError as problem:
        found = problem.strerror or type(problem).__name__
        remedy = "Name another file."
        raise OptionError(
            f"a file that can be written after --plot, `{path}`", found, remedy
        ) from None
    print(f"plot: {printable(str(path))}")
