"""The parts of a manifest, each found out or ``unknown``."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from slipstream.catalog import locate
from slipstream.errors import ModelFileError, OperationError, OptionError, SlipstreamError
from slipstream.gguf import open_gguf
from slipstream.lab.contract.manifest import (
    UNKNOWN,
    ArtifactIdentity,
    Manifest,
    MethodIdentity,
    Observation,
    Pairing,
    RuntimeIdentity,
)
from slipstream.lab.contract.plan import Artifact, ConditionPlan, Plan, RuntimePlan
from slipstream.lab.contract.runtimes import Runtime
from slipstream.lab.freezing.binary_identity import completed, own_release
from slipstream.lab.freezing.hardware import describe_hardware
from slipstream.lab.freezing.help_text import Help
from slipstream.lab.freezing.identity import (
    TARGET,
    absent_artifact,
    absent_program,
    artifact_identity,
    draft_role,
)
from slipstream.lab.freezing.pairing import has_heads, pair, unpaired
from slipstream.lab.freezing.predicted_paths import predicted_paths
from slipstream.lab.freezing.workload_sets import prompts_of, questions_of, texts_of
from slipstream.lab.planning.condition_checks import (
    NONE,
    canonical_parameters,
    method_names,
    needs_draft,
)
from slipstream.lab.planning.ready_made import expanded
from slipstream.lab.scheduling import arrivals
from slipstream.options import SpeculationOptions, from_mapping, longest_draft

_DIGITS: Final = 8

Runtimes = Mapping[str, Runtime]
Result = TypeVar("Result")


class Assembly:
    """
    Args:
        runtimes: by the plan's names.
        folder: gets the programs' help texts.
        missing: as ``freeze`` has it.
    """

    def __init__(
        self, plan: Plan, runtimes: Runtimes, folder: Path, missing: list[str] | None
    ) -> None:
        self._plan, self._runtimes, self._folder = settled(plan), runtimes, folder
        self._missing = missing
        # A server elsewhere holds its own files: ours may be here to be named, and need not be.
        self._elsewhere = all(runtime.kind == "openai" for runtime in plan.runtimes.values())

    def manifest(self, at: datetime.datetime) -> Manifest:
        """Everything, found out now; errors as ``freeze``.

        Args:
            at: when, with its zone.
        """
        plan = self._plan
        made = Manifest(
            run="",
            created=at.isoformat(timespec="seconds"),
            slipstream=own_release(),
            plan=plan,
            runtimes=tuple(self._runtime(name) for name in plan.runtimes),
            artifacts=tuple(self._artifacts()),
            pairings=tuple(self._pairing(key) for key in plan.drafts),
            methods=tuple(self._methods()),
            hardware=describe_hardware(plan),
            prompts=prompts_of(plan),
            observation=self._observation(),
            questions=dict(questions_of(plan)),
        )
        name = f"{plan.name}-{at:%Y%m%d-%H%M%S}-{made.digest[:_DIGITS]}"
        return msgspec.structs.replace(made, run=name)

    def _tolerated(self, ask: Callable[[], Result], otherwise: Result) -> Result:
        """An answer; where it cannot be had and that is no error, what stands for it."""
        try:
            return ask()
        except SlipstreamError as problem:
            if self._missing is None:
                raise
            self._missing.append(f"{problem.found} (expected {problem.expected})")
            return otherwise

    def _runtime(self, name: str) -> RuntimeIdentity:
        asked = self._plan.runtimes[name]
        planned = RuntimeIdentity(
            name=name,
            kind=asked.kind,
            release=asked.release or UNKNOWN,
            commit=asked.commit or UNKNOWN,
            compiler=asked.compiler or UNKNOWN,
            build_options=asked.build_options or UNKNOWN,
            terms=asked.terms or UNKNOWN,
            flags=asked.flags,
        )
        return self._tolerated(lambda: self._identified(name), planned)

    def _identified(self, name: str) -> RuntimeIdentity:
        runtime = self._runtimes.get(name)
        if runtime is None:
            raise OptionError(f"a runtime `{name}`", "none of that name", "Correct the plan.")
        asked = self._plan.runtimes[name]
        identity = completed(runtime.identity(self._folder), asked)
        _require_help(identity, self._folder, asked.flags)
        return self._predicted(identity, asked)

    def _predicted(self, identity: RuntimeIdentity, asked: RuntimePlan) -> RuntimeIdentity:
        try:
            model = locate(self._plan.target.model)
        except ModelFileError:
            return identity
        told = predicted_paths(identity, asked, model)
        paths = identity.predicted_paths or told
        return msgspec.structs.replace(identity, predicted_paths=paths)

    def _artifacts(self) -> Iterator[ArtifactIdentity]:
        yield self._artifact(TARGET, self._plan.target)
        for key, draft in self._plan.drafts.items():
            yield self._artifact(draft_role(key), draft)

    def _artifact(self, role: str, artifact: Artifact) -> ArtifactIdentity:
        planned = absent_artifact(role, artifact)
        if self._elsewhere:
            try:
                locate(artifact.model)
            except ModelFileError:
                return planned
        return self._tolerated(lambda: artifact_identity(role, artifact), planned)

    def _pairing(self, key: str) -> Pairing:
        users = [c for c in expanded(self._plan) if c.draft == key]
        artifact = self._plan.drafts[key]
        try:
            with ExitStack() as opened:
                models = (self._plan.target.model, artifact.model)
                target, draft = (opened.enter_context(open_gguf(locate(m))) for m in models)
                return pair(
                    key,
                    target,
                    draft,
                    artifact,
                    methods={name for user in users for name in method_names(user)},
                    kinds={runtime.kind for runtime in self._plan.runtimes.values()},
                    conversations=[p.chat_messages() for p in texts_of(self._plan).values()],
                )
        except SlipstreamError as problem:
            return unpaired(key, f"the files cannot be compared: {problem.found}")

    def _methods(self) -> Iterator[MethodIdentity]:
        """``none`` and every condition, values spelt out and sweeps unfolded, for each runtime."""
        for name in self._plan.runtimes:
            for condition in expanded(self._plan):
                yield self._method(name, condition)

    def _method(self, name: str, condition: ConditionPlan) -> MethodIdentity:
        planned = MethodIdentity(
            condition=condition.name,
            stage=condition.stage,
            method=condition.method,
            parameters=dict(condition.parameters),
            starting_point=condition.starting_point,
            runtime=name,
            most_proposed=most_proposed(condition),
            draft=condition.draft,
            not_run=absent_program(name),
        )
        runtime = self._runtimes.get(name)
        if runtime is None:
            return planned
        made = self._tolerated(lambda: runtime.method(condition, self._plan), planned)
        reason = made.not_run or self._headless(condition)
        return msgspec.structs.replace(made, runtime=name, not_run=reason)

    def _headless(self, condition: ConditionPlan) -> str:
        """Why heads that should lie in the target's own file do not; empty = they do."""
        if condition.draft or "draft-mtp" not in method_names(condition):
            return ""
        try:
            with open_gguf(locate(self._plan.target.model)) as file:
                return "" if has_heads(file) else "the target's file has no nextn tensors"
        except ModelFileError:
            return ""

    def _observation(self) -> Observation:
        plan, rules = self._plan, self._plan.rules
        sources = {name: _metrics_source(r.kind) for name, r in plan.runtimes.items()}
        return Observation(
            cold=plan.cold,
            repeats=rules.repeats,
            timeout_s=rules.timeout_s,
            metrics_source="; ".join(f"{name}: {source}" for name, source in sources.items()),
            arrivals_sha256=self._tolerated(self._arrivals_digest, UNKNOWN),
        )

    def _arrivals_digest(self) -> str:
        return arrivals.digest(self._plan.arrivals)


