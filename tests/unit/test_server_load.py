"""benchmarks/server_load.py passes a server that behaves and names the faults of others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import servers

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import load_clients
import load_watch
import server_load
from http_exchange import Address
from load_clients import Findings
from load_requests import ENDPOINTS, Question, outcome_of

FAKE = Path(__file__).resolve().parents[1] / "fake_slipstream.py"
KINDS = {
    "crossed": "text",
    "lost": "text",
    "truncated": "unfinished",
    "miscounted": "usage",
    "error500": "5xx",
    "hang": "hang",
    "lenient": "status",
    "mute_error": "message",
    "bare_429": "retry_after",
    "slow_health": "health_slow",
    "ill": "health",
    "leak": "memory",
    "stuck": "slots",
    "torn_end": "end",
    "deaf": "end",
    "bad_exit": "end",
    "same_id": "identity",
}
ASKED_FIRST = 2 * 2 * len(server_load.SAMPLING)
"""Requests for the references of two prompts: a fault begins behind them."""


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the load on a fake server with a fault, or with none."""

    def run(fault: str | None, health_ms: float = 100.0) -> dict[str, Any]:
        monkeypatch.setattr(servers, "PROGRAM", [sys.executable, str(FAKE)])
        monkeypatch.setattr(servers, "STOP_S", 60.0 if fault is None else 1.0)
        monkeypatch.setattr(server_load, "PROMPTS", server_load.PROMPTS[:2])
        monkeypatch.setattr(load_watch, "_SAMPLE_S", 0.05)
        monkeypatch.setattr(load_watch, "FREE_S", 1.0)
        monkeypatch.setattr(load_watch, "END_S", 3.0 if fault == "hang" else 60.0)
        for module in (load_clients, load_watch):
            monkeypatch.setattr(module, "ANSWER_S", 3.0 if fault == "hang" else 60.0)
        seconds = 2 if fault in (None, "leak") else 1
        words = ["no-model", "--reference", "server", "--clients", "12"]
        words += ["--seconds", str(seconds), "--tokens", "8", "--long-tokens", "200"]
        words += ["--health-ms", str(health_ms)]
        words += [f"--flag=--after={ASKED_FIRST}"]
        words += [] if fault is None else [f"--flag=--fault={fault}"]
        return server_load.run(words)

    return run


def test_a_server_that_behaves_passes(loaded: Any) -> None:
    result = loaded(None, health_ms=10_000.0)
    assert result["failures"] == {}, result["details"]
    assert result["ok"] is True
    assert set(load_clients.ACTIONS) <= set(result["done"])
    assert result["tokens"] > 100
    assert result["health_ms"]["probes"] > 2
    assert result["rss_bytes"]["at_end"] > 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("fault", KINDS)
def test_every_fault_is_found(loaded: Any, fault: str) -> None:
    result = loaded(fault)
    assert result["ok"] is False
    assert KINDS[fault] in result["failures"], result["details"]


def test_the_last_line_is_json_and_the_exit_code_tells(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = loaded("crossed")
    monkeypatch.setattr(server_load, "run", lambda: result)
    with pytest.raises(SystemExit) as ended:
        server_load.main()
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out.splitlines()[-1])["ok"] is False
    assert "text: " in shown.err


def test_every_endpoint_is_asked_for_the_same() -> None:
    question = Question("p", 0.5, 3, 9)
    for endpoint in ENDPOINTS:
        body = endpoint.body(question, True)
        assert body["stream"] is True
        assert body["temperature"] == 0.5
        assert body.get("n_predict", body.get("max_tokens")) == 9
        assert ("seed" in body) == endpoint.seeded


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.path)
def test_what_is_no_reply_is_named(endpoint: Any) -> None:
    from http_exchange import BrokenReplyError, ServerEvent

    for given in ({}, [], [ServerEvent("", b"{")], [ServerEvent("error", b'{"error": 1}')]):
        if given == []:
            assert outcome_of(endpoint, given).finish is None
            continue
        with pytest.raises(BrokenReplyError):
            outcome_of(endpoint, given)


def test_memory_that_grows_and_memory_that_does_not() -> None:
    flat, growing = Findings(), Findings()
    steady = [(float(t), 1000 + (t % 2)) for t in range(100)]
    assert load_watch.judge_memory(steady, 20.0, 10, flat)["at_end"] == 1000
    load_watch.judge_memory([(float(t), 100 * t) for t in range(100)], 20.0, 10, growing)
    load_watch.judge_memory(steady[:3], 20.0, 10, flat)
    assert flat.failures == {"memory": 1}  # too few samples are no proof
    assert growing.failures == {"memory": 1}


def test_clients_do_the_same_for_the_same_seed() -> None:
    load = load_clients.Load(Address("h", 1), server_load.questions(4), {}, 1, 0.0)

    def asked(number: int, seed: int) -> list[Any]:
        client = load_clients.Client(load, number, seed)
        return [client._question() for _ in range(20)]

    assert asked(1, 2) == asked(1, 2)
    assert asked(1, 2) != asked(1, 3) != asked(2, 3)
