"""The published claims: read strictly, each with a source, none of them ours."""

from __future__ import annotations

from collections import Counter

import pytest

from slipstream.errors import InputError
from slipstream.lab.reporting import published

GOOD = """
[[claim]]
method = "medusa"
value = "2x"
setting = "somewhere"
source = "https://example.org/paper"
state = "paper"
date = "2024-01"
"""
FIELDS = ("method", "value", "setting", "source", "state", "date")


def replaced(field: str, line: str) -> str:
    """The good text with the line of ``field`` exchanged for ``line``."""
    lines = [line if kept.startswith(f"{field} =") else kept for kept in GOOD.splitlines()]
    return "\n".join(lines)


def test_the_shipped_claims_are_read_and_cover_the_families() -> None:
    found = published.claims()
    methods = Counter(claim.method for claim in found)
    assert len(found) >= 40
    assert {"draft-simple", "ngram-mod", "draft-eagle3", "draft-mtp", "draft-dflash"} <= set(
        methods
    )
    assert {"draft-dspark", "suffix", "medusa"} <= set(methods)


def test_the_shipped_claims_tell_losses_too() -> None:
    texts = [claim.value for claim in published.claims()]
    assert sum(text.startswith(("-", "0.", "no gain")) for text in texts) >= 5


def test_a_good_text_becomes_its_claim() -> None:
    (claim,) = published.read(GOOD)
    assert claim == published.Claim(
        method="medusa",
        value="2x",
        setting="somewhere",
        source="https://example.org/paper",
        state="paper",
        date="2024-01",
    )


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("line", ['{} = ""', '{} = "  "', "{} = 3", ""])
def test_a_field_that_is_empty_absent_or_no_text_is_an_error(field: str, line: str) -> None:
    with pytest.raises(InputError, match=f"claim 1.*`{field}`"):
        published.read(replaced(field, line.format(field)))


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(InputError, match="speedup"):
        published.read(GOOD + "speedup = 2.0\n")


@pytest.mark.parametrize("text", ["", "[other]\n", 'title = "x"\n' + GOOD, 'claim = "x"\n'])
def test_anything_but_claim_tables_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="nothing but"):
        published.read(text)


def test_a_claim_that_is_no_table_is_an_error() -> None:
    with pytest.raises(InputError, match="a table"):
        published.read('claim = ["x"]\n')


def test_what_is_not_toml_is_an_error() -> None:
    with pytest.raises(InputError, match="TOML"):
        published.read("[[claim")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "rumour"),
        ("source", "a friend"),
        ("source", "https://"),
        ("source", "ftp://example.org"),
        ("date", "May 2024"),
        ("date", "2024-13"),
        ("date", "2024-1"),
        ("date", "2024-01-32"),
    ],
)
def test_a_field_of_the_wrong_form_is_an_error(field: str, value: str) -> None:
    with pytest.raises(InputError, match=f"`{field}`"):
        published.read(replaced(field, f'{field} = "{value}"'))


@pytest.mark.parametrize("date", ["2024", "2024-01", "2024-01-31", "unknown"])
def test_dates_may_be_as_coarse_as_the_source(date: str) -> None:
    (claim,) = published.read(replaced("date", f'date = "{date}"'))
    assert claim.date == date


def test_the_same_claim_twice_is_an_error() -> None:
    with pytest.raises(InputError, match="claim 2"):
        published.read(GOOD + GOOD)
