"""Reading JSON lines that nobody vouches for: bounded memory, errors that name the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from slipstream.errors import RequestError

MOST_LINE_BYTES: Final = 4 << 20
MOST_FILE_BYTES: Final = 1 << 30
_FOREIGN: Final = {b"PAR1": "Parquet", b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"ARRO": "Arrow"}
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def bad_line(path: Path, number: int, expected: str, found: str) -> RequestError:
    remedy = "Correct the file, or name another format in the plan."
    return RequestError(f"{expected} in line {number} of {path.name}", found, remedy)


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and object of each line that is not blank; one line is held at a time.

    Raises:
        RequestError: there is no regular file, it is over 1 GiB or no text, or a line is over 4 MiB
            or no JSON object.
    """
    if not path.is_file():
        raise RequestError(f"a file `{path}`", "none", "Check the path in the plan.")
    if path.stat().st_size > MOST_FILE_BYTES:
        raise RequestError("a file of at most 1 GiB", str(path), "Import a part of it.")
    with path.open("rb") as file:
        _require_text(path, file)
        number = 0
        while line := file.readline(MOST_LINE_BYTES + 1):
            number += 1
            if len(line) > MOST_LINE_BYTES:
                raise bad_line(path, number, "at most 4 MiB", "more")
            if line.strip():
                yield number, _object(path, number, line)


def _require_text(path: Path, file: BinaryIO) -> None:
    start = file.read(4)
    for magic, name in _FOREIGN.items():
        if start.startswith(magic):
            raise RequestError(
                f"JSON lines in {path.name}", f"a {name} file", "Convert it to JSON lines first."
            )
    file.seek(len(_BYTE_ORDER_MARK) if start.startswith(_BYTE_ORDER_MARK) else 0)


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise bad_line(path, number, "JSON", str(problem)) from None
    if not isinstance(value, dict):
        raise bad_line(path, number, "a JSON object", type(value).__name__)
    return value
