"""What the README and docs/server.md tell users of the server to type works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import RunningServer, environment, serving, tiny_backend

ROOT = Path(__file__).resolve().parents[2]
SERVE = (ROOT / "README.md").read_text().split("\n## Serve\n")[1].split("\n## ")[0]
TEXTS = {"README.md": SERVE, "server.md": (ROOT / "docs" / "server.md").read_text()}
ADDRESS = "http://127.0.0.1:8080"
FLAGS = ("--spec", "auto", "--metrics", "--profile", str(ROOT / "examples" / "profile.toml"))
COMMANDS = [
    (name, command)
    for name, text in TEXTS.items()
    for command in re.findall(r"^curl .*(?:\n  .*)*", text, re.MULTILINE)
]
PROGRAMS = [
    (name, program)
    for name, text in TEXTS.items()
    for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]


@pytest.fixture(scope="module")
def server(chatty: Path) -> Iterator[RunningServer]:
    with serving(chatty, "--context", "1024", *FLAGS, *tiny_backend()) as running:
        yield running


def run(command: list[str]) -> str:
    done = subprocess.run(
        command, env=environment({"no_proxy": "*"}), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_curl(server: RunningServer, name: str, command: str) -> None:
    assert ADDRESS in command, name
    shown = run(["sh", "-c", f"{command.replace(ADDRESS, server.url)} -sS --fail-with-body"])
    assert "error" not in shown.splitlines()[0]


@pytest.mark.parametrize(("name", "program"), PROGRAMS)
def test_programs(server: RunningServer, name: str, program: str) -> None:
    package = re.findall(r"^from (\w+) import", program)[0]
    pytest.importorskip(package)
    assert ADDRESS in program, name
    assert run([sys.executable, "-c", program.replace(ADDRESS, server.url)]).strip()


def test_all_of_it_is_tried() -> None:
    assert len(COMMANDS) >= 7
    assert len(PROGRAMS) >= 3
