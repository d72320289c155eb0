"""The prompt of ``run``: the argument, ``-p``, ``-f`` or standard input."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from slipstream.errors import RequestError

MOST_BYTES = 64 << 20
_SOURCES = "one prompt: PROMPT, -p TEXT, -f FILE, or - for standard input"


def add_prompt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="PROMPT", nargs="?", help="the prompt; - = stdin")
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; - = stdin")
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="prompt file; - = stdin; one newline at its end drops"
    )


def read_prompt(arguments: argparse.Namespace) -> str:
    """The text of the only source given.

    Raises:
        RequestError: no source or several, or a file that is not readable UTF-8 of at most 64 MiB.
    """
    texts = [text for text in (arguments.words, arguments.prompt) if text is not None]
    files = [arguments.file] if arguments.file is not None else []
    if len(texts) + len(files) != 1:
        found = "several" if texts or files else "none"
        raise RequestError(_SOURCES, found, "Give exactly one of them.")
    if files or texts == ["-"]:
        return _read(files[0] if files else "-")
    return str(texts[0])


def _read(name: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as stream:
                data = stream.read(MOST_BYTES + 1)
    except OSError as problem:
        reason = problem.strerror or "unreadable"
        raise RequestError("a readable prompt file", f"{name}: {reason}", "Check it.") from None
    if len(data) > MOST_BYTES:
        raise RequestError("a prompt of at most 64 MiB", "more", "Shorten it.")
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as problem:
        raise RequestError("UTF-8 text", str(problem), "Convert the file to UTF-8.") from None
