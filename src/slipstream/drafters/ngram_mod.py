"""ngram-mod: a hash table from n tokens to the token that last followed them.

As llama.cpp's method of that name (``common/ngram-mod.cpp``): same hash, table size, parameters
and defaults, so a draft has ``n_min``..``n_max`` tokens or none. Where that code departs from its
intent, the intent is implemented:

- every token is in the table at the next draft; there, text waits for up to n tokens or more;
- a table more than a quarter full is cleared *before* a prompt is inserted, so the prompt stays;
- a table cleared after poor drafts learns the open sequences again, not only one of them;
- poor means that under a quarter of the *verified* tokens were accepted (``LOW_ACCEPTANCE``): the
  controller may cut a proposal, and the part it cut says nothing about the table.

There is a table per scope: sequences of one scope share it. After ``forget`` an open sequence adds
only what comes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slipstream.drafters.base import BaseDrafter, Draft, DraftRequest, Outcome, Pool
from slipstream.drafters.ngram_table import NgramTable
from slipstream.drafters.pools import Pools
from slipstream.drafters.resources import Resources
from slipstream.options import SpeculationOptions

FULL = 0.25
LOW_ACCEPTANCE = 0.25
LOW_ROUNDS = 5
IDLE_TABLES = 8  # of up to 16 MiB each


@dataclass
class _Cursor:
    """What the table holds of a sequence.

    Attributes:
        inserted: n-grams inserted, counted from the first token.
        low: poor drafts in a row.
        length: tokens so far.
        first: tokens before this index are not to be inserted (they were forgotten).
    """

    inserted: int = 0
    low: int = 0
    length: int = 0
    first: int = 0


class NgramMod(BaseDrafter):
    """
    Args:
        n_match: tokens of a key; below 16 chance matches become frequent.
        n_max: most tokens proposed.
        n_min: fewest tokens proposed.
    """

    name = "ngram-mod"

    def __init__(self, n_match: int = 24, n_max: int = 64, n_min: int = 48) -> None:
        self.n_match = n_match
        self.n_max = n_max
        self.n_min = n_min
        self.tables = Pools(lambda: NgramTable(n_match), IDLE_TABLES)
        self._cursors: dict[int, _Cursor] = {}

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        self._cursors[sequence] = _Cursor()
        table = self.tables.open(sequence, scope)
        if table.occupancy() > FULL:
            self._clear(sequence)
        self._learn(sequence, tokens)

    def _clear(self, sequence: int) -> None:
        self.tables.of(sequence).clear()
        self._start_anew(self.tables.mates(sequence))

    def _start_anew(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            cursor = self._cursors[sequence]
            cursor.inserted = cursor.first

    def _learn(self, sequence: int, tokens: Sequence[int]) -> None:
        cursor = self._cursors[sequence]
        cursor.length = len(tokens)
        self.tables.of(sequence).insert(tokens[cursor.inserted :])
        cursor.inserted = max(cursor.inserted, len(tokens) - self.n_match)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft.chain(self._continuation(request), self.name) for request in requests]

    def _continuation(self, request: DraftRequest) -> Sequence[int]:
        if len(request.tokens) < self.n_match:
            return ()
        self._learn(request.sequence, request.tokens)
        table = self.tables.of(request.sequence)
        found = table.follow(request.tokens[-self.n_match :], self.n_max)
        return found if len(found) >= self.n_min else ()

    def observe(self, sequence: int, outcome: Outcome) -> None:
        cursor = self._cursors[sequence]
        cursor.length += len(outcome.tokens)
        drafted = outcome.drafted_by(self.name)
        if not drafted:
            return
        poor = outcome.accepted_by(self.name) < LOW_ACCEPTANCE * drafted
        cursor.low = cursor.low + 1 if poor else 0
        if cursor.low == LOW_ROUNDS:
            cursor.low = 0
            self._clear(sequence)

    def fork(self, source: int, target: int) -> None:
        self.tables.fork(source, target)
        self._cursors[target] = replace(self._cursors[source])

    def close(self, sequence: int) -> None:
        self.tables.close(sequence)
        self._cursors.pop(sequence, None)

    def pools(self) -> Mapping[str, Pool]:
        return {
            scope: Pool(table.used + self.n_match if table.used else 0, table.bytes())
            for scope, table in self.tables.all().items()
        }

    def forget(self, scope: str | None) -> None:
        sequences = self.tables.forget(scope)
        for sequence in sequences:
            self._cursors[sequence].first = self._cursors[sequence].length
        self._start_anew(sequences)


def create(options: SpeculationOptions, resources: Resources) -> NgramMod:
    del resources
    return NgramMod(options.ngram_mod_n_match, options.ngram_mod_n_max, options.ngram_mod_n_min)
