"""What a user asks the lab: plan.toml as frozen structs.

A plan says what is to be decided and by which rules; it names files and programs and holds nothing
that was found out about them (that is the manifest's). Unknown keys are errors that name the
nearest known one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from slipstream.measure.workload import STRATA

RuntimeKind = Literal["slipstream", "llama-server", "openai"]
Stage = Literal["none", "ngram", "ngram-sweep", "draft-simple", "trained", "slots", "sampler"]
ArrivalKind = Literal["closed", "poisson", "recorded"]
Judgement = Literal["exact", "schema", "tools", "rubric"]
ComparisonRule = Literal["ids", "text"]
SAME: Final = "same"
"""``Plan.rollback``: each runtime is its own previous build."""

_STAGES: Final = ("greedy", "sampler", "rollback", "trial", "logits", "paths", "isolation")
WORDS: Final = frozenset({*_STAGES, "none", "mix", "target", "runtime", "default", "unknown"})
"""What records, manifests, reports and profiles call things of their own: names of nothing else."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model file. Prevents: a file whose origin and terms only its path hints at.

    Attributes:
        model: a path or a catalogue name.
        source, revision, licence, terms, trained_by: where the plan's author knows better than the
            file and the catalogue; empty = as those say, else ``unknown``.
        pairing: of a draft: tokenizer, vocabulary, template or architecture -> the source that
            confirms it where the files alone do not tell; files that contradict it win.
    """

    model: str
    source: str = ""
    revision: str = ""
    licence: str = ""
    terms: str = ""
    trained_by: str = ""
    pairing: Mapping[str, str] = {}


class RuntimePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program to measure. Prevents: a series of whatever binary lay there that day.

    Attributes:
        kind: which of ``lab.runtimes``.
        binary: path of llama-server's binary; empty for the others.
        python: interpreter of an environment that has the wheel ``xllamacpp`` (kind llama-server).
        url: of a server that runs already (kind openai).
        api_key_file: whose first line is the key of that server.
        flags: given to every start, checked against the program's own help.
        release, commit, compiler, build_options, terms: what the plan's author knows of it.
        device: placement asked for, as its flags say it (layers, draft device, KV types).
    """

    kind: RuntimeKind
    binary: str = ""
    python: str = ""
    url: str = ""
    api_key_file: str = ""
    flags: tuple[str, ...] = ()
    release: str = ""
    commit: str = ""
    compiler: str = ""
    build_options: str = ""
    terms: str = ""
    device: Mapping[str, str] = {}


class ConditionPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way of drafting. Prevents: two changes at a time, and values nobody chose.

    Attributes:
        name: unique; ``none`` is always there and need not be listed.
        stage: which rung of the ladder it belongs to (``conditions.STAGES``).
        method: llama.cpp's or our name of the method.
        parameters: passed explicitly; those left out are the runtime's, and recorded.
        starting_point: that the values are a starting point and no recommendation.
        draft: key of ``Plan.drafts``; empty where the method needs no model.
        varies: the one parameter that a sweep varies against its parent; empty elsewhere.
        parent: the condition that a sweep varies.
        rows_range: least and most rows of a step of this condition (a most of 0 = any); 0, 0 =
            what the rules say.
    """

    name: str
    stage: Stage
    method: str = "none"
    parameters: Mapping[str, Any] = {}
    starting_point: bool = False
    draft: str = ""
    varies: str = ""
    parent: str = ""
    rows_range: tuple[int, int] = (0, 0)


class Arrivals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests come. Prevents: latency of one stream read as throughput under load.

    Attributes:
        kind: ``closed`` = each client asks again when it has its answer.
        slots: requests at a time that the runtime is started for.
        rate_per_s: of ``poisson``.
        file: of ``recorded``: JSONL with ``at_s`` and ``prompt``.
        mix: stratum -> share of the requests; empty = equal shares.
    """

    kind: ArrivalKind = "closed"
    slots: int = 1
    rate_per_s: float = 0.0
    file: str = ""
    mix: Mapping[str, float] = {}


