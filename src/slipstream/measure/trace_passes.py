"""A trace pass by pass: rounds of one target pass belong together, its seconds count once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slipstream.engine.trace_format import End, EngineRecord, Header, Record, RoundRecord
from slipstream.errors import TraceError

MOST_SEQUENCES = 4096  # in one pass


@dataclass(frozen=True)
class Pass:
    """Rounds of one target pass, at least one.

    Attributes:
        rounds: of its sequences; one that held a part of a prompt only has none.
    """

    rounds: tuple[RoundRecord, ...]

    @property
    def first(self) -> RoundRecord:
        """Any of them tells what is of the whole pass."""
        return self.rounds[0]

    @property
    def decoding(self) -> tuple[RoundRecord, ...]:
        return tuple(record for record in self.rounds if not record.prompt)

    @property
    def pure(self) -> bool:
        """Whether it held no prompt rows: only then its time says what rows of decoding cost."""
        return not self.first.prompt_rows

    @property
    def drafted(self) -> int:
        return sum(len(record.tokens) for record in self.rounds)

    @property
    def context(self) -> int:
        """Committed positions, summed over its decoding sequences."""
        return sum(record.context for record in self.decoding)

    @property
    def draft_s(self) -> float:
        return max(record.draft_s for record in self.rounds)

    @property
    def asked_s(self) -> float:
        """Of ``draft_s``, what the drafters took."""
        return sum(asked.seconds / asked.shared for r in self.rounds for asked in r.asked)

    @property
    def settle_s(self) -> float:
        """Sampling, committing and telling the drafters."""
        return self.first.sample_s + self.first.commit_s

    @property
    def seconds(self) -> float:
        """All phases."""
        return self.draft_s + self.first.verify_s + self.settle_s


def passes(records: Iterable[Record]) -> Iterator[Header | EngineRecord | End | Pass]:
    """The records, rounds of one pass joined.

    Raises:
        TraceError: a pass of absurdly many sequences.
    """
    held: list[RoundRecord] = []
    others: list[Header | EngineRecord | End] = []  # a request may end between rounds of a pass
    for record in records:
        if isinstance(record, RoundRecord):
            if held and not _same_pass(held, record):
                yield from _joined(held, others)
            held.append(record)
            if len(held) > MOST_SEQUENCES:
                raise TraceError(
                    f"passes of at most {MOST_SEQUENCES} sequences", "more", "Trace again."
                )
        else:
            others.append(record)
            if not held or len(others) > MOST_SEQUENCES:
                yield from _joined(held, others)
    yield from _joined(held, others)


def _same_pass(held: list[RoundRecord], record: RoundRecord) -> bool:
    same = (held[0].engine, held[0].step) == (record.engine, record.step)
    return same and all(other.sequence != record.sequence for other in held)


def _joined(
    held: list[RoundRecord], others: list[Header | EngineRecord | End]
) -> Iterator[Header | EngineRecord | End | Pass]:
    """The pass, then what came after its first round; both lists are emptied."""
    if held:
        yield Pass(tuple(held))
    yield from others
    held.clear()
    others.clear()
