"""Everything that a report of the lab shows, as one frozen structure; report.json is its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from slipstream.lab.contract import manifest
from slipstream.lab.contract.plan import Arrivals, Question, Rules, SamplingPlan
from slipstream.lab.contract.records import Counts
from slipstream.lab.evidence.definitions import Figure, PairedRatio
from slipstream.lab.judging.step_rows import StepRows
from slipstream.lab.judging.verdict import Verdict
from slipstream.lab.reporting.published import Claim
from slipstream.lab.running.analysis_reach import Progress, Series

VERSION: Final = 1
"""Of report.json: it rises when a key changes its meaning or goes."""


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Runtime(_Part, frozen=True, kw_only=True):
    """A program, as far as a reader must tell it from others; paths are left out."""

    name: str
    kind: str
    release: str
    commit: str
    binary_sha256: str
    libraries: Mapping[str, str]
    compiler: str
    build_options: str
    isa: str
    backend: str
    driver: str
    terms: str
    help_sha256: str
    flags: tuple[str, ...]
    predicted_paths: tuple[str, ...]
    device: Mapping[str, str]


class Position(_Part, frozen=True, kw_only=True):
    """``position`` in the draft, from 1; ``rate`` = accepted / reached."""

    position: int
    accepted: int
    reached: int
    rate: float | None


class Cell(_Part, frozen=True, kw_only=True):
    """Figures of one runtime x condition x workload x concurrency; None = not measurable.

    Attributes:
        stage: ``greedy`` or ``sampler``.
        outcomes: outcome of a block -> how many; figures rest on ``ok`` alone.
        requests: of those blocks; ``errors`` and ``timeouts`` count failed blocks' too.
        speed: over ``none``, of pairs of blocks; ``speed_of`` says of what.
        rate_ratio, length_ratio: over ``none`` by prompt, where an output is not that of ``none``.
        equal, diverged, missing: outputs beside those of ``none``.
        checks: judgement -> (passed, of).
        phases: as the runtime tells them, shares of the total time; ``clock`` by the client's.
        memory_added_bytes: highest peak over that of ``none``.
        sigma, sigma_source: spread of a pair of blocks of ``none``; ``pairs_needed`` for the plan's
            margin, and ``pairs_to_plan`` for another run.
    """

    runtime: str
    condition: str
    stratum: str
    slots: int
    stage: str
    outcomes: Mapping[str, int]
    requests: int
    errors: int
    timeouts: int
    error_texts: tuple[str, ...]
    speed: PairedRatio | None
    speed_of: str
    rate_ratio: Figure | None
    length_ratio: Figure | None
    total_s: Figure | None
    total_p95_s: float | None
    ttft_s: Figure | None
    ttft_p95_s: float | None
    queue_s: Figure | None
    decode_tok_s: Figure | None
    throughput_tok_s: float | None
    output_tokens: Figure | None
    counts: Counts
    acceptance_rate: float | None
    positions: tuple[Position, ...]
    mean_acceptance_length: float | None
    rows_per_step: float | None
    step_rows: StepRows | None
    tokens_per_pass: float | None
    step_efficiency: float | None
    equal: int
    diverged: int
    missing: tuple[str, ...]
    checks: Mapping[str, tuple[int, int]]
    phases: Mapping[str, float]
    clock: Mapping[str, float]
    peak_rss_bytes: int | None
    memory_added_bytes: int | None
    energy_per_token_j: float | None
    sigma: float | None
    sigma_source: str
    pairs_needed: int | None
    pairs_to_plan: int | None


class Workload(_Part, frozen=True, kw_only=True):
    """A stratum, its question, and what the figures answer, a line per condition.

    Attributes:
        tokens: least and most of a prompt and its limit together; None = unknown.
        typical: prompts that stand for the real load's long sequences.
    """

    name: str
    kind: str
    question: str
    prompts: int
    typical: int
    tokens: tuple[int, int] | None
    judgements: tuple[str, ...]
    licences: tuple[str, ...]
    shared: bool
    answers: tuple[str, ...]


class Moment(_Part, frozen=True, kw_only=True):
    """A block in the order in which they ran; ``total_s`` of its requests, of ``none`` alone."""

    block: int
    attempt: int
    runtime: str
    condition: str
    stratum: str
    stage: str
    slots: int
    outcome: str
    reason: str
    elapsed_s: float
    total_s: float | None
    probe_s: float | None
    drift: float | None
    other_load: float | None


class Seen(_Part, frozen=True, kw_only=True):
    """What a process under a condition showed of itself.

    Attributes:
        predicted: kernel paths by a policy table; never an observation.
        observed: kernel paths that something showed, with ``evidence``; empty = unknown.
        unpredicted, unseen: what only one of both has, where both are known.
        beside: observed steps of a kind that the tables do not choose a kernel of.
        unplaced_rows: rows -> steps of processes of unknown blocks (see ``step_rows.unplaced``).
        layers_offloaded: None where it is unknown, or processes told several (in ``effective``).
        effective: setting -> value; of processes that told several, all in one text.
        differs: setting -> (asked, in effect).
    """

    runtime: str
    condition: str
    predicted: tuple[str, ...]
    observed: tuple[str, ...]
    unpredicted: tuple[str, ...]
    beside: tuple[str, ...]
    unseen: tuple[str, ...]
    evidence: tuple[str, ...]
    capability: Mapping[str, str]
    layers_offloaded: int | None
    unplaced_rows: tuple[Mapping[str, int], ...]
    effective: Mapping[str, Any]
    differs: Mapping[str, tuple[str, str]]


class Finding(_Part, frozen=True, kw_only=True):
    """``effect``: what it makes of a verdict; ``note`` = the gates decide."""

    name: str
    effect: str
    text: str
    runtime: str
    condition: str
    stratum: str
    slots: int
    stops: bool


class Divergence(_Part, frozen=True, kw_only=True):
    """A prompt whose output leaves that of ``none``, with the texts around the place.

    Attributes:
        shown_by: how the cause was established, or why it is not.
        repeats: requests with it.
        before: what both have before it; ``none`` and ``other`` go on from there.
        withheld: why no texts stand here; empty = they do.
    """

    runtime: str
    condition: str
    stratum: str
    slots: int
    prompt: str
    at: int | None
    gap: float | None
    cause: str
    shown_by: str
    repeats: int
    before: str
    none: str
    other: str
    withheld: str


class Analysis(_Part, frozen=True, kw_only=True):
    """A whole report; a function of a run's folder alone.

    Attributes:
        cells: ``none`` included, in the order of the plan.
        builds: the two that the plan compares; empty = it compares none.
        moments: every block that ended, repeated ones included.
    """

    version: int = VERSION
    run: str
    manifest_sha256: str
    created: str
    slipstream: str
    name: str
    question: Question
    scope: tuple[str, ...]
    progress: Progress
    rules: Rules
    sampling: SamplingPlan
    arrivals: Arrivals
    observation: manifest.Observation
    threads: int
    context: int
    tenants: tuple[str, ...]
    rollback: str
    builds: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    workloads: tuple[Workload, ...]
    cells: tuple[Cell, ...]
    series: tuple[Series, ...]
    moments: tuple[Moment, ...]
    seen: tuple[Seen, ...]
    divergences: tuple[Divergence, ...]
    runtimes: tuple[Runtime, ...]
    artifacts: tuple[manifest.ArtifactIdentity, ...]
    pairings: tuple[manifest.Pairing, ...]
    methods: tuple[manifest.MethodIdentity, ...]
    hardware: manifest.Hardware
    prompts: tuple[manifest.PromptIdentity, ...]
    claims: tuple[Claim, ...]
