"""benchmarks/server_fuzz.py passes a server that behaves and names what hostile bytes bring out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import servers

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import fuzz_cases
import fuzz_schema
import server_fuzz
from server_fuzz import statuses_of

FAKE = Path(__file__).resolve().parents[1] / "fake_slipstream.py"
KINDS = {
    ("crash_on_null", "bodies"): {"5xx"},
    ("crash_on_null", "bytes"): {"5xx"},
    ("traceback", "bodies"): {"traceback"},
    ("hang_on_escape", "bodies"): {"hang"},
    ("dies_on_nan", "bodies"): {"dead", "refused"},
    ("garbage_on_nan", "bodies"): {"no_reply"},
}


@pytest.fixture
def fuzzed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fuzz a fake server with a fault, or with none."""

    def run(fault: str | None, *words: str) -> dict[str, Any]:
        monkeypatch.setattr(servers, "PROGRAM", [sys.executable, str(FAKE)])
        if fault is not None:
            monkeypatch.setattr(server_fuzz, "BODIES_S", 2.0)
        flags = [] if fault is None else ["--flag=--fault", f"--flag={fault}"]
        return server_fuzz.run(["no-model", "--seconds", "120", *words, *flags])

    return run


@pytest.mark.parametrize("part", ["bytes", "bodies"])
def test_a_server_that_behaves_passes(fuzzed: Any, part: str) -> None:
    result = fuzzed(None, "--only", part, "--cases", "150")
    assert result["failures"] == {}, result["details"]
    assert result["cases"] == {part: 150}
    assert result["statuses"]["400"] > 10
    assert result["statuses"]["200"] > 5


@pytest.mark.parametrize(("fault", "part"), KINDS)
def test_every_fault_is_found(fuzzed: Any, tmp_path: Path, fault: str, part: str) -> None:
    keep = tmp_path / "kept"
    result = fuzzed(fault, "--only", part, "--cases", "60", "--keep", str(keep))
    assert result["ok"] is False
    assert KINDS[fault, part] & set(result["failures"]), result["details"]
    assert any(path.read_bytes() for path in keep.iterdir())


def test_a_case_is_made_from_seed_and_number_alone() -> None:
    for make in (fuzz_cases.byte_case, fuzz_cases.body_case):
        first = [make(3, number) for number in range(60)]
        assert [make(3, number) for number in reversed(range(60))] == first[::-1]
        assert len(set(first)) > 50
        assert make(4, 7) != make(3, 7)


def test_every_number_makes_a_case() -> None:
    assert all(fuzz_cases.byte_case(1, number) for number in range(20_000))
    assert all(fuzz_cases.body_case(1, number) for number in range(2_000))


def test_the_requests_that_are_spoilt_are_good_json() -> None:
    paths = {"/completion", "/v1/chat/completions", "/v1/messages", "/infill", "/tokenize"}
    assert paths < set(fuzz_cases.BODIES)
    for path, bodies in fuzz_cases.BODIES.items():
        for body in bodies:
            assert json.loads(json.dumps(body)) == body, path


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (b"", []),
        (b"what?", []),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 500 X\r\n\r\n", [200, 500]),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 500 quoted", [200]),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 X\r\n\r\n", [100, 400]),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
            [200, 404],
        ),
        (b"HTTP/1.1 413 X\r\nConte", [413]),
    ],
)
def test_statuses_of_what_came_back(reply: bytes, wanted: list[int]) -> None:
    assert statuses_of(reply) == wanted


def test_schemathesis_that_is_not_there_is_said(
    fuzzed: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz_schema, "NEEDED", ("no_such_package",))
    result = fuzzed(None, "--only", "schema")
    assert result["ok"] is True
    assert "no_such_package not installed" in result["schemathesis"]
    assert "pip install schemathesis" in capsys.readouterr().err
