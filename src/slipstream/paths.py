"""Texts that name files, and files that nobody vouches for: none of them can hang or surprise."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from slipstream.errors import InputError, OptionError, RequestError

MOST_PATH_BYTES: Final = 4095
"""As Linux's PATH_MAX without its end; systems that take less say so themselves."""
MOST_NAME_BYTES: Final = 255
_SHOWN: Final = 120


def shown(text: str, most: int = _SHOWN) -> str:
    """A text for an error: of a long one its beginning, and how long it is."""
    return text if len(text) <= most else f"{text[:most]}.. ({len(text):,} characters)"


def path_fault(text: str) -> str:
    """Why a text names no file on any system; empty = it may name one."""
    if "\0" in text:
        return f"a NUL character in {shown(text)!r}"
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        return f"{shown(ascii(text))}, which is no text"
    if len(data) > MOST_PATH_BYTES:
        return f"`{shown(text)}`, longer than {MOST_PATH_BYTES} bytes"
    if any(len(name) > MOST_NAME_BYTES for name in data.split(os.fsencode(os.sep))):
        return f"`{shown(text)}`, a name in it longer than {MOST_NAME_BYTES} bytes"
    return ""


def path_of(text: str, what: str) -> Path:
    """A path as a user writes it, ``~`` and ``~user`` expanded.

    Args:
        what: whose path it is, as an error begins: "`workloads`".

    Raises:
        OptionError: it can be no path, or the home of nobody.
    """
    fault = path_fault(text)
    if not fault:
        try:
            return Path(text).expanduser()
        except RuntimeError:
            fault = f"`{shown(text)}`, whose user has no home here"
    raise OptionError(f"{what} to be a path", fault, "Correct the path.")


def reason(problem: OSError) -> str:
    """What an error of the system says, without numbers and paths."""
    return problem.strerror or type(problem).__name__


def read_file(
    path: Path, what: str, most_bytes: int, error: type[InputError] = RequestError
) -> bytes:
    """All of a regular file; neither a pipe nor a device is waited for or read.

    Args:
        what: the file, as an error begins: "a plan".
        error: class of what is raised.

    Raises:
        InputError: it is not there or cannot be read, is no regular file, or is larger.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            kind = os.fstat(handle).st_mode
            content = _read(handle, most_bytes + 1) if stat.S_ISREG(kind) else b""
        finally:
            os.close(handle)
    except (OSError, ValueError) as problem:
        why = reason(problem) if isinstance(problem, OSError) else path_fault(str(path))
        found = f"`{shown(str(path))}`: {why}"
        raise error(f"{what} that can be read", found, "Check the path.") from None
    if not stat.S_ISREG(kind):
        found = f"`{shown(str(path))}`, {_kind(kind)}"
        raise error(f"{what} in a regular file", found, "Write it to a file, and name that.")
    if len(content) > most_bytes:
        found = f"more in `{shown(str(path))}`"
        raise error(f"{what} of at most {_size(most_bytes)}", found, "Name another, or shorten it.")
    return content


def _read(handle: int, most: int) -> bytes:
    with open(handle, "rb", closefd=False) as file:
        return file.read(most)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"


def _size(count: int) -> str:
    whole = count >= 1 << 20 and count % (1 << 20) == 0
    return f"{count >> 20} MiB" if whole else f"{count:,} bytes"
