"""What is needed of a server that runs already: its key, its model's file, what it drafts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from slipstream.catalog import locate
from slipstream.errors import ModelFileError, OptionError
from slipstream.lab import told
from slipstream.lab.runtimes import observing

MOST_KEY_BYTES: Final = 4096


def file_name(target: str) -> str:
    """Name of the file that a catalogue name stands for."""
    try:
        return locate(target).name
    except ModelFileError:
        return target


def key_headers(key_file: str) -> Mapping[str, str]:
    """
    Raises:
        OptionError: the file cannot be read, or its first line is no key.
    """
    if not key_file:
        return {}
    try:
        with Path(key_file).expanduser().open("rb") as file:
            key = file.read(MOST_KEY_BYTES).split(b"\n")[0].decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise OptionError(
            "`api_key_file` with a key", type(problem).__name__, "Check it."
        ) from None
    if not key or not key.isprintable():
        raise OptionError("a key in the first line of `api_key_file`", "none", "Write it there.")
    return {"Authorization": f"Bearer {key}"}


def served_otherwise(slots: Any, methods: Sequence[str]) -> str:
    """Why llama.cpp's server, as it was started, is not the condition; empty = it may be.

    Which methods it has it tells only after a first request, before that whether it drafts.
    """
    served = observing.served_types(slots)
    if served is not None:
        same = set(served.split(",")) == set(methods)
        return "" if same else f"it was started with {served}, which cannot be changed from here"
    drafts = any(told.mapping(slot).get("speculative") is True for slot in told.items(slots))
    if drafts == (tuple(methods) != ("none",)):
        return ""
    return (
        "it drafts, which cannot be changed from here" if drafts else "it does not tell what drafts"
    )
