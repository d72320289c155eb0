"""docs/lab-manifest.md is what the code says, and says what each group prevents."""

from __future__ import annotations

from pathlib import Path

import msgspec

from slipstream.lab import manifest
from slipstream.lab.manifest import schema
from slipstream.lab.manifest_page import manifest_page

PAGE = Path(__file__).resolve().parents[2] / "docs/lab-manifest.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == manifest_page(), (
        "slipstream lab schema --docs > docs/lab-manifest.md"
    )


def test_every_group_says_what_it_prevents() -> None:
    page = manifest_page()
    groups = [
        kind
        for kind in vars(manifest).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == manifest.__name__
        and not kind.__name__.startswith("_")
        and kind is not manifest.Manifest
    ]
    assert len(groups) >= 7
    for group in groups:
        section = page.partition(f"## {group.__name__}\n")[2].partition("\n## ")[0]
        assert section.strip().startswith("Prevents: "), group
        for name in group.__struct_fields__:
            assert f"| `{name}` |" in section


def test_the_schema_has_the_same_texts() -> None:
    groups = schema()["$defs"]
    assert groups["Hardware"]["description"].startswith("Prevents: ")
    assert set(groups["Manifest"]["properties"]) == set(manifest.Manifest.__struct_fields__)


def test_texts_below_a_key_are_found() -> None:
    line = next(row for row in manifest_page().splitlines() if row.startswith("| `most_proposed`"))
    assert "fixes the rows that it can have" in line
    assert '`"unknown"`' in line
