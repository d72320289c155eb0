"""What speculation cost and what it saved: of a request's rounds, or of the passes of a trace.

With v(R, context), c = the mean seconds of a pass of R rows without drafts, and per sequence of its
sampling and committing; A = all decoding passes that hold no prompt rows, D = those with a draft;
of a pass n = its sequences, e = tokens emitted:

    draft       = sum over A of draft_s
    extra rows  = sum over D of (elapsed_s - v)
    bookkeeping = sum over A of (sample_s + commit_s - n c)
    saved       = sum over A of (e - n) (v / n + c)
    plain       = sum over A of e (v / n + c)

Cost less saving is then the time of the passes, an undrafted one counted as a plain one, less the
plain time. Means, not medians: noise is skewed, and sums of it must cancel. A spike can spoil the
figure of a request, so take the median over several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.engine.statistics import Round
from slipstream.engine.trace_format import RoundRecord
from slipstream.measure.lines import Line
from slipstream.measure.trace_passes import Pass
from slipstream.measure.trace_times import RowTimes

CONTEXT_RIDGE = 256.0**2  # positions^2: contexts that vary less show no slope
ENOUGH = 8  # plain passes of a trace, to take the plain time from them alone
PLAIN = "plain rounds"
OWN = "own undrafted rounds"


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence had of a decoding pass without prompt rows.

    Attributes:
        emitted, drafted: its tokens and draft nodes; ``pass_drafted`` of all sequences.
        sequences: that share the pass.
        rows: of the pass without its draft rows.
        context: committed positions of all its sequences, from any fixed origin.
        draft_s, elapsed_s, sample_s, commit_s: of the whole pass, as in ``Round``.
    """

    emitted: int
    drafted: int
    pass_drafted: int
    sequences: int
    rows: int
    context: int
    draft_s: float
    elapsed_s: float
    sample_s: float
    commit_s: float


def parts_of_rounds(rounds: Sequence[Round]) -> Iterator[Part]:
    """Of a request that ran alone; the first round is its prompt's and left out."""
    context = 0
    for made in rounds[1:]:
        yield Part(
            emitted=made.emitted,
            drafted=made.drafted,
            pass_drafted=made.drafted,
            sequences=1,
            rows=1,
            context=context,
            draft_s=made.draft_s,
            elapsed_s=made.elapsed_s,
            sample_s=made.sample_s,
            commit_s=made.commit_s,
        )
        context += made.sampled


def parts_of_pass(made: Pass) -> Iterator[tuple[RoundRecord, Part]]:
    """Per decoding sequence; none where the pass held prompt rows."""
    if not made.pure:
        return
    first, decoding = made.first, made.decoding
    for record in decoding:
        yield (
            record,
            Part(
                emitted=record.emitted,
                drafted=len(record.tokens),
                pass_drafted=made.drafted,
                sequences=len(decoding),
                rows=first.pass_rows - made.drafted,
                context=made.context,
                draft_s=made.draft_s,
                elapsed_s=first.verify_s,
                sample_s=first.sample_s,
                commit_s=first.commit_s,
            ),
        )


@dataclass(frozen=True)
class Reference:
    """What passes without drafts take.

    Attributes:
        name: ``plain rounds`` or ``own undrafted rounds``: where that is from.
        seconds: rows -> seconds at context 0.
        slope: seconds per committed position.
        settle_s: of sampling and committing, per sequence; of sampling alone where no plain rounds
            tell what committing costs without drafters, so that all of it counts as speculation's.
        beyond: of row counts of which there was no pass without drafts.
    """

    name: str
    seconds: Mapping[int, float]
    slope: float
    settle_s: float
    beyond: RowTimes | None = None

    def __call__(self, rows: int, context: float) -> float:
        """Seconds of a pass."""
        if rows in self.seconds or self.beyond is None:
            return self.seconds[rows] + self.slope * context
        return self.beyond(rows, context)


@dataclass
class ReferenceFit:
    """Means of passes without drafts, by rows."""

    _lines: dict[int, Line] = field(default_factory=dict)
    _sequences: int = 0
    _sample_s: float = 0.0
    _commit_s: float = 0.0

    @property
    def count(self) -> int:
        return sum(line.count for line in self._lines.values())

    def add(self, part: Part) -> None:
        """Once per pass; a pass with a draft is passed over."""
        if not part.pass_drafted:
            self._lines.setdefault(part.rows, Line()).add(part.context, part.elapsed_s)
            self._sequences += part.sequences
            self._sample_s += part.sample_s
            self._commit_s += part.commit_s

    def reference(self, name: str, beyond: RowTimes | None = None) -> Reference | None:
        """None of no passes, or of such that took no time; ``beyond`` as in ``Reference``."""
        if not self.count:
            return None
        lines = self._lines.values()
        spread = sum(line.spread for line in lines) + self.count * CONTEXT_RIDGE
        slope = max(sum(line.joint for line in lines) / spread, 0.0)
        seconds = {r: (line.y - slope * line.x) / line.count for r, line in self._lines.items()}
        settle = self._sample_s + (self._commit_s if name == PLAIN else 0.0)
        if settle + sum(line.y for line in lines) <= 0.0:
            return None
        return Reference(name, seconds, slope, settle / self._sequences, beyond)


