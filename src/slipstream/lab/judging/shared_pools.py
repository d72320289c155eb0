"""Whether what a drafter learns from one request can reach another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from slipstream.lab.contract.records import RequestRecord
from slipstream.lab.judging.cells import ISOLATION, MIX, NONE, Cell, Evidence

Scope = Literal["private", "shared", "unknown"]
_SHARED_IN_LLAMA: Final = {
    "ngram-mod": "llama.cpp's ngram-mod keeps one table for all slots",
    "ngram-cache": "llama.cpp's ngram-cache keeps what a slot's earlier requests taught it",
}
_PRIVATE_IN_LLAMA: Final = frozenset({"ngram-simple", "ngram-map-k", "ngram-map-k4v"})
_NO_MEMORY: Final = frozenset(
    {"none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "medusa"}
)
_RISE_OF_OUTPUT: Final = 0.1
"""Accepted tokens more than alone, as a share of the output, from which a pool is shared."""
_KEYS: Final = ("draft_scope", "scope", "spec_draft_scope")
_LOOKUP_FILES: Final = ("ngram_cache_dynamic", "lookup_cache_dynamic", "spec_lookup_cache_dynamic")


def known_scope(evidence: Evidence, cell: Cell) -> tuple[Scope, str]:
    """As ``draft_scope`` and the isolation probe have it; what either shows to be shared is."""
    scope, why = draft_scope(evidence, cell)
    seen, how = probed(evidence, cell)
    if scope != "shared" and seen != "unknown":
        return seen, f"{how}; {why}"
    return scope, why


def probed(evidence: Evidence, cell: Cell) -> tuple[Scope, str]:
    """Whether the last tenant drafts better after the others asked the same than alone."""
    tenants = evidence.manifest.plan.tenants.names
    place = Cell(cell.runtime, cell.condition, MIX, len(tenants), ISOLATION)
    passes = {
        b.record.repeat: _accepted([r for r in b.requests if tenants and r.tenant == tenants[-1]])
        for b in evidence.blocks(place)
    }
    alone, after = passes.get(0), passes.get(1)
    if alone is None or after is None:
        return "unknown", "no isolation probe"
    more, tokens = after[0] - alone[0], min(after[1], alone[1])
    why = f"{after[0]} tokens accepted after other tenants, {alone[0]} alone, of {tokens}"
    return ("shared" if more > _RISE_OF_OUTPUT * tokens else "private"), why


def _accepted(requests: Sequence[RequestRecord]) -> tuple[int, int] | None:
    """(accepted, output tokens); None where a request failed or does not tell."""
    counts = [(r.counts.accepted, r.output_tokens) for r in requests if not r.error]
    if not counts or len(counts) < len(requests) or any(None in pair for pair in counts):
        return None
    return sum(a or 0 for a, _ in counts), sum(t or 0 for _, t in counts)


def draft_scope(evidence: Evidence, cell: Cell) -> tuple[Scope, str]:
    """How far a condition's drafters learn, and how that is known.

    Sources: for llama.cpp its implementation of the methods; for Slipstream the scope that the
    server says is in effect, else the one asked for. A declared tenant is a session or a key, so
    ``session`` is private.
    """
    method = evidence.method(cell)
    if cell.condition == NONE:
        return "private", "nothing is drafted"
    if method is None:
        return "unknown", "the manifest does not name the method"
    names = [name.strip() for name in method.method.split(",")]
    if set(names) <= _NO_MEMORY:
        return "private", "the drafter learns nothing from texts"
    runtime = evidence.runtime(cell.runtime)
    kind = "" if runtime is None else runtime.kind
    if kind == "llama-server":
        return _of_llama(names)
    if kind == "slipstream":
        return _of_slipstream(evidence, cell)
    return "unknown", "the runtime does not tell how far its drafters learn"


def _of_llama(names: list[str]) -> tuple[Scope, str]:
    for name in names:
        if name in _SHARED_IN_LLAMA:
            return "shared", _SHARED_IN_LLAMA[name]
    if set(names) <= _PRIVATE_IN_LLAMA | _NO_MEMORY:
        return "private", "llama.cpp keeps these drafters per slot and begins them anew"
    return "unknown", "nothing is known of this method's memory"


def _of_slipstream(evidence: Evidence, cell: Cell) -> tuple[Scope, str]:
    method = evidence.method(cell)
    asked = {} if method is None else method.parameters
    for key in _LOOKUP_FILES:
        if asked.get(key):
            return "shared", f"{key}: pieces of every session's texts go into one file"
    effective = [o.effective for o in evidence.observations(cell)]
    told = [settings[key] for settings in effective for key in _KEYS if key in settings]
    found = [*told, *(asked[key] for key in _KEYS if key in asked)]
    value = str(found[0]) if found else "session"
    how = "in effect" if told else ("asked for" if found else "the default")
    if value == "all":
        return "shared", f"draft scope `all`, {how}"
    if value in ("request", "session"):
        return "private", f"draft scope `{value}`, {how}"
    return "unknown", f"draft scope `{value:.40}`, {how}"
