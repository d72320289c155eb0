"""The contract suite: an honest server passes, each lie fails its check and no other."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conformance_lies import LIES
from conformance_server import conforming
from slipstream.cli.app import dispatch
from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.conformance.outcomes import CheckResult, Conformance
from slipstream.lab.conformance.suite import CHECKS, conformance

CANCEL_S = 1.0
SLOWEST_S = 60.0


def found_of(*lies: str, other: bool = False, timeout_s: float = 60.0, **ways: Any) -> Conformance:
    """The suite against a server; ``other``: beside one that does not draft."""
    with ExitStack() as stack:
        url = stack.enter_context(conforming(*lies, **ways))
        silent = ways | {"drafts": False}
        without = stack.enter_context(conforming(**silent)) if other else ""
        return conformance(url, without=without, timeout_s=timeout_s, cancel_s=CANCEL_S)


def named(found: Conformance, outcome: str) -> set[str]:
    return {result.check for result in found.results if result.outcome == outcome}


def result_of(found: Conformance, check: str) -> CheckResult:
    (result,) = (result for result in found.results if result.check == check)
    return result


def test_every_check_has_a_lie() -> None:
    assert set(LIES.values()) == {check.name for check in CHECKS}


def test_an_honest_server_passes_everything() -> None:
    found = found_of()
    assert named(found, "passed") == {"answers", *(check.name for check in CHECKS)}
    assert found.exit_code == 0
    assert (found.flavour, found.model) == ("slipstream", "m")
    assert found.without == 'the request\'s `speculative` {"type": "none"}'
    compared = {result.check for result in found.results if result.comparison == "passed"}
    assert compared >= {
        "logprobs",
        "stop",
        "usage",
        "max_tokens",
        "finish_reason",
        "greedy",
        "seeds",
    }
    drafted = [result_of(found, name).drafted for name in ("drafts", "stop", "seeds", "slots")]
    assert all(count is not None and count > 0 for count in drafted)


PHRASES = {
    "stop-kept": "is in the output",
    "told-less": "pieces",
    "unseen-tokens": "came",
    "one-less": "4 tokens, 5 were asked for",
    "one-more": "6 tokens, 5 were asked for",
    "one-untold": "not that of the first 5 tokens",
    "odd-reason": "finish reason 'done'",
    "mixed": "text of another request",
    "disturbed": "it differs from character",
    "foreign-json": "JSON that the schema forbids",
    "broken-json": "no JSON",
    "seed-unlike": "differs from that without speculation",
    "seed-ignored": "seed 11 twice",
}
"""Lie -> what its check must say of it, where another rule would find it too."""


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_fails_its_check_and_no_other(lie: str) -> None:
    found = found_of(lie)
    assert named(found, "failed") == {LIES[lie]}
    unmeasured = {"greedy"} if lie == "ignored-none" else set()  # it cannot be switched off
    assert named(found, "not measurable") == unmeasured
    assert found.exit_code == 1
    result = result_of(found, LIES[lie])
    assert PHRASES.get(lie, "") in result.found
    assert result.found
    assert result.request is not None
    assert result.request["path"].startswith("/v1/")
    json.dumps(result.request)


def test_what_fails_without_speculation_too_is_said_so() -> None:
    result = result_of(found_of("ignored-key"), "unknown_keys")
    assert result.compared.startswith("without speculation it fails too")
    result = result_of(found_of("past-stop"), "stop")
    assert (result.comparison, result.compared) == ("failed", "without speculation it passes")


def test_a_server_that_never_repeats_itself_is_not_compared() -> None:
    found = found_of("restless")
    assert named(found, "failed") == set()
    result = result_of(found, "penalties")
    assert (result.outcome, result.comparison) == ("passed", "not measurable")
    assert result.compared == "without speculation it does not repeat itself"
    assert "asked twice" in result_of(found, "greedy").found


def test_a_server_of_llama_cpp_whose_requests_choose() -> None:
    found = found_of(flavour="llama.cpp")
    assert found.without == "the request's `speculative.n_max` 0"
    assert named(found, "failed") == set()
    assert named(found, "not measurable") == {"scopes"}
    assert found.exit_code == 2


def test_a_server_of_llama_cpp_beside_one_without_drafts() -> None:
    found = found_of(flavour="llama.cpp", chooses=False, other=True)
    assert named(found, "failed") == set()
    assert named(found, "not measurable") == {"control", "scopes"}
    assert found.without.startswith("the server http://127.0.0.1:")
    assert result_of(found, "greedy").comparison == "passed"
    assert "a request cannot choose: HTTP 400" in result_of(found, "control").found


def test_a_divergence_is_found_beside_another_server_too() -> None:
    found = found_of("diverges", flavour="llama.cpp", chooses=False, other=True)
    assert named(found, "failed") == {"greedy"}
    result = result_of(found, "greedy")
    assert "differs from that without speculation from character" in result.found
    assert "nats apart: no near-tie" in result.found


def test_a_divergence_at_a_near_tie_is_called_so() -> None:
    result = result_of(found_of("diverges", "close"), "greedy")
    assert result.outcome == "failed"
    assert result.found.endswith("the two likeliest tokens there are 0.020 nats apart: a near-tie")


def test_a_server_that_cannot_be_had_without_drafts_is_not_compared() -> None:
    found = found_of("diverges", flavour="llama.cpp", chooses=False)
    assert named(found, "failed") == set()
    assert named(found, "not measurable") == {"greedy", "control", "scopes"}
    assert "--without" in result_of(found, "greedy").found
    assert result_of(found, "stop").comparison == "not measurable"


def test_a_plain_server_tells_little() -> None:
    found = found_of(flavour="plain", other=True)
    assert found.flavour == "unknown"
    assert named(found, "failed") == set()
    assert named(found, "not measurable") == {"drafts", "grammar", "control", "scopes", "cancel"}
    assert result_of(found, "greedy").outcome == "passed"


def test_a_server_that_drafts_nothing_is_no_evidence() -> None:
    found = found_of(flavour="llama.cpp", drafts=False)
    result = result_of(found, "drafts")
    assert result.outcome == "not measurable"
    assert "nothing was drafted" in result.found


def test_a_request_may_make_it_draft() -> None:
    found = found_of(drafts=False)
    assert found.speculation == 'the request\'s `speculative` {"type": "auto"}'
    assert found.exit_code == 0


def test_without_must_not_draft() -> None:
    with conforming(flavour="llama.cpp", chooses=False) as url, ExitStack() as stack:
        other = stack.enter_context(conforming(flavour="llama.cpp", chooses=False))
        found = conformance(url, without=other, cancel_s=CANCEL_S)
    assert "drafts too" in found.without
    assert result_of(found, "greedy").outcome == "not measurable"


def test_without_must_be_another_server() -> None:
    with pytest.raises(OptionError, match="another server"):
        conformance("http://127.0.0.1:1/v1", without="http://127.0.0.1:1")


def test_nobody_listens() -> None:
    with pytest.raises(PeerRuntimeError, match="no connection"):
        conformance("http://127.0.0.1:1")


HOSTILE = {
    "html": "200 without JSON",
    "closing": "no reply",
    "endless-body": "a reply without end",
    "endless-events": "a reply without end",
    "deep": "200 without JSON",
    "types": "200 without text or finish reason",
    "silent": "no end of the reply within",
}


@pytest.mark.parametrize("way", HOSTILE)
def test_no_server_at_all(way: str) -> None:
    begun = time.monotonic()
    found = found_of(way, timeout_s=1.0 if way == "silent" else 30.0)
    assert time.monotonic() - begun < SLOWEST_S
    assert named(found, "failed") == {"answers"}
    assert HOSTILE[way] in result_of(found, "answers").found
    assert len(named(found, "not measurable")) == len(CHECKS)
    assert found.exit_code == 1


@pytest.mark.parametrize("way", HOSTILE)
def test_a_server_that_turns_hostile(way: str) -> None:
    begun = time.monotonic()
    found = found_of(way, "later", timeout_s=0.2 if way == "silent" else 30.0)
    assert time.monotonic() - begun < SLOWEST_S
    assert named(found, "passed") <= {"answers", "errors", "unknown_keys"}
    assert len(named(found, "failed")) >= 14
    assert all(result.found for result in found.results)


def test_odd_facts_are_no_facts() -> None:
    found = found_of("odd-facts")
    assert (found.flavour, found.model) == ("slipstream", "")
    assert named(found, "failed") == set()
    assert named(found, "not measurable") == {"cancel"}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    with conforming("past-stop") as url:
        assert dispatch(["lab", "conformance", url, "--json", "--out", str(out)]) == 1
    shown = capsys.readouterr().out
    record = json.loads(shown.splitlines()[-1])
    assert json.loads(out.read_text()) == record
    assert record["exit_code"] == 1
    assert [r["check"] for r in record["results"] if r["outcome"] == "failed"] == ["stop"]
    assert "stop           FAILED" in shown
    assert "request:  {" in shown
    assert "18 passed, 1 failed, 0 not measurable" in shown


def test_the_command_sends_its_key_and_never_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("secret-key-1\n")
    with conforming("past-stop", key="secret-key-1") as url:
        assert dispatch(["lab", "conformance", url, "--json", "--api-key-file", str(key)]) == 1
        shown = capsys.readouterr()
        assert "secret-key-1" not in shown.out + shown.err
        assert "18 passed" in shown.out
        assert dispatch(["lab", "conformance", url]) == 1
    assert "answers        FAILED: HTTP 401" in capsys.readouterr().out


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "1e9"])
def test_a_timeout_is_a_time(timeout: str) -> None:
    with pytest.raises(OptionError, match="timeout"):
        dispatch(["lab", "conformance", "http://127.0.0.1:1", f"--timeout={timeout}"])


def test_an_unwritable_file_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--out"):
        dispatch(["lab", "conformance", "http://127.0.0.1:1", "--out", str(tmp_path / "a" / "b")])
