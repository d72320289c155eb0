"""What speculation has cost and saved, so that what is risked stays below a share of plain time."""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 0.008  # of plain time that may be lost; the promise is 1 %


@dataclass
class Ledger:
    """Seconds, over the sequences of one scope.

    Attributes:
        plain_s: what plain decoding would have taken for the tokens so far.
        draft_s: of drafters.
        rows_s: of the rows of draft tokens, beyond those of plain decoding.
        bookkeeping_s: of the controller and of the calls around the drafters.
        saved_s: of the passes that accepted tokens made unnecessary.
    """

    plain_s: float = 0.0
    draft_s: float = 0.0
    rows_s: float = 0.0
    bookkeeping_s: float = 0.0
    saved_s: float = 0.0

    @property
    def regret_s(self) -> float:
        """What it cost more than it saved; below 0 where it paid."""
        return self.draft_s + self.rows_s + self.bookkeeping_s - self.saved_s

    def purse_s(self, credit_s: float = 0.0) -> float:
        """What may be risked now: the share of plain time, and all that was saved.

        Args:
            credit_s: against the share of what is still to come.
        """
        return SHARE * self.plain_s + credit_s - self.regret_s
