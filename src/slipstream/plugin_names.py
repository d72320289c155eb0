"""Drafting methods of other packages, by name; nothing of a package is imported here.

A package offers one by an entry point of the group ``slipstream.drafters``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "slipstream.drafters"


@cache
def installed() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Name -> the entry points of that name; more than one where packages clash."""
    from importlib.metadata import entry_points

    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def package_of(entry: EntryPoint) -> str:
    """The package that an entry point comes from; its module where that is not known."""
    return entry.dist.name if entry.dist is not None else entry.module


def shown() -> str:
    """The installed names for an error message, or an empty text."""
    listed = [f"{name} ({', '.join(map(package_of, e))})" for name, e in installed().items()]
    return f"; installed: {', '.join(listed)}" if listed else ""