def reference_of(
    plain: ReferenceFit, own: ReferenceFit, *, least: int = 1, beyond: RowTimes | None = None
) -> Reference | None:
    """The plain passes where there are at least so many, else the undrafted ones of drafting."""
    if plain.count >= least:
        return plain.reference(PLAIN, beyond)
    return own.reference(OWN, beyond)


@dataclass
class Balance:
    """Seconds of decoding, prompts left out; see the module for the sums.

    Attributes:
        plain_s: what the tokens would have cost one per pass.
        draft_s: choosing and asking drafters.
        extra_rows_s: passes with a draft, beyond the time of one without; in a pass of several
            sequences by their draft rows.
        bookkeeping_s: sampling, committing and telling the drafters, beyond that of a plain pass.
        saved_s: passes, with their sampling and committing, that accepted tokens made needless.
        reference: where the time of an undrafted pass is from.
        passes: rounds that are counted; ``left_out`` others, whose passes held prompt rows.
    """

    plain_s: float = 0.0
    draft_s: float = 0.0
    extra_rows_s: float = 0.0
    bookkeeping_s: float = 0.0
    saved_s: float = 0.0
    reference: str = ""
    passes: int = 0
    left_out: int = 0

    def add(self, part: Part, reference: Reference) -> None:
        share = 1 / part.sequences
        undrafted = reference(part.rows, part.context)
        token_s = share * undrafted + reference.settle_s
        self.plain_s += part.emitted * token_s
        self.saved_s += (part.emitted - 1) * token_s
        self.draft_s += share * part.draft_s
        self.bookkeeping_s += share * (part.sample_s + part.commit_s) - reference.settle_s
        if part.pass_drafted:
            extra = part.elapsed_s - undrafted
            self.extra_rows_s += extra * part.drafted / part.pass_drafted
        self.reference = reference.name
        self.passes += 1

    def merge(self, other: Balance) -> None:
        names = [name for name in vars(self) if name != "reference"]
        for name in names:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        known = dict.fromkeys(filter(None, (*self.reference.split(" and "), other.reference)))
        self.reference = " and ".join(known)

    @property
    def net_s(self) -> float:
        """Cost less saving: below 0 speculation paid."""
        return self.draft_s + self.extra_rows_s + self.bookkeeping_s - self.saved_s

    @property
    def net_share(self) -> float:
        """``net_s`` as a share of the plain time; the never-slower bar allows 0.01."""
        return self.net_s / self.plain_s

    @property
    def cost_percent(self) -> float | None:
        """``net_share`` in %; None without plain time."""
        return 100 * self.net_share if self.plain_s > 0 else None

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        net_share = self.net_share if self.plain_s > 0 else None
        percent = self.cost_percent
        return {**vars(self), "net_s": self.net_s, "net_share": net_share, "cost_percent": percent}


def time_balance(rounds: Sequence[Round], plain: Sequence[Round] = ()) -> Balance | None:
    """(draft + extra-row + bookkeeping time) - (time saved) of a request that ran alone.

    Args:
        rounds: all rounds of the request in order; the first is its prompt's and left out.
        plain: those of the same request without speculation; without them the request's own
            undrafted rounds are the reference.

    Returns:
        None where there is no reference or no round after the prompt's.
    """
    outside, own = ReferenceFit(), ReferenceFit()
    parts = list(parts_of_rounds(rounds))
    for fit, given in ((outside, parts_of_rounds(plain)), (own, iter(parts))):
        for part in given:
            fit.add(part)
    reference = reference_of(outside, own)
    if reference is None or not any(part.emitted for part in parts):
        return None
    balance = Balance()
    for part in parts:
        balance.add(part, reference)
    return balance if balance.plain_s > 0 else None


def summed(balances: Iterable[Balance]) -> Balance | None:
    """The balance of several requests together; None of none."""
    whole = Balance()
    for balance in balances:
        whole.merge(balance)
    return whole if whole.passes else None
