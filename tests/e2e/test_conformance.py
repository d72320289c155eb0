"""The contract suite against a real server that drafts: every check passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from servers import serving
from slipstream.lab.conformance.suite import conformance

pytestmark = [pytest.mark.model, pytest.mark.native, pytest.mark.slow]


def test_slipstream_keeps_its_contract(model_path: Callable[[str], Path]) -> None:
    flags = ["--spec", "suffix", "--spec-fixed", "--parallel", "4", "--context", "2048"]
    with serving(model_path("smollm2-135m"), *flags) as server:
        found = conformance(server.url, timeout_s=300.0)
    told = {r.check: (r.outcome, r.found, r.request) for r in found.results}
    assert {check: said for check, said in told.items() if said[0] != "passed"} == {}
    assert found.speculation == "as the server was started"
    assert found.without == 'the request\'s `speculative` {"type": "none"}'
    drafted = {r.check: r.drafted or 0 for r in found.results}
    assert all(drafted[name] for name in ("drafts", "logprobs", "stop", "greedy", "slots"))
    uncompared = {r.check for r in found.results if r.comparison != "passed"}
    alone = {"answers", "drafts", "streaming", "control", "slots", "scopes", "cancel", "errors"}
    assert uncompared == {*alone, "unknown_keys"}
