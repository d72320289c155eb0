"""A sequence's memory: opened with what its session has of the prompt, given back or kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slipstream.drafters.base import Drafter
from slipstream.engine.prefix_cache import PrefixCache
from slipstream.engine.sequence import SequenceState
from slipstream.errors import DeadlineError, SlipstreamError
from slipstream.memory.base import Memory


def open_memory(
    sequence: SequenceState,
    memory: Memory,
    prefixes: PrefixCache | None,
    drafters: Sequence[Drafter],
    running: Iterable[SequenceState],
) -> None:
    """Give it a handle, unless another sequence is computing more of its prompt: then it waits.

    Raises:
        SlipstreamError: the memory failed.
    """
    reason = _why_whole(sequence, drafters)
    if prefixes is None or reason:
        sequence.handle = memory.open()
        if prefixes is not None:
            sequence.statistics.not_reused = reason
        return
    taken = prefixes.take(sequence.session, sequence.tokens, running)
    if taken is not None:
        sequence.handle, sequence.committed = taken
        sequence.statistics.reused_tokens = sequence.committed
        sequence.statistics.warm |= sequence.committed > 0


def _why_whole(sequence: SequenceState, drafters: Sequence[Drafter]) -> str:
    """Why its whole prompt is to be computed; empty where it need not be."""
    if not sequence.reuses:
        return "its request wants nothing reused"
    reader = reader_of_prompts(drafters, sequence)
    return "" if reader is None else f"{reader} reads the whole prompt"


def close_memory(
    sequence: SequenceState,
    memory: Memory,
    prefixes: PrefixCache | None,
    error: SlipstreamError | None,
) -> None:
    """Keep what it has in memory for its session, or give it back.

    Args:
        error: why it ended; after any but a deadline nothing of it is trusted.
    """
    if sequence.handle < 0:
        return
    sound = error is None or isinstance(error, DeadlineError)
    if prefixes is not None and sound and sequence.shareable:
        tokens = sequence.tokens[: sequence.committed]
        prefixes.keep(sequence.session, tokens, sequence.handle)
    else:
        memory.close(sequence.handle)
    sequence.handle = -1


def reader_of_prompts(drafters: Sequence[Drafter], sequence: SequenceState) -> str | None:
    """A drafter of the sequence that wants what the target computes of the whole prompt."""
    readers = (d.name for d in drafters if d.needs.hidden or d.needs.logits)
    return next((name for name in readers if name in sequence.drafters), None)
