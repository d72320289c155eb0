"""What ngram-map-k and ngram-map-k4v share: keys of a sequence, and how far each could be trusted.

As llama.cpp's methods (``common/ngram-map.cpp``), with their parameters, defaults and bounds: a key
is the newest n tokens, it matches where m tokens after it are known, index 0 never matches, nothing
is proposed before 2n + m tokens, and a proposal is as long as the key's limit: at first m, then
what of it was right the last time. Where that code departs from its intent, or keeps state that
serves only its own slots, this differs:

- the *latest* match decides. There one in the prompt hides all in the output, also where they show
  that the continuation has changed, and a hash bucket answers with the first place it was given;
- keys are compared, so two keys in one bucket do not lose each other;
- a limit can recover; there it only shrinks, and 0 silences a key for good. What of a continuation
  was right is read from the tokens that the target emitted, also where a controller cut the
  proposal or the limit was 0: a wrong token sets the limit, and while there was none it grows to
  twice what was seen to be right;
- a key proposes once it was met ``min_hits`` times (drafts asked for where it had a match).

All of it belongs to one sequence: places are indices into its tokens, and limits and counts are of
those places. Nothing is left when it closes, so the same request drafts the same, warm or cold. A
prompt that repeats an earlier conversation is indexed again, which costs far less than its prefill.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from slipstream.drafters.base import BaseDrafter, Draft, DraftRequest, Outcome
from slipstream.drafters.growth import Path, tree
from slipstream.drafters.ngram_index import NgramIndex

MOST_COUNT = 16380


@dataclass
class Value:
    """A continuation of a key.

    Attributes:
        start: index of its first token.
        limit: tokens of it worth proposing.
        count: how often it was seen.
    """

    start: int
    limit: int
    count: int = 0


@dataclass
class Key:
    """What is known of a key.

    Attributes:
        hits: drafts asked for where it had a match.
        values: its continuations.
        counted: last place whose continuation is counted.
    """

    hits: int = 0
    values: list[Value] = field(default_factory=list)
    counted: int = 0


@dataclass(frozen=True, slots=True)
class Guess:
    """A continuation that begins at ``start`` and the value whose limit it puts to the test."""

    start: int
    weight: int
    value: Value


@dataclass
class Place:
    """An open sequence.

    Attributes:
        guesses: of the last draft, whose outcome is not yet known.
    """

    scope: str
    index: NgramIndex
    keys: dict[bytes, Key] = field(default_factory=dict)
    guesses: list[Guess] = field(default_factory=list)


class NgramMap(BaseDrafter):
    """A subclass says what a key's matches make it guess.

    Args:
        size_n: tokens of a key.
        size_m: most tokens proposed.
        min_hits: times a key must have been met.
        branches: most children of a node.
    """

    most_matches = 1

    def __init__(
        self, size_n: int = 12, size_m: int = 48, min_hits: int = 1, branches: int = 1
    ) -> None:
        self.size_n = size_n
        self.size_m = size_m
        self.min_hits = min_hits
        self.branches = branches
        self.places: dict[int, Place] = {}

    def guess(self, key: Key, tokens: array[int], matches: Sequence[int]) -> list[Guess]:
        """What may follow now, the preferred guess first.

        Args:
            tokens: of the sequence.
            matches: places of the key, latest first, at least one.
        """
        raise NotImplementedError

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        self.places[sequence] = Place(scope, NgramIndex(self.size_n, self.size_m))
        self.places[sequence].index.follow(tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        place = self.places[request.sequence]
        place.guesses = []
        place.index.follow(request.tokens)
        tokens = place.index.tokens
        if len(tokens) - 1 < 2 * self.size_n + self.size_m:
            return Draft()
        newest = tokens[-self.size_n :]
        matches = place.index.places(newest, self.most_matches)
        if not matches:
            return Draft()
        key = place.keys.setdefault(newest.tobytes(), Key())
        key.hits = min(key.hits + 1, MOST_COUNT)
        place.guesses = self.guess(key, tokens, matches)
        return self._tree(place, request.n_max) if key.hits >= self.min_hits else Draft()

    def _tree(self, place: Place, nodes: int) -> Draft:
        tokens = place.index.tokens
        paths = [
            Path(tokens[guess.start : guess.start + guess.value.limit], guess.weight)
            for guess in place.guesses
        ]
        if not paths or (self.branches == 1 and not paths[0].tokens):
            return Draft()
        return tree(paths, self.size_n, self.branches, nodes, self.name)

    def observe(self, sequence: int, outcome: Outcome) -> None:
        place = self.places[sequence]
        if not place.guesses:
            return
        proposed = place.guesses[:1] if self.branches == 1 else place.guesses
        tokens = place.index.tokens
        texts = [tokens[guess.start : guess.start + self.size_m] for guess in proposed]
        right = [agreement(text, outcome.tokens) for text in texts]
        best = right.index(max(right))
        self._judge(proposed[best].value, texts[best], outcome)
        place.guesses = []

    def _judge(self, value: Value, text: Sequence[int], outcome: Outcome) -> None:
        """Set a limit by what the target emitted where ``text`` was guessed."""
        right = agreement(text, outcome.tokens)
        judged = min(right, outcome.accepted)
        rejected = len(outcome.draft.matched(text)) > judged
        if rejected:
            value.limit = judged
        elif right < min(len(outcome.tokens), self.size_m):
            value.limit = right
        else:
            value.limit = max(value.limit, min(2 * right, self.size_m))

    def fork(self, source: int, target: int) -> None:
        place = self.places[source]
        kept = deepcopy((place.keys, place.guesses))
        self.places[target] = Place(place.scope, place.index.copy(), *kept)

    def close(self, sequence: int) -> None:
        self.places.pop(sequence, None)

    def forget(self, scope: str | None) -> None:
        for place in self.places.values():
            if scope in (None, place.scope):
                place.keys, place.guesses = {}, []


def agreement(text: Sequence[int], tokens: Sequence[int]) -> int:
    """Tokens in which both begin alike."""
    for place, (ours, theirs) in enumerate(zip(text, tokens, strict=False)):
        if ours != theirs:
            return place
    return min(len(text), len(tokens))
