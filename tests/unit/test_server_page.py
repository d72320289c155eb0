"""The server's pages in docs/ speak of flags, endpoints, keys and metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slipstream.options import (
    EngineOptions,
    ModelOptions,
    SamplingOptions,
    SpeculationOptions,
    describe,
)
from slipstream.server.openapi_operations import OPERATIONS
from slipstream.server.openapi_replies import Timings
from slipstream.server.speculative_body import SpeculativeBody
from slipstream.server_options import ServerOptions

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("server.md", "server-operation.md", "llama-server.md", "profile.md")
PAGE, OPERATION, LLAMA = ((DOCS / name).read_text() for name in PAGES[:3])
STRUCTS = (ServerOptions, ModelOptions, EngineOptions, SamplingOptions, SpeculationOptions)
FLAGS = {
    "--" + name.replace("_", "-")
    for struct in STRUCTS
    for option in describe(struct)
    for name in (option.name, *option.aliases)
}


def test_flags_exist() -> None:
    named = set(re.findall(r"`[^`\n]*?(--[a-z-]+)", PAGE + OPERATION))
    assert len(named) > 8
    assert named <= FLAGS | {"--json"}
    same = LLAMA.split("| the same; further methods")[0]
    assert set(re.findall(r"`(--spec-[a-z-]+)`", same)) <= FLAGS


def test_endpoints_exist() -> None:
    named = set(re.findall(r"`(GET|POST) (/[^` ]*)`", PAGE))
    assert len(named) > 14
    assert named <= set(OPERATIONS)


def test_keys_exist() -> None:
    keys = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])["speculative"]
    assert set(keys) == set(SpeculativeBody.__struct_fields__)
    costs = PAGE.split("## What a reply costs")[1].split("##")[0]
    named = set(re.findall(r"`([a-z_]+)`", costs)) - {"timings", "timings_per_token"}
    assert named <= set(Timings.__struct_fields__)


def test_programs_are_python() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        compile(program, "server.md", "exec")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for file, title in re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", (DOCS / name).read_text()):
        headings = re.findall(r"^#+ (.*)$", (DOCS / file).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
        assert not title or title in anchors
