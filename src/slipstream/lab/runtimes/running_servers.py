"""What is needed of a server that runs already: its key, kind, model, and what it drafts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from slipstream.catalog import locate
from slipstream.errors import ModelFileError, OptionError
from slipstream.lab.client import told
from slipstream.lab.contract.manifest import UNKNOWN
from slipstream.lab.observation.metrics_text import flavour, samples
from slipstream.lab.runtimes import observing
from slipstream.paths import path_of, read_file

MOST_KEY_BYTES: Final = 64 << 10


def file_name(target: str) -> str:
    """Name of the file that a catalogue name stands for."""
    try:
        return locate(target).name
    except ModelFileError:
        return target


def key_headers(key_file: str) -> Mapping[str, str]:
    """
    Raises:
        OptionError: the file cannot be read, is no regular one or over 64 KiB, or its first line
            is no key.
    """
    if not key_file:
        return {}
    path = path_of(key_file, "`api_key_file`")
    content = read_file(path, "a key (`api_key_file`)", MOST_KEY_BYTES, OptionError)
    try:
        key = content.split(b"\n")[0].decode("ascii").strip()
    except UnicodeDecodeError:
        raise OptionError(
            "a key in the first line of `api_key_file`", "other than ASCII", "Write it there."
        ) from None
    if not key or not key.isprintable():
        raise OptionError("a key in the first line of `api_key_file`", "none", "Write it there.")
    return {"Authorization": f"Bearer {key}"}


def flavour_of(props: Mapping[str, Any], metrics: str) -> str:
    """``slipstream``, ``llama.cpp``, ``vllm`` or ``unknown``, by what it shows.

    Args:
        props: of ``/props``; empty where it has none.
        metrics: text of ``/metrics``.
    """
    if props.get("slipstream"):
        return "slipstream"
    names = flavour(samples(metrics))
    if names is not None:
        return names.flavour
    return "llama.cpp" if told.text(props.get("build_info")) else UNKNOWN


def offered_methods(props: Mapping[str, Any]) -> tuple[str, ...]:
    """Drafting methods that a Slipstream lets its requests choose; of another server none."""
    methods = told.mapping(told.mapping(props.get("slipstream")).get("draft_methods"))
    return tuple(
        name for name, entry in methods.items() if told.mapping(entry).get("offered") is True
    )


def listed_models(listed: Any) -> list[str]:
    """Names in a reply of ``/v1/models``."""
    names = [
        told.text(told.mapping(one).get("id"))
        for one in told.items(told.mapping(listed).get("data"))
    ]
    return [name for name in names if name]


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
