"""What an output must look like, as the sampler sees it: which token ids may come next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import GrammarError

Mask = NDArray[np.bool_]


class Constraint(Protocol):
    """The grammar of one output, at the place that its tokens have reached."""

    @property
    def finished(self) -> bool:
        """Whether an end-of-generation token was taken."""

    @property
    def may_stop(self) -> bool:
        """Whether the tokens so far are a whole document; they may also go on."""

    def mask(self) -> Mask:
        """Whether a token id may come next, bool [vocabulary], read-only; at least one may.

        End-of-generation ids are among them exactly where the document may end.

        Raises:
            GrammarError: the grammar is too complex here, or no token fits it.
        """

    def only(self) -> int | None:
        """The id that comes next, where the mask holds exactly one; errors as ``mask``."""

    def forced(self, most: int) -> list[int]:
        """Up to ``most`` ids that the grammar dictates from here on, as text is usually cut into
        tokens; a guess, for the mask decides."""

    def admitted(self, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        """The nodes of a tree whose text the grammar allows, in order.

        Args:
            tokens, parents: as of ``Draft``: -1 = follows the tokens so far.
        """

    def advance(self, token: int) -> None:
        """``token`` was taken.

        Raises:
            GrammarError: the grammar forbids it.
        """

    def fork(self) -> Constraint:
        """An independent constraint at the same place."""


def masked(row: NDArray[np.float32], mask: Mask) -> NDArray[np.float32]:
    """A copy of the logits with minus infinity for every id that the mask lacks or forbids.

    Args:
        row: float32 [logits]; a model may pad its vocabulary, or know fewer ids than the mask.
        mask: bool [vocabulary].

    Raises:
        GrammarError: the row has no logit for any id that the mask allows.
    """
    if row.size != mask.size:
        padded = np.zeros(row.size, np.bool_)
        shared = min(row.size, mask.size)
        padded[:shared] = mask[:shared]
        if not padded.any():
            raise GrammarError(
                "a grammar that the model's tokens can spell",
                f"none of its {row.size} logits is for an allowed token",
                "Use another model or grammar.",
            )
        mask = padded
    if is_wide(mask):
        return np.where(mask, row, np.float32(-np.inf))
    allowed = np.flatnonzero(mask)
    result = np.full(row.size, -np.inf, np.float32)
    result[allowed] = row[allowed]
    return result


def is_wide(mask: Mask) -> bool:
    """Whether so many ids are allowed that the others are the exception, as within a text."""
    return bool(np.count_nonzero(mask) > mask.size // 8)


def quick_token(constraint: Constraint, choose: Callable[[], int] | None) -> int | None:
    """The token under a constraint, where it can be found without masking the row.

    It is the only id allowed; or the best of all ids, if that one is allowed.

    Args:
        choose: the best id whatever the mask; None where a filter asks which ids are allowed.
    """
    only = constraint.only()
    if only is not None or choose is None:
        return only
    mask = constraint.mask()
    if not is_wide(mask):
        return None
    token = choose()
    return token if token < mask.size and mask[token] else None
