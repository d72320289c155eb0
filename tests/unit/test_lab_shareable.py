"""No path of the machine in what is passed on."""

from __future__ import annotations

import pytest

from slipstream.lab.freezing.shareable import cut_paths


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/models/a.gguf", "…/a.gguf"),
        ("--model=/opt/models/a.gguf -t 4", "--model=…/a.gguf -t 4"),
        ("log '/tmp/run-1/x.log', then", "log '…/x.log', then"),
        ("~/models/a.gguf", "…/a.gguf"),
        ("C:\\Users\\me\\a.gguf", "…/a.gguf"),
        ("/Volumes/disk/a", "…/a"),
    ],
)
def test_paths_are_cut(text: str, shown: str) -> None:
    assert cut_paths(text, []) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/home/me/page",
        "matmul/q8_0/avx2/rows_1",
        "GET /v1/chat/completions",
        "/metrics",
        "chat/1",
        "tokens/s",
        "1/2",
        "/home",
    ],
)
def test_what_is_no_path_stays(text: str) -> None:
    assert cut_paths(text, []) == text


def test_paths_that_the_plan_names_are_cut_wherever_they_lie() -> None:
    known = ["/strange/place/server", "/strange/place"]
    assert cut_paths("at /strange/place/server: no", known) == "at …/server: no"
