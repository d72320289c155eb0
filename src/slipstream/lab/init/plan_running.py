"""The conditions that ``lab init`` writes for servers that run already, and what they can tell."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from slipstream.lab.runtimes.offers import Offer

_FIRST: Final = ("ngram-simple", "suffix")
_COLUMNS: Final = 98


def running_conditions(offers: Sequence[Offer], *, has_draft: bool) -> str:
    """Conditions that a request to every one of the servers can choose, below their limits.

    Those of ``_FIRST`` run; the others are there to be had.

    Args:
        has_draft: the plan names a draft model, as ``draft``.
    """
    return "".join(_limits(offer) for offer in offers) + _chosen(_common(offers), has_draft)


def _common(offers: Sequence[Offer]) -> tuple[str, ...]:
    every = [offer.methods for offer in offers]
    return tuple(m for m in every[0] if all(m in each for each in every)) if every else ()


def _limits(offer: Offer) -> str:
    return "#\n" + "".join(
        f"# {line}\n" for line in textwrap.wrap(offer.limits(), _COLUMNS, break_on_hyphens=False)
    )


def _chosen(methods: Sequence[str], has_draft: bool) -> str:
    found = [m for m in methods if m.startswith("ngram") or m == "suffix"]
    first = [m for m in found if m in _FIRST] or found[:1]
    parts = [_OWN_VALUES if found else _FIXED_METHOD]
    parts += [_NAMED.format(name=name) for name in first]
    if "draft-simple" in methods:
        parts.append(_NAMED_DRAFT if has_draft else _DRAFT_TO_NAME)
    parts += [_commented(_NAMED.format(name=name)) for name in found if name not in first]
    return "".join(parts)


def _commented(text: str) -> str:
    return "".join(f"# {line}\n" if line else "\n" for line in text.splitlines())


_FIXED_METHOD: Final = """\
#
# Of a server whose requests cannot choose, only the method that it runs with can be named, and
# `none` is then not measured:
#
# [[conditions]]
# name = "ngram-simple"
# stage = "ngram"
# method = "ngram-simple"
"""
_OWN_VALUES: Final = """\
#
# Values of these methods (n-gram sizes, lengths) are those that the server was started with: a
# request can set n_max, n_min and p_min alone.
"""
_NAMED: Final = """
[[conditions]]
name = "{name}"
stage = "ngram"
method = "{name}"
starting_point = true
"""
_NAMED_DRAFT: Final = """
[[conditions]]
name = "draft-simple"
stage = "draft-simple"
method = "draft-simple"
draft = "draft"
starting_point = true
"""
_DRAFT_TO_NAME: Final = """\
#
# The server offers draft-simple too. Its draft model must be known, so that its pairing with the
# target can be confirmed: name it with `lab init --draft-model`.
"""
