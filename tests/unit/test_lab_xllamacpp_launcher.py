"""The launcher of the wheel, over a module that has what the wheel has; and without the wheel."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from runtime_manifests import plan_of
from slipstream.errors import PeerRuntimeError
from slipstream.lab.contract.plan import ConditionPlan, RuntimePlan
from slipstream.lab.freezing.help_text import Help
from slipstream.lab.runtimes import llama_flags
from slipstream.lab.runtimes.llama_server import LAUNCHER, LlamaServer
from slipstream.lab.runtimes.xllamacpp_launcher import configure, help_text


class Params(SimpleNamespace):
    def __init__(self) -> None:
        draft = SimpleNamespace(n_max=3, n_min=0, p_min=0.0, mparams=SimpleNamespace(path=""))
        maps = {f"ngram_{k}": SimpleNamespace(size_n=12, size_m=48) for k in ("simple", "map_k")}
        mod = SimpleNamespace(n_match=24, n_min=48, n_max=64)
        super().__init__(
            model=SimpleNamespace(path=""), n_ctx=0, n_parallel=1, hostname="127.0.0.1", port=8080,
            cpuparams=SimpleNamespace(n_threads=-1), endpoint_metrics=False, ctx_shift=False,
            ui=True, verbosity=3,
            speculative=SimpleNamespace(draft=draft, ngram_mod=mod, types=[], **maps),
        )  # fmt: skip


def module() -> Any:
    kinds = SimpleNamespace(
        COMMON_SPECULATIVE_TYPE_NONE=0,
        COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE=6,
        COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE=1,
    )
    return SimpleNamespace(CommonParams=Params, common_speculative_type=kinds)


def test_its_help_lists_what_the_wheel_can_set_and_nothing_else() -> None:
    found = Help(help_text(module()))
    assert found.default("--spec-ngram-simple-size-m") == "48"
    assert found.flags["--spec-type"].choices == ("none", "draft-simple", "ngram-simple")
    assert not found.has("--spec-ngram-map-k4v-size-m")
    assert not found.has("--cache-ram")
    assert found.has("--no-ui")


def test_a_command_line_of_the_lab_sets_the_wheel_s_parameters() -> None:
    helped = Help(help_text(module()))
    wanted = RuntimePlan(kind="llama-server", python=sys.executable)
    plan = plan_of("model.gguf", wanted)
    condition = ConditionPlan(
        name="c", stage="ngram", method="ngram-simple", parameters={"size_m": 9}
    )
    method = llama_flags.method_identity(condition, plan, helped)
    assert method.not_run == ""
    common = llama_flags.common_flags((), helped, threads=True)
    values = {"{target}": "m.gguf", "{context}": "512", "{slots}": "2", "{threads}": "1"}
    words = llama_flags.filled([*common, *method.flags], values)
    params = configure(module(), [*words, "--host", "127.0.0.1", "--port", "99"])
    assert (params.model.path, params.n_ctx, params.n_parallel, params.port) == (
        "m.gguf", 512, 2, 99,
    )  # fmt: skip
    assert params.speculative.types == [6]
    assert params.speculative.ngram_simple.size_m == 9
    assert (params.endpoint_metrics, params.ui, params.cpuparams.n_threads) == (True, False, 1)


class ParamsOfSeveralHosts(Params):
    """A version that listens on a list of addresses."""

    def __init__(self) -> None:
        super().__init__()
        del self.hostname
        self.hostnames = ["127.0.0.1"]


def test_an_address_is_the_only_one_where_a_version_takes_several() -> None:
    several = module()
    several.CommonParams = ParamsOfSeveralHosts
    assert Help(help_text(several)).default("--host") == "127.0.0.1"
    assert configure(several, ["--host", "127.0.0.2"]).hostnames == ["127.0.0.2"]


@pytest.mark.parametrize("words", [["--cache-ram", "1"], ["--spec-ngram-simple-size-m"], ["x"]])
def test_what_the_wheel_cannot_set_is_an_error(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="error: "):
        configure(module(), words)


def test_it_needs_nothing_of_slipstream() -> None:
    code = "import sys, runpy; runpy.run_path(sys.argv[1]); print('slipstream' in sys.modules)"
    words = [sys.executable, "-I", "-c", code, str(LAUNCHER)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_interpreter_without_the_wheel_says_so() -> None:
    server = LlamaServer("r", RuntimePlan(kind="llama-server", python=sys.executable))
    with pytest.raises(PeerRuntimeError, match="xllamacpp"):
        server.method(ConditionPlan(name="none", stage="none"), plan_of("m", server.plan))
