"""Kept runs under experiments/: whole, free of this or that machine's paths, and reproducible."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.lab.reporting.report_files import FORMATS

ROOT = Path(__file__).resolve().parents[2]
KEPT = sorted(file.parent for file in (ROOT / "experiments").glob("*/manifest.json"))
STUDIES = [folder for folder in KEPT if (folder / "report.json").exists()]
FOLDERS = re.compile(rb"(?:/home|/root|/opt|/tmp|/work|/Users)/[\w.-]+")


def name(folder: Path) -> str:
    return folder.name


def test_there_are_studies() -> None:
    assert STUDIES


@pytest.mark.parametrize("folder", STUDIES, ids=name)
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_a_report_regenerates_byte_for_byte(tmp_path: Path, folder: Path, seed: str) -> None:
    """In a process of its own: sets of texts are walked in another order in each.

    After a change of the report: ``slipstream lab report experiments/NAME``, and look at it.
    """
    command = [sys.executable, "-m", "slipstream", "lab", "report", folder, "--out", tmp_path]
    subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
    )
    assert {file.name for file in tmp_path.iterdir()} >= {f"report.{form}" for form in FORMATS}
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (folder / file.name).read_bytes(), file.name


@pytest.mark.parametrize("folder", KEPT, ids=name)
def test_no_path_of_a_machine_is_kept(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            assert not FOLDERS.search(file.read_bytes()), file


@pytest.mark.parametrize("folder", STUDIES, ids=name)
def test_the_readme_names_the_run(folder: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"experiments/{folder.name}" in readme
