"""The runtime ``llama-server`` over binaries that tell the truth and that lie."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lying_runtime import stand_in
from runtime_manifests import NGRAM, NONE, manifest_of, plan_of
from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.client.client import Prompt, ask_now
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import ConditionPlan, Rules, RuntimePlan
from slipstream.lab.contract.runtimes import LEAST_READY_S, Endpoint
from slipstream.lab.observation.counters import between
from slipstream.lab.runtimes.faults import (
    CrashedError,
    IdentityError,
    RouterError,
    WrongModelError,
)
from slipstream.lab.runtimes.llama_server import LlamaServer
from slipstream.lab.runtimes.registry import runtime
from slipstream.lab.runtimes.server_process import end_left_over

PROMPT = Prompt(ids=tuple(range(100, 120)))
TOKENS = 48

Make = Callable[..., tuple[LlamaServer, Manifest]]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def make(tmp_path: Path, target: Path) -> Iterator[Make]:
    """A runtime over a stand-in that tells these lies."""
    made: list[LlamaServer] = []

    def build(*lies: str, plan: dict[str, Any] | None = None, **facts: Any) -> Any:
        binary = stand_in(tmp_path, *lies, **facts)
        wanted = RuntimePlan(kind="llama-server", binary=str(binary), **(plan or {}))
        found = runtime("r", wanted)
        assert isinstance(found, LlamaServer)
        made.append(found)
        return found, manifest_of(plan_of(target, wanted))

    yield build
    for one in made:
        one.stop()


def begun(
    server: LlamaServer, manifest: Manifest, condition: ConditionPlan, log: Path, slots: int = 1
) -> Endpoint:
    return server.start(server.method(condition, manifest.plan), manifest, slots, log)


def ask_some(endpoint: Endpoint, requests: int = 1) -> list[str]:
    """Errors of some requests."""
    sampling = {"max_tokens": TOKENS, "seed": 1}
    answers = [ask_now(endpoint, PROMPT, sampling, timeout_s=10.0) for _ in range(requests)]
    return [answer.error for answer in answers]


def test_identity_is_known_before_a_start(make: Make, tmp_path: Path) -> None:
    server, _ = make(plan={"release": "b4242", "commit": "abcdef1"})
    found = server.identity(tmp_path / "run")
    assert (found.release, found.commit) == ("b4242", "abcdef1234567890")
    assert found.compiler == "cc 12.2.0 for x86_64-linux-gnu"
    assert found.backend == "CPU"
    assert len(found.binary_sha256) == len(found.help_sha256) == 64
    assert "--spec-type" in (tmp_path / "run" / found.help_file).read_text()


def test_a_release_is_not_guessed_from_a_build_number(make: Make, tmp_path: Path) -> None:
    server, _ = make()
    assert server.identity(tmp_path).release == "unknown"


def test_another_commit_than_the_plan_s(make: Make, tmp_path: Path) -> None:
    server, _ = make("other-commit", plan={"commit": "abcdef1"})
    with pytest.raises(IdentityError, match="0123456789abcdef"):
        server.identity(tmp_path)


def test_a_block_from_start_to_stop(make: Make, tmp_path: Path) -> None:
    server, manifest = make()
    endpoint = begun(server, manifest, NGRAM, tmp_path / "a.log", slots=2)
    before = server.metrics()
    assert ask_some(endpoint, 3) == ["", "", ""]
    counts, faults = between(before, server.metrics())
    assert faults == ()
    assert (counts.drafted, counts.accepted, counts.steps) == (192, 96, 48)
    observed = server.observed(server.method(NGRAM, manifest.plan))
    assert observed.differs == {}
    wanted = {"context": 512, "slots": 2, "spec-type": "ngram-mod", "ngram_mod_n_max": "16"}
    assert wanted.items() <= observed.effective.items()
    assert observed.kernel_paths == ("unknown",)
    assert (server.peak_rss_bytes() or 0) > 1 << 20
    assert server.stop() == ()
    assert server.stop() == ()
    assert (server.peak_rss_bytes() or 0) > 1 << 20
    assert not psutil.pid_exists(endpoint.pids[0])
    with pytest.raises(PeerRuntimeError, match="not started"):
        server.metrics()


def test_a_start_is_a_fresh_process(make: Make, tmp_path: Path) -> None:
    server, manifest = make()
    first = begun(server, manifest, NGRAM, tmp_path / "a.log")
    ask_some(first)
    second = begun(server, manifest, NONE, tmp_path / "b.log")
    assert first.pids != second.pids
    assert not psutil.pid_exists(first.pids[0])
    assert server.metrics().counts.drafted == 0


def test_flags_accepted_and_ignored_are_seen(make: Make, tmp_path: Path) -> None:
    server, manifest = make("ignored-flags")
    begun(server, manifest, NGRAM, tmp_path / "a.log")
    observed = server.observed(server.method(NGRAM, manifest.plan))
    assert observed.differs == {"spec-type": ("ngram-mod", "none")}


def test_a_smaller_context_is_seen(make: Make, tmp_path: Path) -> None:
    server, manifest = make("short-context")
    begun(server, manifest, NONE, tmp_path / "a.log")
    observed = server.observed(server.method(NONE, manifest.plan))
    assert observed.differs == {"context": ("512", "256")}


@pytest.mark.parametrize(
    ("lie", "error"), [("router", RouterError), ("wrong-model", WrongModelError)]
)
def test_a_server_that_is_refused_is_ended(
    make: Make, tmp_path: Path, lie: str, error: type[PeerRuntimeError]
) -> None:
    server, manifest = make(lie)
    with pytest.raises(error):
        begun(server, manifest, NONE, tmp_path / "a.log")
    assert list(tmp_path.glob("*.pid")) == []
    assert error.__dict__["finding"] == lie


def test_a_server_that_is_never_ready(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEAST_READY_S, "llama-server", 0.5)
    server, manifest = make("never-ready")
    hasty = plan_of(manifest.plan.target.model, server.plan, rules=Rules(timeout_s=0.5))
    with pytest.raises(CrashedError, match="not ready after"):
        begun(server, manifest_of(hasty), NONE, tmp_path / "a.log")


def test_a_crash_is_in_what_stop_tells(make: Make, tmp_path: Path) -> None:
    server, manifest = make("crash")
    endpoint = begun(server, manifest, NONE, tmp_path / "a.log")
    errors = ask_some(endpoint, 8)
    assert [bool(error) for error in errors] == [False] * 6 + [True, True]
    assert server.stop()[0] == "crashed: exit code 9 before it was asked to end"


def test_a_reset_of_counters_is_seen(make: Make, tmp_path: Path) -> None:
    server, manifest = make("reset")
    endpoint = begun(server, manifest, NGRAM, tmp_path / "a.log")
    ask_some(endpoint, 2)
    before = server.metrics()
    ask_some(endpoint, 1)
    counts, faults = between(before, server.metrics())
    assert counts.drafted is None
    assert faults[0].startswith("counters-reset: ")


def test_no_metrics_is_no_counts(make: Make, tmp_path: Path) -> None:
    server, manifest = make("no-metrics")
    begun(server, manifest, NONE, tmp_path / "a.log")
    assert (server.metrics().raw, server.metrics().counts.drafted) == ("", None)


def test_a_probe_on_metal_shows_the_path_and_is_repeated(make: Make, tmp_path: Path) -> None:
    server, manifest = make(metal=True)
    method = server.method(NGRAM, manifest.plan)
    probed = server.probe(method, manifest, 1, tmp_path / "probe.log")
    assert probed.kernel_paths == ("kernel_mul_mv_mma_q4_0_f32", "kernel_mul_mv_q4_0_f32")
    assert probed.capability["gpu family"] == "MTLGPUFamilyApple9"
    assert probed.layers_offloaded == 31
    server.start(method, manifest, 1, tmp_path / "a.log")
    observed = server.observed(method)
    assert observed.kernel_paths == probed.kernel_paths
    assert all(line.startswith("untimed probe: ") for line in observed.path_evidence)


def test_without_a_probe_of_the_same_condition_the_path_is_unknown(
    make: Make, tmp_path: Path
) -> None:
    server, manifest = make(metal=True)
    server.probe(server.method(NGRAM, manifest.plan), manifest, 1, tmp_path / "probe.log")
    endpoint = begun(server, manifest, NONE, tmp_path / "a.log")
    ask_some(endpoint)
    observed = server.observed(server.method(NONE, manifest.plan))
    assert observed.kernel_paths == ("unknown",)
    assert observed.capability["gpu family"] == "MTLGPUFamilyApple9"


def test_a_condition_that_cannot_run_is_not_started(make: Make, tmp_path: Path) -> None:
    server, manifest = make("missing-flag")
    condition = ConditionPlan(
        name="c", stage="ngram", method="ngram-simple", parameters={"size_m": 4}
    )
    assert server.method(condition, manifest.plan).not_run
    with pytest.raises(OptionError, match="size-m"):
        begun(server, manifest, condition, tmp_path / "a.log")


@pytest.mark.parametrize(
    "plan",
    [
        RuntimePlan(kind="llama-server"),
        RuntimePlan(kind="llama-server", binary="x", python="y"),
        RuntimePlan(kind="llama-server", binary="x", url="http://y"),
    ],
)
def test_a_plan_that_names_no_program(plan: RuntimePlan) -> None:
    with pytest.raises(OptionError):
        runtime("r", plan)


@pytest.mark.parametrize("binary", ["/nonexistent/llama-server", "/bin/true"])
def test_a_program_that_is_none(tmp_path: Path, binary: str) -> None:
    server = runtime("r", RuntimePlan(kind="llama-server", binary=binary))
    with pytest.raises(PeerRuntimeError):
        server.identity(tmp_path)


def test_servers_left_over_by_a_killed_lab_are_ended(make: Make, tmp_path: Path) -> None:
    server, manifest = make()
    logs = tmp_path / "logs"
    pid = begun(server, manifest, NONE, logs / "a.log").pids[0]
    (logs / "torn.pid").write_text("[1, ")
    (logs / "other.pid").write_text(f"[{os.getpid()}, 1.5]")  # a number given away since
    assert end_left_over(logs) == (pid,)
    assert list(logs.glob("*.pid")) == []
    time.sleep(0.1)
    assert server.stop()[0] == f"crashed: exit code {-signal.SIGKILL} before it was asked to end"
