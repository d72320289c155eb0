"""The format of a trace: one JSON object per line, told apart by ``kind``.

A ``header`` comes first. An ``engine`` introduces each set of speculation options before its first
round. A ``round`` is a target pass that sampled for a sequence; the rounds of one pass follow one
another. An ``end`` closes a request. Sequence ids differ over all engines of a trace.

A trace holds token ids of outputs and of drafts, never prompts, and no names of sessions.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipstream.drafters.base import GRAMMAR
from slipstream.errors import TraceError

VERSION = 1
MOST_LINE_BYTES = 4 << 20
MOST_NODES = 4096  # of a proposal and of a verified tree

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(max_length=256)]
Tokens = Annotated[tuple[Annotated[int, Meta(ge=0, le=(1 << 31) - 1)], ...], Meta(max_length=4097)]
Parents = Annotated[tuple[Annotated[int, Meta(ge=-1, lt=MOST_NODES)], ...], Meta(max_length=4096)]
Nodes = Annotated[tuple[Annotated[int, Meta(ge=0, lt=MOST_NODES)], ...], Meta(max_length=4096)]
Names = Annotated[tuple[Name, ...], Meta(max_length=4096)]
Drafters = Annotated[tuple[Name, ...], Meta(max_length=64)]
Estimates = Annotated[tuple[Probability, ...], Meta(max_length=4096)]
Reasons = Annotated[dict[str, Count], Meta(max_length=1024)]


class _Record(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"
):
    pass


class Header(_Record, frozen=True, kw_only=True, tag="header"):
    """What ran.

    Attributes:
        version: of the format.
        model: as the user named it.
        sha256: of the model file, where it is known.
        backend, isa, precision, kv_type, threads: as they ran; empty or None where unknown.
        options: of the model and the engine.
    """

    version: Count
    model: str
    sha256: str | None = None
    backend: str = ""
    isa: str = ""
    precision: str = ""
    kv_type: str = ""
    threads: int | None = None
    options: dict[str, Any] = {}


class EngineRecord(_Record, frozen=True, kw_only=True, tag="engine"):
    """One set of speculation options.

    Attributes:
        engine: its number in this trace.
        drafters: in order of precedence.
        verifier: the rule.
        options: of speculation.
    """

    engine: Count
    drafters: Names = ()
    verifier: str = ""
    options: dict[str, Any] = {}


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One drafter's proposal: ``engine.controller.Proposal``.

    Attributes:
        probabilities: estimates per node; empty = none.
        seconds: of the call, which may have served ``shared`` sequences.
    """

    method: Name
    cap: Count
    tokens: Tokens = ()
    parents: Parents = ()
    probabilities: Estimates = ()
    seconds: Seconds = 0.0
    shared: Annotated[int, Meta(ge=1, le=1 << 20)] = 1


class RoundRecord(_Record, frozen=True, kw_only=True, tag="round"):
    """One target pass of one sequence: ``Decision`` and ``Round`` of the engine.

    Attributes:
        engine: number of its engine.
        sequence: of the request.
        step: number of the pass, over all sequences of the engine.
        prompt: whether the rows were the end of its prompt; otherwise it decoded.
        time_s: clock reading when the verdict was known.
        nodes, context, drawn, affordable, coming: its room (``engine.controller.Room``); ``coming``
            is absent where ``nodes`` says it.
        drafters: that the sequence chose, in order of precedence; absent = all of its engine's.
        scope: a number for the room's scope, whose name may be a secret; another one once what was
            learned there was erased.
        reason: why the controller verified nothing.
        asked: the drafters that were asked, in order.
        tokens, parents, methods: the verified tree.
        path: accepted nodes.
        sampled: the accepted tokens and the next one.
        rejected: whether the walk ended at a node whose children all differed.
        tested, emitted, discarded, cut_for_time: as in ``engine.statistics.Round``.
        rows: of this sequence; ``pass_rows`` of the whole pass, ``prompt_rows`` of them prompt.
        draft_s, verify_s, sample_s, commit_s: seconds of the whole pass by phase: choosing and
            asking drafters, the target's pass, sampling and comparing, committing and telling.
        reasons: why drafts were not verified -> how many.
    """

    engine: Count
    sequence: Count
    step: Count
    prompt: bool
    time_s: float
    nodes: int
    context: Count
    drawn: bool
    affordable: Count
    scope: Count
    asked: Annotated[tuple[Asked, ...], Meta(max_length=64)]
    tokens: Tokens
    parents: Parents
    methods: Names
    path: Nodes
    sampled: Tokens
    rejected: bool
    tested: Count
    emitted: Count
    discarded: Count
    cut_for_time: Count
    rows: Count
    pass_rows: Count
    prompt_rows: Count
    draft_s: Seconds
    verify_s: Seconds
    sample_s: Seconds
    commit_s: Seconds
    reason: Annotated[str, Meta(max_length=1000)] = ""
    reasons: Reasons = {}
    drafters: Drafters | UnsetType = UNSET
    coming: Count | UnsetType = UNSET


