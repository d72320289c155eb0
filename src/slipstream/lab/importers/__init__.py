"""Prompts of other sets, and results of other clients. What is imported is never shared unasked."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from slipstream.errors import OptionError
from slipstream.lab.importers import plain_jsonl, spec_bench, speed_bench
from slipstream.lab.importers.questions import Category, Collector, Format, Imported

__all__ = ["FORMATS", "Category", "Imported", "read_prompts"]

FORMATS: Final[Mapping[str, Format]] = {
    form.name: form for form in (plain_jsonl.FORMAT, spec_bench.FORMAT, speed_bench.FORMAT)
}


def read_prompts(path: Path, form: str, most: int, keep: Collection[str] = ()) -> Imported:
    """The prompts of a file of another set.

    Args:
        form: a name of ``FORMATS``, then ``:category,..`` to read these alone.
        most: prompts kept of each category, in the order of the file.
        keep: ids of prompts that are kept beyond that.

    Raises:
        OptionError: there is no such format, or no such category in the file.
        RequestError: the file is missing, too large, of another format or malformed; it names the
            line.
    """
    name, _, listed = form.partition(":")
    if name not in FORMATS:
        near = difflib.get_close_matches(name[:64], FORMATS, 1, 0.0)[0]
        known = ", ".join(FORMATS)
        raise OptionError(f"a format among {known}", f"`{name[:64]}`", f"Did you mean `{near}`?")
    asked = [category.strip().lower() for category in listed.split(",") if category.strip()]
    collector = Collector(FORMATS[name], path, most, frozenset(keep), frozenset(asked))
    imported = collector.read()
    missing = [category for category in asked if category not in collector.seen]
    if missing:
        known = ", ".join(collector.seen)
        raise OptionError(f"a category among {known}", f"`{missing[0][:64]}`", "Correct the plan.")
    return imported
