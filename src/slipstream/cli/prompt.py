"""The prompt of ``run``: the argument, ``-p``, ``-f`` or standard input."""

from __future__ import annotations

import argparse

from slipstream.cli.text_files import read_text
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
        name = files[0] if files else "-"
        return read_text(name, "prompt", MOST_BYTES).removesuffix("\n")
    return str(texts[0])
