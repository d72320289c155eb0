"""Printing an output while it is generated, and its JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from slipstream.cli.output import for_terminal, tinted

if TYPE_CHECKING:
    from slipstream.api import Piece


def show(piece: Piece, *, drafts: bool) -> None:
    """Print the text of a piece at once; with ``drafts``, accepted draft tokens are tinted."""
    print(_marked(piece) if drafts else for_terminal(piece.text), end="", flush=True)


def print_pieces(pieces: Iterable[Piece], *, drafts: bool) -> list[Piece]:
    """Print the text as it comes and end the line; returns the pieces."""
    seen = []
    try:
        for piece in pieces:
            seen.append(piece)
            show(piece, drafts=drafts)
    finally:
        if seen:
            print(flush=True)
    return seen


def _marked(piece: Piece) -> str:
    if not piece.tokens:
        return for_terminal(piece.text)
    parts = ((for_terminal(token.text), token.from_draft) for token in piece.tokens)
    return "".join(tinted(text) if accepted and text else text for text, accepted in parts)


def completion_record(pieces: Sequence[Piece]) -> dict[str, Any]:
    """The JSON of ``run``: text, ids, finish_reason, stats, and log-probabilities if asked for.

    Where acceptance was pretended, ``output_valid`` false stands beside them.
    """
    tokens = [token for piece in pieces for token in piece.tokens]
    last = pieces[-1]
    assert last.statistics is not None
    record: dict[str, Any] = {
        "text": "".join(piece.text for piece in pieces),
        "ids": [token.id for token in tokens],
        "finish_reason": last.finish_reason,
        "stats": last.statistics.summary(),
    }
    if not last.statistics.output_valid:
        record["output_valid"] = False
    if any(token.logprob is not None for token in tokens):
        record["logprobs"] = [{"id": t.id, "logprob": t.logprob, "top": t.top} for t in tokens]
    return record