def settled(plan: Plan) -> Plan:
    """The plan as a manifest's file gives it back: tables in the order of their keys.

    Orders of flags and requests follow from tables, and a run that goes on reads the file.
    """
    return msgspec.json.decode(msgspec.json.encode(plan, order="deterministic"), type=Plan)


def most_proposed(condition: ConditionPlan) -> int | str:
    """Most tokens of a draft as far as the plan alone tells; a program's defaults are its own."""
    methods = method_names(condition)
    if methods == (NONE,):
        return 0
    try:
        options = from_mapping(
            SpeculationOptions, {**canonical_parameters(condition), "type": methods}
        )
    except OptionError:
        return UNKNOWN
    own_default = needs_draft(condition) and options.n_max is None
    return UNKNOWN if own_default else longest_draft(options)


def _metrics_source(kind: str) -> str:
    recognised = "where it is recognised (llama.cpp, vLLM, Slipstream)"
    return f"its /metrics {recognised if kind == 'openai' else 'around each block'}"


def _require_help(identity: RuntimeIdentity, folder: Path, flags: Sequence[str]) -> None:
    """The help text is kept, is the one it says it is, and knows the plan's flags."""
    if not identity.help_file:
        return
    try:
        content = (folder / identity.help_file).read_bytes()
        found = hashlib.sha256(content).hexdigest()
    except OSError as problem:
        content, found = b"", problem.strerror or type(problem).__name__
    if found != identity.help_sha256:
        where = f"the help text of `{identity.name}` in {identity.help_file}"
        expected = f"{where}, SHA-256 {identity.help_sha256}"
        raise OperationError(expected, found, "Check that the folder can be written.")
    faults = Help(content.decode("utf-8", "replace")).faults(flags)
    if faults:
        expected = f"`runtimes.{identity.name}.flags` that the program's --help has"
        raise OptionError(expected, "; ".join(faults), "Correct them; see its help.")
