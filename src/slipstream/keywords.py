"""Keyword arguments, spread over the option structs that define them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from slipstream.errors import OptionError
from slipstream.options import SpeculationOptions, describe, from_mapping, require_used

Keywords = dict[str, Any]


def spread(keywords: Mapping[str, Any], *structs: type[msgspec.Struct]) -> list[Keywords]:
    """Each keyword, under its option's own name, to the struct that knows the name or alias.

    Raises:
        OptionError: no struct knows it (it names the nearest), or an option is given twice.
    """
    owners = {
        name: (place, option.name)
        for place, struct in enumerate(structs)
        for option in describe(struct)
        for name in (option.name, *option.aliases)
    }
    parts: list[Keywords] = [{} for _ in structs]
    for keyword, value in keywords.items():
        if keyword not in owners:
            near = difflib.get_close_matches(keyword, owners, 1, 0.0)[0]
            raise OptionError("a known option", f"`{keyword}`", f"Did you mean `{near}`?")
        place, name = owners[keyword]
        if name in parts[place]:
            raise OptionError(f"`{name}` once", "it and an alias of it", "Remove one.")
        parts[place][name] = value
    return parts


def changed(options: msgspec.Struct, keywords: Keywords) -> Any:
    """The options with some of them replaced, checked again."""
    return from_mapping(type(options), {**msgspec.structs.asdict(options), **keywords})


def speculation_with(
    options: SpeculationOptions, keywords: Keywords, others: Iterable[str] = ()
) -> SpeculationOptions:
    """As ``changed``; what the keywords set must be read by a chosen method.

    Args:
        others: names of drafters at work beside the methods.

    Raises:
        OptionError: a value is out of range, or differs from the default and nothing reads it.
    """
    merged: SpeculationOptions = changed(options, keywords)
    defaults = SpeculationOptions()
    require_used(
        merged,
        [name for name in keywords if getattr(merged, name) != getattr(defaults, name)],
        others,
    )
    return merged
