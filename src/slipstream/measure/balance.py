"""What speculation cost and what it saved, from the rounds of a request."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.engine.statistics import Round


@dataclass(frozen=True)
class Balance:
    """Seconds of a request that ran alone, its prompt left out.

    Attributes:
        plain_s: what its tokens would have cost one per pass.
        draft_s: choosing and asking drafters.
        extra_rows_s: passes with a draft, beyond the time of a pass of one row.
        bookkeeping_s: sampling, committing and telling the drafters, beyond that of a plain pass.
        saved_s: passes, with their sampling and committing, that accepted tokens made needless.
        reference: ``plain rounds`` or ``own undrafted rounds``: where the time of one row is from.
    """

    plain_s: float
    draft_s: float
    extra_rows_s: float
    bookkeeping_s: float
    saved_s: float
    reference: str

    @property
    def net_s(self) -> float:
        """Cost less saving: below 0 speculation paid."""
        return self.draft_s + self.extra_rows_s + self.bookkeeping_s - self.saved_s

    @property
    def net_share(self) -> float:
        """``net_s`` as a share of the plain time; the never-slower bar allows 0.01."""
        return self.net_s / self.plain_s


def time_balance(rounds: Sequence[Round], plain: Sequence[Round] = ()) -> Balance | None:
    """(draft + extra-row + bookkeeping time) - (time saved) of one request.

    With v, c = the mean seconds of a pass of one row and of its sampling and committing, over the
    reference rounds; A = all rounds, D = those with a draft; e = tokens emitted, n = rounds:

        draft       = sum over A of draft_s
        extra rows  = sum over D of (elapsed_s - v)
        bookkeeping = sum over A of (sample_s + commit_s - c)
        saved       = (e - n) (v + c)
        plain       = e (v + c)

    Cost less saving is then the time of the rounds, an undrafted pass counted as a plain one, less
    the plain time. Means, not medians: noise is skewed, and sums of it must cancel. A spike can
    spoil the figure of a request, so take the median over several.

    Args:
        rounds: all rounds of the request in order; the first is its prompt's and left out.
        plain: those of the same request without speculation; without them the request's own
            undrafted rounds are the reference, and all committing counts as speculation's, for
            they do not tell what it costs without drafters.

    Returns:
        None where there is no reference or no round after the prompt's.
    """
    decoding = rounds[1:]
    outside = [r for r in plain[1:] if not r.drafted]
    reference = outside or [r for r in decoding if not r.drafted]
    emitted = sum(r.emitted for r in decoding)
    if not reference or not emitted:
        return None
    one_row = statistics.fmean(r.elapsed_s for r in reference)
    overhead = statistics.fmean(r.sample_s + (r.commit_s if outside else 0.0) for r in reference)
    if one_row + overhead <= 0:
        return None
    return Balance(
        plain_s=emitted * (one_row + overhead),
        draft_s=sum(r.draft_s for r in decoding),
        extra_rows_s=sum(r.elapsed_s - one_row for r in decoding if r.drafted),
        bookkeeping_s=sum(r.sample_s + r.commit_s - overhead for r in decoding),
        saved_s=(emitted - len(decoding)) * (one_row + overhead),
        reference="plain rounds" if outside else "own undrafted rounds",
    )


def summed(balances: Sequence[Balance]) -> Balance | None:
    """The balance of several requests together; None of none."""
    if not balances:
        return None
    return Balance(
        plain_s=sum(b.plain_s for b in balances),
        draft_s=sum(b.draft_s for b in balances),
        extra_rows_s=sum(b.extra_rows_s for b in balances),
        bookkeeping_s=sum(b.bookkeeping_s for b in balances),
        saved_s=sum(b.saved_s for b in balances),
        reference=" and ".join(dict.fromkeys(b.reference for b in balances)),
    )
