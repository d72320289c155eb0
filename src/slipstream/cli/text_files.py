"""Texts that the command line reads from files."""

from __future__ import annotations

import sys
from pathlib import Path

from slipstream.errors import RequestError


def read_text(name: str, kind: str, most_bytes: int) -> str:
    """The text of a file, or of standard input for ``-``.

    Args:
        name: path of the file.
        kind: what it holds, in words.
        most_bytes: a whole number of MiB.

    Raises:
        RequestError: it cannot be read, is larger, or is not UTF-8.
    """
    try:
        if name == "-":
            data = sys.stdin.buffer.read(most_bytes + 1)
        else:
            with Path(name).open("rb") as stream:
                data = stream.read(most_bytes + 1)
    except OSError as problem:
        reason = problem.strerror or "unreadable"
        raise RequestError(f"a readable {kind} file", f"{name}: {reason}", "Check it.") from None
    if len(data) > most_bytes:
        raise RequestError(f"a {kind} of at most {most_bytes >> 20} MiB", "more", "Shorten it.")
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        raise RequestError("UTF-8 text", str(problem), "Convert the file to UTF-8.") from None


def schema_text(value: str, most_bytes: int) -> str:
    """A JSON schema that is written out, or the file of that name; errors as ``read_text``."""
    written = value.lstrip()
    if written.startswith("{") or written.rstrip() in ("true", "false"):
        return value
    if not written:
        raise RequestError("a JSON schema, or a file that holds one", "no text", "Name the file.")
    return read_text(value, "JSON schema", most_bytes)
