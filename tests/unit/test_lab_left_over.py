"""A run that goes on after a kill ends the servers that it finds left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import tiny_model
from lying_runtime import stand_in
from slipstream.lab.contract.plan import Artifact, Plan, Rules, RuntimePlan, SamplingPlan
from slipstream.lab.evidence.store import RECORDS, measured, read_records
from slipstream.lab.freezing.freeze import freeze
from slipstream.lab.observation.probe import Reading
from slipstream.lab.running.run import run
from slipstream.lab.running.tools import real_tools
from slipstream.lab.runtimes.registry import runtimes


def test_a_server_that_a_killed_run_left_behind_is_ended(tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "model.gguf", "llama", context=4096)
    plan = Plan(
        name="left", target=Artifact(model=str(target)), context=4096, prompts=1,
        runtimes={"peer": RuntimePlan(kind="llama-server", binary=str(stand_in(tmp_path)))},
        strata=("repetitive",), sampling=SamplingPlan(max_tokens=8), rules=Rules(repeats=1),
    )  # fmt: skip
    folder, made = tmp_path / "run", runtimes(plan)
    manifest = freeze(plan, made, folder)
    left = runtimes(plan)["peer"]
    left.start(manifest.methods[0], manifest, 1, folder / "logs" / "0000-1-peer.log")
    tools = replace(real_tools(manifest, made, folder), probe=lambda: Reading(0.1, 0.0))
    assert run(folder, manifest, made, tools=tools).ended == "complete"
    assert next(iter(left.stop())).startswith("crashed: exit code -9")
    assert list(folder.rglob("*.pid")) == []
    assert measured(read_records(folder / RECORDS))
