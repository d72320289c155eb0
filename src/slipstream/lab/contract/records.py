"""What a run leaves: one record per request, one per block, findings; append-only JSON lines.

A record is a fact about one request. Counts are stored, never ratios alone; what was not measured
is None or ``unknown`` and has a reason where one is known. The bounds of the types below are
checked when a line is read and before one is written.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

OutputCause = Literal["near-tie", "numeric path", "defect", "unknown"]
STEPS: Final = "steps"
"""Denominator of a position: all verification steps, however short their drafts."""
REACHED: Final = "drafts that reached it"
"""Denominator of a position: drafts of which verification examined a token there."""
FORMAT: Final = 1
"""Of the records; ``RunRecord.format``."""

Moment = Annotated[float, msgspec.Meta(ge=-1e8, le=1e8)]
"""Seconds of the client's clock, from the block's start."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e8)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
"""Or another amount that a program tells."""
Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Number = Annotated[int, msgspec.Meta(ge=0, le=10**7)]
"""Of a block, an attempt or a request."""
Digest = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
StageWord = Annotated[
    str, msgspec.Meta(pattern="^(greedy|sampler|rollback|trial|logits|paths|isolation)$")
]
OutcomeWord = Annotated[str, msgspec.Meta(pattern="^(ok|repeated|inconclusive|failed)$")]
VerdictWord = Annotated[str, msgspec.Meta(pattern="^(equal|diverged)?$")]
SourceWord = Annotated[str, msgspec.Meta(pattern="^(request|counters|unknown)$")]


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="is"):
    pass


class RunRecord(_Line, frozen=True, kw_only=True, tag="run"):
    """The first record of a run: the rules and files that all others are records of.

    Attributes:
        manifest_sha256: of ``manifest.json`` when the run began.
        format: of the records.
    """

    run: str
    manifest_sha256: Digest
    format: int = FORMAT