class End(_Record, frozen=True, kw_only=True, tag="end"):
    """A request is over.

    Attributes:
        finish_reason: ``stop``, ``length``, ``cancelled`` or ``error``.
        summary: the request's statistics, without its rounds; by ``warm`` among them, requests
            that started warm are told from cold ones.
        reasons: why drafts were not verified, of those that no round has.
        drafters: as in a round.
        private: true where what was learned of it was erased with it.
    """

    engine: Count
    sequence: Count
    finish_reason: Name
    summary: dict[str, Any]
    reasons: Reasons = {}
    drafters: Drafters | UnsetType = UNSET
    private: bool | UnsetType = UNSET


Record = Header | EngineRecord | RoundRecord | End

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """One line, its newline included."""
    return _ENCODER.encode(record) + b"\n"


def decode(line: bytes, number: int) -> Record:
    """The record of a line.

    Args:
        number: of the line, for messages.

    Raises:
        TraceError: it is not whole, no record, or holds what no engine can have done.
    """
    if not line.endswith(b"\n"):
        raise TraceError(
            "a trace of whole lines",
            f"line {number} ends before its end",
            "The writer was killed or the disk was full: remove that line, or trace again.",
        )
    try:
        record = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _malformed(number, str(problem)) from None
    if isinstance(record, RoundRecord):
        fault = _fault(record)
        if fault is not None:
            raise _malformed(number, fault)
    return record


def _malformed(number: int, fault: str) -> TraceError:
    return TraceError(
        f"a record of a trace (format {VERSION})",
        f"line {number}: {fault:.200}",
        "Trace again with this version.",
    )


def _fault(record: RoundRecord) -> str | None:
    """What contradicts itself."""
    for asked in record.asked:
        fault = _tree_fault(asked.tokens, asked.parents)
        if fault is None and len(asked.probabilities) not in (0, len(asked.tokens)):
            fault = "estimates differ in number from tokens"
        if fault is not None:
            return f"proposal of {asked.method}: {fault}"
    if record.drafters is not UNSET:
        names = {asked.method for asked in record.asked}.union(record.methods)
        if names.difference(record.drafters, {GRAMMAR}):
            return "drafters that the sequence did not choose"
    fault = _tree_fault(record.tokens, record.parents)
    if fault is not None or len(record.methods) != len(record.tokens):
        return f"verified tree: {fault or 'methods differ in number from tokens'}"
    parent = -1
    for node in record.path:
        if node >= len(record.parents) or record.parents[node] != parent:
            return "the accepted path is no path of the verified tree"
        parent = node
    if tuple(record.tokens[node] for node in record.path) != record.sampled[:-1]:
        return "the accepted tokens are not those of the accepted path"
    return None


def _tree_fault(tokens: tuple[int, ...], parents: tuple[int, ...]) -> str | None:
    if len(tokens) != len(parents):
        return "parents differ in number from tokens"
    if any(parent >= node for node, parent in enumerate(parents)):
        return "a parent does not come before its child"
    if len(set(zip(parents, tokens, strict=True))) != len(tokens):
        return "siblings with the same token"
    return None
