"""Parts of a comparison alone: help texts, what pairs show, rows, files on the disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import tiny_model
from compare_world import HELP_A, HELP_B, comparison_manifest, comparison_plan, identity
from slipstream.lab.comparing.compare_data import Rows, TimeRatio
from slipstream.lab.comparing.compare_flags import help_difference, read_help, same_files
from slipstream.lab.comparing.compare_rows import MEAN, left_range, unobservable
from slipstream.lab.comparing.compare_stops import changed_files, is_metal
from slipstream.lab.comparing.compare_times import LESS, MORE, NO_DIFFERENCE, statement
from slipstream.lab.contract.manifest import ArtifactIdentity, Manifest
from slipstream.lab.contract.plan import Artifact, RuntimePlan
from slipstream.lab.evidence.definitions import figure


def test_equal_help_texts_differ_in_nothing() -> None:
    assert help_difference(HELP_A, HELP_A).count == 0


def test_a_flag_under_another_spelling_is_the_same() -> None:
    one = "-a,    --alpha N      what (default: 1)\n"
    two = "--alpha, --first N      what (default: 2)\n"
    found = help_difference(one, two)
    assert (found.only_a, found.only_b) == ((), ())
    assert [(c.name, c.a, c.b) for c in found.defaults] == [("--alpha", "1", "2")]


def test_a_flag_that_is_only_named_as_gone_is_not_there() -> None:
    gone = "--draft N      the argument has been removed. use --x\n"
    found = help_difference("--draft N      tokens (default: 16)\n", gone)
    assert (found.only_a, found.only_b) == (("--draft",), ())
    assert help_difference("--other N      x\n", gone).only_b == ()


@pytest.mark.parametrize("hostile", ["", "\x00" * 99, "-" * 100_000, "-a " * 50_000])
def test_a_hostile_help_text_is_no_crash(hostile: str) -> None:
    assert help_difference(hostile, HELP_B).unknown == ""


def test_a_missing_text_is_named() -> None:
    assert help_difference(None, HELP_B).unknown.startswith("no help text of A with")
    assert help_difference(None, None).unknown.startswith("no help text of A and B with")


@pytest.mark.parametrize("name", ["../help-a.txt", "/etc/hostname", "", "sub/help.txt"])
def test_a_help_text_lies_in_the_runs_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "help-a.txt").write_text(HELP_A)
    digest = hashlib.sha256(HELP_A.encode()).hexdigest()
    given = identity("a", help_file=name, help_sha256=digest)
    assert read_help(tmp_path / "run", given) is None


def test_one_build_is_known_by_all_its_files() -> None:
    a, b = identity("a"), identity("b")
    assert same_files(a, a) is True
    assert same_files(a, b) is False
    assert same_files(a, identity("a", libraries={"x": "1"})) is False
    assert same_files(a, identity("b", binary_sha256="unknown")) is None


# What pairs show


def shown(low: float, high: float, shorter: int, longer: int, **more: Any) -> str:
    made = figure([low, high])
    assert made is not None
    given = {"p": 0.03, "needed": 6, "confidence": 0.95, "n": 6, **more}
    ratio = TimeRatio(
        figure=msgspec.structs.replace(made, n=given["n"]),
        low=low,
        high=high,
        confidence=given["confidence"],
        shorter=shorter,
        longer=longer,
        p=given["p"],
        needed=given["needed"],
        statement="",
    )
    return statement(ratio, 0.03)


def test_what_may_be_said() -> None:
    assert shown(0.8, 0.9, 6, 0) == LESS
    assert shown(1.1, 1.2, 0, 6) == MORE
    assert shown(0.99, 1.02, 3, 3) == "the same within the margin of 3%"
    assert shown(0.975, 0.99, 6, 0) == "the same within the margin of 3%"
    assert shown(0.96, 0.99, 6, 0) == LESS
    assert shown(0.9, 1.02, 3, 3) == NO_DIFFERENCE
    assert shown(0.8, 0.9, 5, 1, p=0.2) == NO_DIFFERENCE
    assert shown(0.8, 0.9, 6, 0, needed=7) == "not measurable: 6 pairs of 7"
    assert shown(0.8, 0.9, 1, 0, n=1) == "not measurable: 1 pair of 6"
    assert shown(0.8, 0.9, 6, 0, needed=None) == "not measurable: 6 pairs of an unknown number"


# Rows


def rows(mean: float | None, slots: int = 1, source: str = MEAN) -> Rows:
    whole = None if mean is None else mean * slots
    return Rows(asked=8, mean=mean, least=mean, most=whole, source=source)


@pytest.mark.parametrize(
    ("condition", "found", "left", "unknown"),
    [
        ("few-rows", rows(8.0), False, False),
        ("few-rows", rows(6.0), False, False),
        ("few-rows", rows(16.0), False, False),
        ("few-rows", rows(5.99), True, False),
        ("few-rows", rows(16.01), True, False),
        ("few-rows", rows(8.0, 2), False, False),
        ("few-rows", rows(8.0, 3), False, True),
        ("few-rows", rows(5.0, 2), True, False),
        ("few-rows", rows(17.0, 2), True, False),
        ("few-rows", rows(None, source="not told"), False, True),
        ("many-rows", rows(17.0), False, False),
        ("many-rows", rows(16.9), True, False),
        ("many-rows", rows(24.0, 4), False, False),
        ("few-rows", rows(1.0, source="nothing was drafted"), True, False),
        ("none", rows(1.0), False, False),
    ],
)
def test_rows_lie_in_their_range_or_not(
    condition: str, found: Rows, left: bool, unknown: bool
) -> None:
    manifest = comparison_manifest()
    assert bool(left_range(manifest, condition, found)) is left
    assert bool(unobservable(manifest, condition, found)) is unknown


# Files


@pytest.mark.parametrize(
    ("name", "metal"),
    [
        ("MTL0 (Apple M3 Ultra)", True),
        ("Metal", True),
        ("Metal (Apple M1)", True),
        ("CPU", False),
        ("CUDA0 (NVIDIA H200)", False),
        ("metallic", False),
    ],
)
def test_names_of_metal(name: str, metal: bool) -> None:
    assert is_metal(name) is metal


@pytest.fixture
def files(tmp_path: Path) -> Manifest:
    """Two binaries with a library each, and a model, all on the disk."""
    model = tiny_model(tmp_path / "target.gguf", "llama")
    digests = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        binary = tmp_path / name / "llama-server"
        binary.write_bytes(name.encode())
        binary.chmod(0o755)
        library = tmp_path / name / "libggml.so"
        library.write_bytes(b"lib" + name.encode())
        digests[name] = [hashlib.sha256(f.read_bytes()).hexdigest() for f in (binary, library)]
    plan = comparison_plan(
        target=Artifact(model=str(model)),
        runtimes={
            n: RuntimePlan(kind="llama-server", binary=str(tmp_path / n / "llama-server"))
            for n in ("a", "b")
        },
    )
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    target = ArtifactIdentity(role="target", file="target.gguf", sha256=digest)
    builds = tuple(
        identity(n, binary_sha256=d[0], libraries={"libggml.so": d[1]}) for n, d in digests.items()
    )
    return comparison_manifest(plan, runtimes=builds, artifacts=(target,))


def test_files_that_stay_are_no_finding(files: Manifest) -> None:
    assert changed_files(files) == []


@pytest.mark.parametrize("name", ["b/llama-server", "b/libggml.so"])
def test_a_program_that_changes_is_found(name: str, files: Manifest, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"another build")
    (tmp_path / name).chmod(0o755)
    assert changed_files(files) == ["files of `b` are not those of the manifest any more"]


def test_a_program_that_is_gone_is_found(files: Manifest, tmp_path: Path) -> None:
    (tmp_path / "a" / "llama-server").unlink()
    assert changed_files(files) == ["files of `a` are not those of the manifest any more"]


def test_a_model_that_changes_is_found(files: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "target.gguf"
    path.write_bytes(path.read_bytes() + b"x")
    (found,) = changed_files(files)
    assert found.startswith("target had SHA-256 ")
    path.unlink()
    (found,) = changed_files(files)
    assert found.startswith("target: ")