class Divergence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an output leaves that of ``none``.

    Attributes:
        at: index of the first token (or character, by the plan's rule) that differs.
        gap: of the two best logits (log-probabilities) there in the baseline; None = not available.
        cause: as known then; a row probe may tell more afterwards (``lab.scheduling.divergences``).
        baseline: file of the output of ``none`` that it was compared with.
        tokens: of ``none`` and of this output there; None = one of them ended, or no ids.
    """

    at: Count
    gap: Rate | None = None
    cause: OutputCause = "unknown"
    baseline: str = ""
    tokens: tuple[int, int] | None = None


class RowProbe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of a divergence, asked of ``none`` once more: one token after all before it.

    It is computed as one of a prompt's many rows, as a verification computes it, where plain
    decoding computed it as one row.

    Attributes:
        baseline, at, tokens: of the divergence.
        given: the token that came; None = none did.
    """

    baseline: str
    at: Count
    tokens: tuple[int, int]
    given: int | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drafting of one request, or of a quiet window.

    Attributes:
        drafted, accepted, steps: None where the runtime does not tell.
        accepted_at: accepted at position i; ``reached_at`` is its denominator.
        reached_at: what ``denominator`` says, ``REACHED`` or ``STEPS``; of steps all are equal.
        source: ``request``, ``counters`` (differences around a quiet window) or ``unknown``.
        rows_per_step: mean rows of a verification step (drafted / steps + 1), where known.
    """

    drafted: Count | None = None
    accepted: Count | None = None
    steps: Count | None = None
    accepted_at: tuple[Count, ...] = ()
    reached_at: tuple[Count, ...] = ()
    denominator: str = ""
    source: SourceWord = "unknown"

    @property
    def rows_per_step(self) -> float | None:
        if self.drafted is None or not self.steps:
            return None
        return self.drafted / self.steps + 1


class RequestRecord(_Line, frozen=True, kw_only=True, tag="request"):
    """One request.

    Attributes:
        run: the manifest's.
        block: number of the block in the run; ``index`` of the request within it.
        attempt: of the block: a block beyond the drift limit is repeated once.
        runtime, condition, stratum, prompt: names of the manifest.
        stage: ``greedy`` or ``sampler``; ``rollback``, which its gate alone compares; of blocks
            that no figure is made of ``trial``, ``logits``, ``paths`` or ``isolation`` (their
            requests have ``warm_up`` set).
        slots: concurrency asked for.
        cold: the first request of its process.
        warm_up: not part of any figure.
        tenant: or empty.
        sent_s, first_s: client's clock from the block's start; None where nothing came.
        token_times_s: of every streamed piece, from ``sent_s``.
        queue_s: as the runtime tells it.
        total_s: from ``sent_s`` to the end.
        prompt_tokens, output_tokens: as the runtime counts them; None where it does not.
        prompt_tok_s, decode_tok_s: as the runtime tells them.
        phases: seconds of each phase (draft, verify, sample, commit), where told.
        counts: of drafting.
        peak_rss_bytes: of the runtime's processes so far; ``energy_j`` of the request.
        text_sha256, ids_sha256: of the output; ids where the runtime returns them.
        finish_reason: the runtime's.
        judged: judgement -> passed; ``verdict`` equal, diverged or "" (nothing to compare with).
        diagnostics: what was noticed (degenerate text, a slow reader, ...).
        error: empty, or what went wrong; an error is never a result. ``timed_out`` tells one kind.
        output: file beside the records that holds text and ids, by digest.
        row_probe: the divergence that a request of a ``paths`` block answers.
    """

    run: str
    block: Number
    attempt: Number = 1
    index: Number
    runtime: str
    condition: str
    stratum: str
    prompt: str
    stage: StageWord = "greedy"
    slots: Number = 1
    cold: bool = False
    warm_up: bool = False
    tenant: str = ""
    sent_s: Moment = 0.0
    first_s: Moment | None = None
    token_times_s: tuple[Seconds, ...] = ()
    queue_s: Rate | None = None
    total_s: Seconds | None = None
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    prompt_tok_s: Rate | None = None
    decode_tok_s: Rate | None = None
    phases: dict[str, Rate] = {}
    counts: Counts = Counts()
    peak_rss_bytes: Count | None = None
    energy_j: Rate | None = None
    text_sha256: Digest = ""
    ids_sha256: Digest = ""
    finish_reason: str = ""
    judged: dict[str, bool] = {}
    verdict: VerdictWord = ""
    divergence: Divergence | None = None
    diagnostics: tuple[str, ...] = ()
    error: str = ""
    timed_out: bool = False
    output: str = ""
    row_probe: RowProbe | None = None


class BlockRecord(_Line, frozen=True, kw_only=True, tag="block"):
    """One block: a fresh process, warm-up, one pass over a stratum.

    Attributes:
        outcome: ``ok``, ``repeated`` (beyond the drift limit), ``inconclusive``, ``failed``.
        drift: relative change of the machine's probe within it, or against the blocks before it,
            the larger one; None = unknown.
        counters: the runtime's before and after, raw text in ``metrics_before`` and ``_after``.
        observed: what the process said of itself (see ``ObservedRecord``), by digest.
        log: file of the server's log, and what was found in it.
        repeat: round of the series; ``baseline`` the block of ``none`` that it is paired with,
            None for ``none`` itself and for blocks that no figure is made of.
        probe_s: seconds of the machine's probe, the slower of those before and after.
        other_load: share of the processors that other programs kept busy around it.
        requests: lines of this attempt, warm-ups included; ``requests_sha256`` over their bytes.
        seal: of ``lab.evidence.seals``, over this record and all lines since the one before.
            These three are filled in when the record is written; records from before have none.
    """

    run: str
    block: Number
    attempt: Number = 1
    runtime: str
    condition: str
    stratum: str
    stage: StageWord = "greedy"
    slots: Number = 1
    began: str
    elapsed_s: Seconds
    outcome: OutcomeWord
    reason: str = ""
    drift: Moment | None = None
    counts: Counts = Counts()
    peak_rss_bytes: Count | None = None
    energy_j: Rate | None = None
    metrics_before: str = ""
    metrics_after: str = ""
    log: str = ""
    log_findings: tuple[str, ...] = ()
    repeat: Number = 0
    baseline: Number | None = None
    probe_s: Seconds | None = None
    other_load: Rate | None = None
    requests: Number | None = None
    requests_sha256: Digest = ""
    seal: Digest = ""


class ObservedRecord(_Line, frozen=True, kw_only=True, tag="observed"):
    """What was learnt of a runtime after it was started under a condition.

    Attributes:
        effective: flag or option -> value in effect, as the program tells it.
        differs: option -> (asked, effective), where both are known and differ.
        capability: what the device said (family, tensor API, instruction sets).
        layers_offloaded: or None.
        block, attempt: whose process told ``rows_histogram`` after its pass, one record per process
            even where two tell the same; None = settings and paths alone, or an earlier version's
            record, whose rows are those of some process with its warm-up.
        rows_histogram: rows -> steps since the process's start; empty where the runtime tells only
            a mean. ``rows_before``: that part before the pass, warm-up's; None = not told.
        kernel_paths: observed; ``unknown`` until something was observed.
        path_evidence: the lines or endpoint that show it.
    """

    run: str
    runtime: str
    condition: str
    at: str
    effective: dict[str, Any] = {}
    differs: dict[str, tuple[str, str]] = {}
    capability: dict[str, str] = {}
    layers_offloaded: Count | None = None
    block: Number | None = None
    attempt: Number = 0
    rows_histogram: dict[str, Count] = {}
    rows_before: dict[str, Count] | None = None
    kernel_paths: tuple[str, ...] = ("unknown",)
    path_evidence: tuple[str, ...] = ()


class FindingRecord(_Line, frozen=True, kw_only=True, tag="finding"):
    """Something that a reader must know; ``stops`` = the run or the condition ended by it.

    Attributes:
        name: one of ``findings.NAMES``.
        scope: runtime, condition, stratum, as far as it reaches; empty = all.
        slots: the concurrency that it was seen at; 0 = all.
    """

    run: str
    name: str
    text: str
    runtime: str = ""
    condition: str = ""
    stratum: str = ""
    slots: Number = 0
    stops: bool = False


Line = RunRecord | RequestRecord | BlockRecord | ObservedRecord | FindingRecord