class Tenants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who must not learn of one another. Prevents: drafts made of what another tenant wrote.

    Attributes:
        names: of tenants, each a session or key of its own; empty = none are declared.
    """

    names: tuple[str, ...] = ()


class SamplingPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sampling of every request. Prevents: outputs that differ by their dice taken for a defect.

    Attributes:
        seed: of prompt i it is ``seed + i``.
        max_tokens: most of an output; a prompt's own limit may be lower.
        stop: texts that end an output.
        sampler: the user's real sampler (``SamplingOptions``' keys); empty = no second stage.
    """

    seed: int = 1
    max_tokens: int = 96
    stop: tuple[str, ...] = ()
    sampler: Mapping[str, Any] = {}


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fixed before the first request. Prevents: a rule that is learnt from a result, ours or not.

    Attributes:
        comparison: what equality with ``none`` is taken of.
        tolerance_logit_gap: a top-2 gap below it makes a divergence a near-tie.
        margin: least speed-up minus 1 that is worth adopting.
        slo_total_s, slo_tok_s, slo_ttft_s: limits of medians; 0 = none.
        memory_margin_bytes: most peak memory over ``none``.
        timeout_s: of a request.
        repeats: blocks of every condition and stratum, at least 5 for a verdict.
        warm_up: requests before a block, on prompts of their own.
        drift_limit: relative; a block beyond it is repeated, then inconclusive.
        rows_range: least and most rows of a step; a condition outside it is rejected. 0, 0 = any.
        budget_s: seconds for the whole run; 0 = none.
        confidence: of intervals.
    """

    comparison: ComparisonRule = "ids"
    tolerance_logit_gap: float = 0.05
    margin: float = 0.05
    slo_total_s: float = 0.0
    slo_tok_s: float = 0.0
    slo_ttft_s: float = 0.0
    memory_margin_bytes: int = 1 << 30
    timeout_s: float = 600.0
    repeats: int = 5
    warm_up: int = 1
    drift_limit: float = 0.2
    rows_range: tuple[int, int] = (0, 0)
    budget_s: float = 0.0
    confidence: float = 0.95


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the run is to decide. Prevents: an answer to a question that nobody asked.

    Attributes:
        text: the report's first line.
        pages: official pages consulted: ``url``, ``commit``, ``at`` (date-time with zone).
    """

    text: str = "Does speculation pay on this machine, with these files, for these workloads?"
    pages: tuple[Mapping[str, str], ...] = ()


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two builds under conditions that differ in rows alone; without builds, a study.

    Prevents: a change that every build shows, or none of rows, credited to few-row kernels.

    Attributes:
        builds: A and B, keys of ``Plan.runtimes``; figures are B's over A's.
        inside: the condition whose rows lie within the few-row range.
        outside: the one whose rows lie beyond it, everything else fixed.
        same_build: A and B are one build: a check of the procedure (A/A), told as that alone.
    """

    builds: tuple[str, ...] = ()
    inside: str = ""
    outside: str = ""
    same_build: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole plan.toml. Prevents: a run that cannot be asked again in the same words.

    Attributes:
        name: of the run, in paths: letters, digits, ``-``.
        target: the model that answers.
        drafts: key -> draft model.
        runtimes: name -> program; one for a study, two for a build comparison.
        comparison: which of them are builds to compare, and under what; empty = a study.
        conditions: beside ``none``.
        strata: tasks or strata of ``workloads``, each a file there.
        workloads: folder; empty = the one that comes with Slipstream.
        imports: files of other sets (``lab.importers``): path -> format, or ``format:category,..``.
        typical: ids of the long prompts that are typical of the real load; empty = those marked so
            in the workloads.
        share_texts: texts that did not come with Slipstream may appear in reports.
        prompts: most of each stratum.
        threads, context: asked for, of every runtime.
        cold: measure the first request of a process instead of warm ones.
        rollback: the runtime that is the kept previous build, started with ``none`` once more at
            the end and studied no further; ``same`` = what is in use now is each runtime itself
            without drafting, so that the way back is to switch drafting off; empty = nothing is
            kept, and nothing can be adopted.
        question: what is to be decided.
        sampling, arrivals, tenants: how requests sample, when they come, and who sends them.
        rules: that decide a verdict.
        power, cooling, load_note: what only a person can know; empty = ``unknown``.
    """

    name: str
    target: Artifact
    runtimes: Mapping[str, RuntimePlan]
    drafts: Mapping[str, Artifact] = {}
    conditions: tuple[ConditionPlan, ...] = ()
    strata: tuple[str, ...] = STRATA
    workloads: str = ""
    imports: Mapping[str, str] = {}
    typical: tuple[str, ...] = ()
    share_texts: bool = False
    prompts: int = 6
    threads: int = 0
    context: int = 4096
    cold: bool = False
    rollback: str = ""
    question: Question = Question()
    sampling: SamplingPlan = SamplingPlan()
    arrivals: Arrivals = Arrivals()
    tenants: Tenants = Tenants()
    rules: Rules = Rules()
    comparison: Comparison = Comparison()
    power: str = ""
    cooling: str = ""
    load_note: str = ""


def rows_range_of(plan: Plan, condition: str) -> tuple[int, int]:
    """Least and most rows of a step of a condition: its own range, else that of the rules."""
    own = (c.rows_range for c in plan.conditions if c.name == condition)
    return next((found for found in own if found != (0, 0)), plan.rules.rows_range)
