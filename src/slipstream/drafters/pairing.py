"""Whether a draft model's token ids mean what the target's mean: checked before anything is served.

As llama.cpp (methods.md 1.2): same kind of tokeniser, the same boundary tokens where prompts get
them, the same texts. There is no bound on the difference in size, for every id that both have is
compared (llama.cpp leaves out the first five): ids beyond the smaller vocabulary are never drafted.
"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.errors import PairingError
from slipstream.tokenizer import Tokenizer

SHOWN = 3
"""Differing ids that an error names."""


def require_same_vocabulary(target: Tokenizer, draft: Tokenizer, name: str) -> None:
    """
    Args:
        name: of the draft model, for the message.

    Raises:
        PairingError: names the first ids whose texts differ, or what else does.
    """
    fault = _kind_fault(target, draft) or _text_fault(target, draft)
    if fault is not None:
        expected, found = fault
        raise PairingError(
            f"draft model {name} to have the target's vocabulary: {expected}",
            found,
            "Use one of the same family, or go on without it (`draft_fallback`, --draft-fallback).",
        )


def _kind_fault(target: Tokenizer, draft: Tokenizer) -> tuple[str, str] | None:
    for what, wanted, found in _kinds(target, draft):
        if wanted != found:
            return f"{what} {wanted}", f"{found}"
    return None


def _kinds(target: Tokenizer, draft: Tokenizer) -> Iterator[tuple[str, object, object]]:
    yield "tokenizer type", target.kind, draft.kind
    yield "add_bos", target.add_bos, draft.add_bos
    yield "add_eos", target.add_eos, draft.add_eos
    if target.add_bos:
        yield "BOS id", target.bos_id, draft.bos_id
    if target.add_eos:
        yield "EOS id", target.eos_id, draft.eos_id


def _text_fault(target: Tokenizer, draft: Tokenizer) -> tuple[str, str] | None:
    size = min(target.vocabulary_size, draft.vocabulary_size)
    wanted, found = target.texts[:size], draft.texts[:size]
    if wanted == found:
        return None
    differing = [i for i in range(size) if wanted[i] != found[i]]
    shown = differing[:SHOWN]
    more = f" ({len(differing)} ids differ)" if len(differing) > SHOWN else ""
    return (
        ", ".join(f"id {i} = {wanted[i]!r:.40}" for i in shown),
        ", ".join(f"id {i} = {found[i]!r:.40}" for i in shown) + more,
    )
