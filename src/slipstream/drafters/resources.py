"""What drafters are made from: the target's vocabulary and limits, and perhaps a draft model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slipstream.backends.base import Program
from slipstream.errors import PairingError
from slipstream.tokenizer import Tokenizer


@dataclass(frozen=True)
class DraftModel:
    """A second model, loaded once and shared by the drafters that use it.

    Attributes:
        name: as the user named it.
        tokenizer: its vocabulary.
        context: most tokens of a sequence.
        compile: (positions, sequences) -> a program over a memory of its own.
        vocabulary: ids that it reads.
        drafted: it drafts ids below this one (``draft_vocab``).
        step_bytes: weight bytes that one pass reads.
        resident_bytes: of memory that its weights hold; 0 where they are the target's own or
            stay in the file.
        shared: whether its weights are the target's own.
    """

    name: str
    tokenizer: Tokenizer
    context: int
    compile: Callable[[int, int], Program]
    vocabulary: int
    drafted: int
    step_bytes: int = 0
    resident_bytes: int = 0
    shared: bool = False


@dataclass(frozen=True)
class Resources:
    """
    Attributes:
        tokenizer: the target's.
        vocabulary: number of token ids of the target.
        context: most tokens of a sequence of the target.
        parallel: most sequences that run at the same time.
        draft_model: None where the user named none.
        draft_fault: why the named one is not used, where the user allowed to go on without it.
        step_rows, step_time_limit_s: most rows and seconds of one call of a draft model.
    """

    tokenizer: Tokenizer
    vocabulary: int
    context: int
    parallel: int
    draft_model: DraftModel | None = None
    draft_fault: PairingError | None = None
    step_rows: int = 512
    step_time_limit_s: float = 0.25
