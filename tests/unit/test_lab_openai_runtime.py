"""The runtime ``openai``: servers that run already, known and unknown ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lying_runtime import running
from runtime_manifests import NGRAM, NONE, manifest_of, plan_of
from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.client.client import Prompt, ask_now
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import RuntimePlan
from slipstream.lab.runtimes.faults import IdentityError, RouterError, WrongModelError
from slipstream.lab.runtimes.openai import OpenAI
from slipstream.lab.runtimes.registry import runtime, runtimes

PROMPT = Prompt(messages=({"role": "user", "content": "Count."},))
Make = Callable[..., tuple[OpenAI, Manifest]]


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """A runtime over a server that runs already and tells these lies."""
    target = tmp_path / "model.gguf"
    target.write_bytes(b"GGUF")
    with ExitStack() as stack:

        def build(*lies: str, flags: tuple[str, ...] = (), **facts: Any) -> tuple[OpenAI, Manifest]:
            url = stack.enter_context(running(*lies, flags=flags, **facts))
            wanted = RuntimePlan(kind="openai", url=f"{url}/v1")
            found = runtime("r", wanted)
            assert isinstance(found, OpenAI)
            return found, manifest_of(plan_of(target, wanted))

        yield build


def test_llama_server_at_a_url(make: Make, tmp_path: Path) -> None:
    server, manifest = make(flags=("--spec-type", "ngram-mod", "-c", "512"))
    assert server.identity(tmp_path).commit == "abcdef1"
    method = server.method(NGRAM, manifest.plan)
    assert (method.not_run, method.most_proposed) == ("", "unknown")
    assert method.parameters["claimed.ngram_mod_n_max"] == 16  # nothing of the server tells it
    endpoint = server.start(method, manifest, 1, tmp_path / "x.log")
    assert (endpoint.dialect, endpoint.pids, endpoint.log) == ("llama-chat", (), None)
    assert endpoint.model == "model.gguf"
    assert ask_now(endpoint, PROMPT, {"max_tokens": 12}, timeout_s=10.0).error == ""
    observed = server.observed(method)
    assert observed.effective["flavour"] == "llama.cpp"
    assert observed.effective["spec-type"] == "ngram-mod"
    assert observed.differs == {}
    assert server.metrics().counts.drafted == 16
    assert (server.peak_rss_bytes(), server.stop()) == (None, ())
    assert ask_now(endpoint, PROMPT, {"max_tokens": 3}, timeout_s=10.0).error == ""  # it goes on


def test_a_method_cannot_be_changed_from_here(make: Make, tmp_path: Path) -> None:
    server, manifest = make(flags=("--spec-type", "ngram-mod"))
    server.start(server.method(NGRAM, manifest.plan), manifest, 1, tmp_path / "x.log")
    endpoint = server.start(server.method(NGRAM, manifest.plan), manifest, 1, tmp_path / "x.log")
    ask_now(endpoint, PROMPT, {"max_tokens": 3}, timeout_s=10.0)
    made = server.method(NONE, manifest.plan)
    assert made.not_run == "it was started with ngram-mod, which cannot be changed from here"
    with pytest.raises(OptionError, match="started with"):
        server.start(made, manifest, 1, tmp_path / "x.log")


def test_vllm_is_recognised_and_tells_ids(make: Make, tmp_path: Path) -> None:
    server, manifest = make(metrics="vllm", flags=("--spec-type", "ngram-mod"))
    assert server.method(NGRAM, manifest.plan).not_run
    method = server.method(NONE, manifest.plan)
    assert method.not_run == ""
    endpoint = server.start(method, manifest, 1, tmp_path / "x.log")
    answer = ask_now(endpoint, PROMPT, {"max_tokens": 12}, timeout_s=10.0)
    assert len(answer.ids) == 12
    assert answer.counts.source == "unknown"
    counts = server.metrics().counts
    assert (counts.drafted, counts.accepted, counts.steps) == (16, 8, 4)
    assert server.observed(method).kernel_paths == ("unknown",)


@pytest.mark.parametrize(
    ("lie", "error"), [("router", RouterError), ("wrong-model", WrongModelError)]
)
def test_what_is_refused(
    make: Make, tmp_path: Path, lie: str, error: type[PeerRuntimeError]
) -> None:
    server, manifest = make(lie)
    with pytest.raises(error):
        server.start(server.method(NONE, manifest.plan), manifest, 1, tmp_path / "x.log")


def test_another_commit_than_the_plan_s(make: Make, tmp_path: Path) -> None:
    _, manifest = make()
    url = manifest.plan.runtimes["r"].url
    same = runtime("r", RuntimePlan(kind="openai", url=url, commit="abcdef1234567890"))
    assert same.identity(tmp_path).commit == "abcdef1234567890"
    other = runtime("r", RuntimePlan(kind="openai", url=url, commit="1234567"))
    with pytest.raises(IdentityError, match="b1-abcdef1"):
        other.identity(tmp_path)


def test_nobody_answers(tmp_path: Path) -> None:
    plan = RuntimePlan(kind="openai", url="http://127.0.0.1:1")
    server = runtime("r", plan)
    manifest = manifest_of(plan_of("model.gguf", plan))
    assert server.identity(tmp_path).release == "unknown"
    method = server.method(NONE, manifest.plan)
    with pytest.raises(PeerRuntimeError, match="nobody answers"):
        server.start(method, manifest, 1, tmp_path / "x.log")


def test_a_key_comes_from_a_file(make: Make, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret-1\nanother\n")
    _, manifest = make()
    url = manifest.plan.runtimes["r"].url
    server = runtime("r", RuntimePlan(kind="openai", url=url, api_key_file=str(key)))
    endpoint = server.start(server.method(NONE, manifest.plan), manifest, 1, tmp_path / "x")
    assert endpoint.headers == {"Authorization": "Bearer secret-1"}


@pytest.mark.parametrize("content", [None, b"", b"\xff\n", b"a\x00b\n"])
def test_a_key_file_that_holds_none(tmp_path: Path, content: bytes | None) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_bytes(content)
    plan = RuntimePlan(kind="openai", url="http://127.0.0.1:1", api_key_file=str(key))
    with pytest.raises(OptionError):
        runtime("r", plan).identity(tmp_path)


@pytest.mark.parametrize(
    "plan",
    [
        RuntimePlan(kind="openai"),
        RuntimePlan(kind="openai", url="nonsense://x"),
        RuntimePlan(kind="openai", url="http://x", binary="y"),
        RuntimePlan(kind="openai", url="http://x", flags=("-c", "1")),
        RuntimePlan(kind="slipstream", url="http://x"),
    ],
)
def test_plans_that_contradict_themselves(plan: RuntimePlan) -> None:
    with pytest.raises(OptionError):
        runtime("r", plan)


def test_all_runtimes_of_a_plan() -> None:
    plan = plan_of("model.gguf", RuntimePlan(kind="slipstream"))
    assert {name: found.name for name, found in runtimes(plan).items()} == {"r": "r"}
