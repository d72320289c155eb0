"""The runtime ``slipstream`` over a tiny model: from its identity to what its stop tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime_manifests import NONE, manifest_of, plan_of
from servers import environment, tiny_backend
from slipstream.cache import remembered_sha256, sha256_of
from slipstream.errors import OptionError
from slipstream.lab.client.client import Prompt, ask_now
from slipstream.lab.contract.plan import ConditionPlan, Plan, RuntimePlan
from slipstream.lab.observation.counters import between
from slipstream.lab.runtimes.faults import CrashedError, WrongModelError
from slipstream.lab.runtimes.registry import runtime
from slipstream.lab.runtimes.slipstream import Slipstream

NGRAM = ConditionPlan(
    name="ngram", stage="ngram", method="ngram-simple",
    parameters={"size_n": 1, "size_m": 6, "fixed": True},
)  # fmt: skip
PROMPT = Prompt(text="one two three one two three one two three one two")
SAMPLING = {"max_tokens": 100, "seed": 3, "ignore_eos": True}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slipstream]:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    made = runtime("own", RuntimePlan(kind="slipstream", flags=tuple(tiny_backend())))
    assert isinstance(made, Slipstream)
    yield made
    made.stop()


def plan_for(tiny: Path, server: Slipstream) -> Plan:
    threads = 1 if "cpu" in server.plan.flags else 0
    return plan_of(tiny, server.plan, threads=threads)


def test_a_block_with_drafts_has_the_output_of_none(
    server: Slipstream, tiny: Path, tmp_path: Path
) -> None:
    plan = plan_for(tiny, server)
    manifest = manifest_of(plan, target_sha256=sha256_of(tiny))
    outputs = {}
    for condition in (NONE, NGRAM):
        method = server.method(condition, plan)
        assert method.not_run == ""
        endpoint = server.start(method, manifest, 2, tmp_path / f"{condition.name}.log")
        assert server.observed(method).kernel_paths == ("unknown",)  # nothing ran yet
        before = server.metrics()
        assert before.raw.splitlines().count("slipstream_target_passes_total 0.0") == 1
        answer = ask_now(endpoint, PROMPT, SAMPLING, timeout_s=60.0)
        counts, faults = between(before, server.metrics())
        assert (answer.error, answer.diagnostics, faults) == ("", (), ())
        assert answer.counts.drafted == counts.drafted
        assert answer.counts.steps == counts.steps
        observed = server.observed(method)
        assert observed.differs == {}
        assert observed.kernel_paths != ("unknown",) or "reference" in server.plan.flags
        assert sum(observed.rows_histogram.values()) == counts.steps
        assert all(2 <= int(rows) <= 7 for rows in observed.rows_histogram)
        assert (server.peak_rss_bytes() or 0) > 1 << 20
        assert server.stop() == ()
        outputs[condition.name] = answer
    assert outputs["none"].ids == outputs["ngram"].ids
    assert outputs["none"].counts.drafted == 0
    assert (outputs["ngram"].counts.drafted or 0) > 0


def test_identity(server: Slipstream, tmp_path: Path) -> None:
    found = server.identity(tmp_path)
    assert found.kind == "slipstream"
    assert "--spec" in (tmp_path / found.help_file).read_text()
    assert found.flags[-2:] == tuple(tiny_backend())


def test_another_file_than_the_manifest_s_is_refused(
    server: Slipstream, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    found = remembered_sha256(tiny)  # so that the server knows it
    plan = plan_for(tiny, server)
    method = server.method(NONE, plan)
    server.start(method, manifest_of(plan, target_sha256=found), 1, tmp_path / "x.log")
    with pytest.raises(WrongModelError, match=found[:12]):
        server.start(method, manifest_of(plan, target_sha256="0" * 64), 1, tmp_path / "x.log")
    assert list(tmp_path.glob("*.pid")) == []


def test_a_model_that_cannot_be_loaded(server: Slipstream, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    plan = plan_for(broken, server)
    with pytest.raises(CrashedError, match="before it was ready"):
        server.start(server.method(NONE, plan), manifest_of(plan), 1, tmp_path / "x.log")


def test_flags_that_are_the_lab_s_or_nobody_s(tiny: Path) -> None:
    for flags in (("--parallel", "3"), ("--spec-type=none",), ("--nonsense", "1")):
        server = Slipstream("own", RuntimePlan(kind="slipstream", flags=flags))
        plan = plan_for(tiny, server)
        with pytest.raises(OptionError):
            server.command(server.method(NONE, plan), plan, 1)
