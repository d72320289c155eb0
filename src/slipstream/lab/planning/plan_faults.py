"""A contradiction in a plan: where, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from slipstream.lab.planning.plan_lines import Place

_COMPARED: Final = 128


@dataclass(frozen=True)
class Fault:
    """One contradiction; the three texts read as those of ``SlipstreamError``.

    Attributes:
        place: the key that it is about.
        expected: continues the key: "to be above 0".
    """

    place: Place
    expected: str
    found: str
    remedy: str


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The nearest of the known names, as a remedy."""
    near = difflib.get_close_matches(name[:_COMPARED], list(known), 1, 0.0)
    return f"Did you mean `{near[0]}`?" if near else "There is none."
