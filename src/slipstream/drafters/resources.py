"""What drafters are made from: the target's vocabulary and limits, and perhaps a draft model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slipstream.backends.base import Program
from slipstream.tokenizer import Tokenizer


@dataclass(frozen=True)
class DraftModel:
    """A second model, loaded once and shared by the drafters that use it.

    Attributes:
        name: as the user named it.
        tokenizer: its vocabulary.
        context: most tokens of a sequence.
        compile: (positions, sequences) -> a program over a memory of its own.
    """

    name: str
    tokenizer: Tokenizer
    context: int
    compile: Callable[[int, int], Program]


@dataclass(frozen=True)
class Resources:
    """
    Attributes:
        tokenizer: the target's.
        vocabulary: number of token ids of the target.
        context: most tokens of a sequence of the target.
        parallel: most sequences that run at the same time.
        draft_model: None where the user named none.
    """

    tokenizer: Tokenizer
    vocabulary: int
    context: int
    parallel: int
    draft_model: DraftModel | None = None
