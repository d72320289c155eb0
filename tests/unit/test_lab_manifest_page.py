"""docs/lab-manifest.md is what the code says, and says what each group prevents."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from slipstream.lab.contract import manifest, plan
from slipstream.lab.contract.manifest import schema
from slipstream.lab.freezing.manifest_page import manifest_page

PAGE = Path(__file__).resolve().parents[2] / "docs/lab-manifest.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == manifest_page(), (
        "slipstream lab schema --docs > docs/lab-manifest.md"
    )


def groups_of(module: ModuleType) -> list[type[msgspec.Struct]]:
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == module.__name__
        and not kind.__name__.startswith("_")
    ]


@pytest.mark.parametrize(("module", "least"), [(manifest, 8), (plan, 10)])
def test_every_group_says_what_it_prevents_and_every_key_what_it_means(
    module: ModuleType, least: int
) -> None:
    groups = groups_of(module)
    assert len(groups) >= least
    for group in groups:
        section = manifest_page().partition(f"\n## {group.__name__}\n")[2].partition("\n## ")[0]
        assert "Prevents: " in section.partition("|")[0], group
        for name in group.__struct_fields__:
            row = next(r for r in section.splitlines() if r.startswith(f"| `{name}` |"))
            assert row.split(" | ")[-1].rstrip(" |"), (group, name)


def test_the_schema_has_the_same_texts() -> None:
    groups = schema()["$defs"]
    assert groups["Hardware"]["description"].startswith("Prevents: ")
    assert set(groups["Manifest"]["properties"]) == set(manifest.Manifest.__struct_fields__)


def test_texts_below_a_key_are_found() -> None:
    line = next(row for row in manifest_page().splitlines() if row.startswith("| `most_proposed`"))
    assert "fixes the rows that it can have" in line
    assert '`"unknown"`' in line
