"""Speed-ups that others have published: data to print beside ours, never to compare with.

Every claim names its own setting and where it stands; none of them enters a gate or a tolerance.
The file ships with the package and is read strictly, so a claim without its source cannot slip in.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from slipstream.errors import InputError

FILE: Final = "published_claims.toml"
NOT_COMPARABLE: Final = "not comparable"  # how a report marks every one of them
STATES: Final = (
    "paper",  # the abstract or text of a paper
    "leaderboard",
    "README",
    "documentation",
    "project page",
    "package metadata",
    "pull request text",
    "issue text",
    "article",
    "forum post",
    "unverified",  # retold elsewhere, its origin not seen
)
_FIELDS: Final = ("method", "value", "setting", "source", "state", "date")
_ADDRESS: Final = re.compile(r"https?://[^\s/]+(/\S*)?")
_DATE: Final = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
_REMEDY: Final = "Mend the file, or reinstall Slipstream"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure.

    Args:
        method: the drafting method, by our name for it where we have one.
        value: the figure as it was published, in words.
        setting: model, device and conditions, as far as the source tells them.
        source: the address of the text the figure stands in.
        state: what kind of text that is, one of ``STATES``.
        date: day, month or year of the text as ISO 8601 writes it, or ``unknown``.
    """

    method: str
    value: str
    setting: str
    source: str
    state: str
    date: str


@cache
def claims() -> tuple[Claim, ...]:
    """The claims that ship with the package, in the order of the file.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        text = files("slipstream.lab.reporting").joinpath(FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the published claims in {FILE}", str(error), _REMEDY) from error
    return read(text)


def read(text: str) -> tuple[Claim, ...]:
    """The claims of a TOML text, each in a table ``[[claim]]``.

    Raises:
        InputError: not TOML, an unknown or missing key, an empty field, an unknown state, a source
            without address, a malformed date, or the same claim twice.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{FILE} in TOML", str(error), _REMEDY) from error
    tables = document.pop("claim", None)
    if document or not isinstance(tables, list):
        found = f"the keys {sorted(document)}" if document else "no table [[claim]]"
        raise InputError(f"nothing but [[claim]] tables in {FILE}", found, _REMEDY)
    read_claims = tuple(_claim(index, table) for index, table in enumerate(tables, start=1))
    for index, claim in enumerate(read_claims, start=1):
        if claim in read_claims[: index - 1]:
            raise _fault(index, "a claim of its own", "one that stands in the file already")
    return read_claims


def _claim(index: int, table: Any) -> Claim:
    if not isinstance(table, dict):
        raise _fault(index, "a table", type(table).__name__)
    if unknown := sorted(set(table) - set(_FIELDS)):
        raise _fault(index, f"only the keys {', '.join(_FIELDS)}", f"the keys {unknown}")
    for name in _FIELDS:
        found = table.get(name)
        if not isinstance(found, str) or not found.strip():
            raise _fault(index, f"`{name}` as text", "nothing" if not found else repr(found))
    claim = Claim(**table)
    _check_forms(index, claim)
    return claim


def _check_forms(index: int, claim: Claim) -> None:
    if claim.state not in STATES:
        raise _fault(index, f"`state` one of {', '.join(STATES)}", repr(claim.state))
    if not _ADDRESS.fullmatch(claim.source):
        raise _fault(index, "`source` as a web address", repr(claim.source))
    if claim.date != "unknown" and not _DATE.fullmatch(claim.date):
        raise _fault(index, "`date` as YYYY, YYYY-MM, YYYY-MM-DD or unknown", repr(claim.date))


def _fault(index: int, expected: str, found: str) -> InputError:
    return InputError(f"in claim {index} of {FILE} {expected}", found, _REMEDY)
