"""What a run works with beside its runtimes; a test gives its own, everyone else the real ones."""

from __future__ import annotations

import datetime
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import SlipstreamError
from slipstream.lab.client.asking import Judge, Send
from slipstream.lab.contract.address import address_of
from slipstream.lab.contract.manifest import UNKNOWN, Manifest
from slipstream.lab.contract.plan import RuntimePlan
from slipstream.lab.contract.records import FindingRecord, Line
from slipstream.lab.contract.runtimes import Runtime
from slipstream.lab.observation.probe import Probe, machine_probe
from slipstream.measure.workload import WorkloadPrompt


def now() -> str:
    """Date and time with zone."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def no_energy() -> float | None:
    """Of a machine that does not tell."""
    return None


def no_boundary(manifest: Manifest, lines: Sequence[Line]) -> FindingRecord | None:
    """Nothing ends the run but its end."""
    del manifest, lines
    return None


@dataclass(frozen=True)
class Tools:
    """
    Attributes:
        send: how a request is sent; ``judge`` what its prompt says of the output.
        prompts: id -> text, of every prompt of the manifest.
        probe: of the machine, between blocks.
        digests: of a runtime by name: ``runtime`` and every artifact's role -> SHA-256 found now.
        energy: joules of the machine since some moment; None = it does not tell.
        boundary: asked before each block; a finding ends the whole run, with that as the reason.
        pause: waits so many seconds; ``close`` ends what the tools hold.
    """

    send: Send
    judge: Judge
    prompts: Mapping[str, WorkloadPrompt]
    probe: Probe
    digests: Callable[[str], Mapping[str, str]]
    energy: Callable[[], float | None] = no_energy
    now: Callable[[], str] = now
    boundary: Callable[[Manifest, Sequence[Line]], FindingRecord | None] = no_boundary
    pause: Callable[[float], object] = time.sleep
    close: Callable[[], object] = lambda: None


def is_here(plan: RuntimePlan) -> bool:
    """Whether a runtime works on this machine, so that its probe tells something."""
    host = address_of(plan.url).host if plan.kind == "openai" else "localhost"
    return host in ("localhost", "::1") or host.startswith("127.")


def boundary_of(
    manifest: Manifest, folder: Path
) -> Callable[[Manifest, Sequence[Line]], FindingRecord | None]:
    """The stop conditions of a comparison of builds; a study has none."""
    if not manifest.plan.comparison.builds:
        return no_boundary
    from slipstream.lab.comparing.compare_stops import Watch, changed_files

    return Watch(folder, changed_files)


def real_tools(manifest: Manifest, runtimes: Mapping[str, Runtime], folder: Path) -> Tools:
    """The client, the workloads and the machine.

    Args:
        folder: of the run.

    Raises:
        InputError: a workload or the target's tokenizer cannot be read.
    """
    from slipstream.lab.client.client_send import ClientSend
    from slipstream.lab.observation.energy import EnergyMeter
    from slipstream.lab.tasks.judgements import judge

    meter = EnergyMeter()
    return Tools(
        send=ClientSend(manifest),
        judge=judge,
        prompts=texts_of(manifest),
        probe=machine_probe(),
        digests=lambda name: digests_now(manifest, runtimes, name),
        energy=meter.read_j,
        boundary=boundary_of(manifest, folder),
        close=meter.close,
    )


def texts_of(manifest: Manifest) -> dict[str, WorkloadPrompt]:
    """Prompts of the plan's workloads by id, warm-ups included."""
    from slipstream.lab.freezing.workload_sets import workloads_of

    return {
        prompt.id: prompt
        for workload in workloads_of(manifest.plan)
        for prompt in (*workload.warm_up, *workload.prompts)
    }


def digests_now(manifest: Manifest, runtimes: Mapping[str, Runtime], name: str) -> dict[str, str]:
    """SHA-256 of a runtime's program and of every artifact, read anew; ``unknown`` if it fails."""
    from slipstream.lab.freezing.identity import artifact_identity, draft_role

    plan = manifest.plan
    with tempfile.TemporaryDirectory() as folder:
        found = {"runtime": runtimes[name].identity(Path(folder)).binary_sha256}
    wanted = {"target": plan.target, **{draft_role(k): a for k, a in plan.drafts.items()}}
    for role, artifact in wanted.items():
        try:
            found[role] = artifact_identity(role, artifact).sha256
        except SlipstreamError:
            found[role] = UNKNOWN
    return found
