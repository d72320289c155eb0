"""The import order of the package: a module may import its own layer and those before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "slipstream"

# Lowest first. A layer is one or more top-level modules or packages of slipstream.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("paths",),
    (
        "acceptance_rates",
        "plugin_names",
        "option_fields",
        "speculation_options",
        "server_options",
        "options",
        "keywords",
    ),
    ("_native",),
    ("quants",),
    ("_gguf_header", "_gguf_metadata", "gguf"),
    ("cache", "machine"),
    ("fetch",),
    ("catalog_entries", "catalog_pull", "catalog"),
    ("vocabulary", "tokenizer", "chat"),
    ("graph",),
    ("memory",),
    ("models",),
    ("dispatch",),
    ("backends",),
    (
        "constraint",
        "noise",
        "filters",
        "native_sampling",
        "sampling",
        "grammar_budget",
        "grammar_text",
        "grammar_tokens",
        "grammar_trial",
        "structured",
    ),
    ("drafters",),
    ("verify",),
    ("engine",),
    ("loading", "draft_models", "model_engines"),
    ("pieces", "api"),
    ("measure",),
    ("server",),
    ("lab",),
    ("cli", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def _imports(path: Path) -> Iterator[str]:
    """Top-level names below ``slipstream`` that a file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "slipstream" and len(parts) > 1:
                yield parts[1]


def _layer(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _files() -> list[Path]:
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent != PACKAGE or p.stem != "__init__"]


def test_every_module_has_a_layer() -> None:
    assert {_layer(p) for p in _files()} <= set(RANK)


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_upward_import(path: Path) -> None:
    own = RANK[_layer(path)]
    upward = {name for name in _imports(path) if RANK.get(name, -1) > own}
    assert not upward, f"{path.name} imports {sorted(upward)}, which come after it"


def test_lab_is_reached_from_the_command_line_only() -> None:
    others = [p for p in _files() if _layer(p) not in ("lab", "cli")]
    assert not [p for p in others if "lab" in set(_imports(p))]


def test_an_upward_import_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "graph.py"
    path.write_text("def late():\n    from slipstream.engine.engine import Engine\n")
    assert list(_imports(path)) == ["engine"]
    assert RANK["engine"] > RANK["graph"]


# Packages of the lab, lowest first.
LAB = (
    "tasks", "contract", "importers", "planning", "evidence", "scheduling", "freezing", "client",
    "observation", "runtimes", "init", "judging", "running", "reporting", "comparing",
    "conformance",
)  # fmt: skip
COMPOSES = "running/tools.py"  # puts a run's real parts together, the stops of a comparison too


def _lab_imports(path: Path) -> set[str]:
    """Packages of the lab that a file imports."""
    named = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    return {name.split(".")[2] for name in named if name.startswith("slipstream.lab.")}


def test_every_module_of_the_lab_is_in_a_package_that_has_a_place() -> None:
    folder = PACKAGE / "lab"
    assert {p.name for p in folder.iterdir() if p.suffix == ".py"} == {"__init__.py"}
    assert {p.parent.name for p in folder.rglob("*.py")} == {"lab", *LAB}


@pytest.mark.parametrize("name", LAB)
def test_no_package_of_the_lab_imports_one_above_it(name: str) -> None:
    below = set(LAB[: LAB.index(name) + 1])
    files = [p for p in (PACKAGE / "lab" / name).rglob("*.py") if not p.match(COMPOSES)]
    assert {p.name: up for p in files if (up := _lab_imports(p) - below)} == {}
