"""What a manifest must be so that it can be run at all; checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.errors import OptionError, RequestError
from slipstream.lab.contract.manifest import UNKNOWN, Manifest
from slipstream.lab.contract.runtimes import Runtime
from slipstream.lab.scheduling import arrivals
from slipstream.measure.workload import WorkloadPrompt


def require_runnable(manifest: Manifest, runtimes: Mapping[str, Runtime]) -> None:
    """
    Raises:
        OptionError: a runtime is missing, nothing is measured, or options contradict each other.
        RequestError: the recorded arrivals are not those of the manifest.
    """
    missing = [r.name for r in manifest.runtimes if r.name not in runtimes]
    if missing or not manifest.runtimes:
        found = f"no `{missing[0]}`" if missing else "none"
        raise OptionError("every runtime of the manifest", found, "Correct the plan.")
    _require_prompts(manifest)
    _require_arrivals(manifest)
    elsewhere = [n for n, r in manifest.plan.runtimes.items() if r.kind == "openai"]
    if manifest.observation.cold and elsewhere:
        raise OptionError(
            "runtimes that can be started anew in a cold run",
            f"`{elsewhere[0]}`, which runs already",
            "Leave out `cold`.",
        )


def _require_prompts(manifest: Manifest) -> None:
    if all(p.warm_up for p in manifest.prompts):
        raise OptionError("a measured prompt", "none", "Name a stratum in the plan.")
    warms = any(p.warm_up for p in manifest.prompts) and manifest.plan.rules.warm_up > 0
    if not (warms or manifest.observation.cold):
        raise OptionError(
            "a warm-up on prompts that are not measured", "none", "Set `warm_up`, or `cold = true`."
        )


def _require_arrivals(manifest: Manifest) -> None:
    asked = manifest.plan.arrivals
    if asked.kind != "closed" and asked.slots < 2:
        raise OptionError(
            f"at least 2 `slots` with {asked.kind} arrivals",
            f"{asked.slots}",
            "Raise `slots`: at one slot every request waits for the one before.",
        )
    frozen = manifest.observation.arrivals_sha256
    if frozen not in ("", UNKNOWN) and arrivals.digest(asked) != frozen:
        raise RequestError(
            "the recorded arrivals of the manifest", "a changed file", "Restore it, or begin anew."
        )
    if asked.mix or asked.kind == "recorded":
        arrivals.mixed(manifest)


def require_texts(manifest: Manifest, prompts: Mapping[str, WorkloadPrompt]) -> None:
    """
    Raises:
        RequestError: a prompt of the manifest is missing, or has another text or judgement by now.
    """
    from slipstream.lab.freezing.workload_sets import is_unchanged

    for identity in manifest.prompts:
        prompt = prompts.get(identity.id)
        if prompt is None or not is_unchanged(prompt, identity):
            raise RequestError(
                f"the prompt `{identity.id[:128]}` as it was, text of SHA-256 {identity.sha256}",
                "none" if prompt is None else f"SHA-256 {prompt.sha256}, or another judgement",
                "Restore the workloads, or begin a new run.",
            )
