"""ngram-cache: the token that followed the newest 4, 3, 2 or 1 tokens often enough.

As llama.cpp's lookup decoding (``common/ngram-cache.cpp``), with its thresholds, its limit of 8
tokens and its files. The n-grams of the sequence itself are asked first, with lax thresholds, then
those of other texts (``dynamic``), with strict ones, then a file of 2-grams (``static``); of the
first, a follower that the static file has too weighs ``100 * its count there``. Differences:

- every n-gram is learned. There, text is learned in stand-alone pieces, so n-grams across their
  borders are lost, and a step of one token teaches nothing;
- the sequence's own map begins empty; there it outlives the request, and the next is not learned
  up to the length of the last;
- ``dynamic`` is what the scope's finished sequences taught, and the file named by
  ``ngram_cache_dynamic`` as it was when the drafter was made. That file is updated when a sequence
  closes; there it never is. What is added reaches others when they read the file;
- followers of equal count: the lowest id comes first; there, whichever a hash map has first;
- where branches are allowed, the other followers of the n-gram that was found are proposed too.

Of the static file only 2-grams are read, as nothing else is asked of it. A draft is counted as text
once it is accepted, and the tokens of a sequence's last step are not learned, as some of them may
be cut off. ``forget`` erases what a scope taught, not the user's files; an open sequence then
teaches only what comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from slipstream.drafters import lookup_file
from slipstream.drafters.base import BaseDrafter, Draft, DraftRequest, Outcome, Pool
from slipstream.drafters.growth import Follower, grow
from slipstream.drafters.lookup import Lookup
from slipstream.drafters.lookup_table import LookupTable
from slipstream.drafters.ngram_counts import Grams, NgramCounts, after
from slipstream.drafters.pools import Pools
from slipstream.drafters.resources import Resources
from slipstream.errors import InputError
from slipstream.options import SpeculationOptions

MOST_DEPTH = 8
MOST_NODES = 32
IDLE_POOLS = 4  # of up to 34 MB each
Save = Callable[[NgramCounts], None]


@dataclass
class _Text:
    """An open sequence.

    Attributes:
        counts: of its n-grams.
        grams: that end with the last token learned.
        learned: tokens learned.
        unsure: tokens after those, of the last step.
        first: tokens before this index are not to be taught (they were forgotten).
        since: counts of the tokens from ``first`` on, ``since_grams`` those that end with the last
            of them; None where nothing was forgotten.
    """

    counts: NgramCounts = field(default_factory=NgramCounts)
    grams: Grams = ()
    learned: int = 0
    unsure: tuple[int, ...] = ()
    first: int = 0
    since: NgramCounts | None = None
    since_grams: Grams = ()

    def learn(self, tokens: Sequence[int]) -> None:
        self.grams = self.counts.learn(tokens, self.grams)
        if self.since is not None:
            later = tokens[max(self.first - self.learned, 0) :]
            self.since_grams = self.since.learn(later, self.since_grams)
        self.learned += len(tokens)
        self.unsure = ()

    def copy(self) -> _Text:
        since = None if self.since is None else self.since.copy()
        return replace(self, counts=self.counts.copy(), since=since)

    def forget(self) -> None:
        """Teach none of the tokens so far; its own drafts may rest on them."""
        self.first = self.learned + len(self.unsure)
        self.since, self.since_grams = NgramCounts(), ()

    def lesson(self) -> NgramCounts:
        """What it teaches."""
        return self.counts if self.since is None else self.since


class NgramCache(BaseDrafter):
    """
    Args:
        branches: most children of a node.
        static: counts of 2-grams of other texts.
        dynamic: counts of other texts, beside what the scope teaches.
        save: receives what a closed sequence taught.
    """

    name = "ngram-cache"

    def __init__(
        self,
        branches: int = 1,
        static: LookupTable | None = None,
        dynamic: LookupTable | None = None,
        save: Save | None = None,
    ) -> None:
        self.branches = branches
        self.static = static
        self.dynamic = dynamic
        self.taught = Pools(NgramCounts, IDLE_POOLS)
        self._save = save
        self._texts: dict[int, _Text] = {}

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        self.taught.open(sequence, scope)
        self._texts[sequence] = _Text()
        self._texts[sequence].learn(tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        text = self._texts[request.sequence]
        text.learn(request.tokens[text.learned :])
        lookup = Lookup(
            text.counts, self.taught.of(request.sequence), self.dynamic, self.static, self.branches
        )

        def followers(state: tuple[Grams, int]) -> Iterator[Follower[tuple[Grams, int]]]:
            grams, depth = state
            if depth < MOST_DEPTH:
                for token, estimate in lookup.ranked(grams):
                    yield token, estimate, (after(grams, token), depth + 1)

        nodes = min(request.n_max, MOST_NODES)
        return grow((text.grams, 0), followers, nodes, self.name)

    def observe(self, sequence: int, outcome: Outcome) -> None:
        """Learn the step before, whose tokens all were emitted; perhaps no draft was asked for."""
        text = self._texts[sequence]
        text.learn(text.unsure)
        text.unsure = outcome.tokens

    def fork(self, source: int, target: int) -> None:
        self.taught.fork(source, target)
        self._texts[target] = self._texts[source].copy()

    def close(self, sequence: int) -> None:
        text = self._texts.pop(sequence, None)
        if text is None:
            return
        self.taught.of(sequence).merge(text.lesson())
        self.taught.close(sequence)
        if self._save is not None:
            self._save(text.lesson())

    def pools(self) -> Mapping[str, Pool]:
        return {
            scope: Pool(counts.tokens, counts.bytes())
            for scope, counts in self.taught.all().items()
        }

    def forget(self, scope: str | None) -> None:
        for sequence in self.taught.forget(scope):
            self._texts[sequence].forget()


def create(options: SpeculationOptions, resources: Resources) -> NgramCache:
    """
    Raises:
        InputError: a file cannot be used.
    """
    static = dynamic = save = None
    if options.ngram_cache_static is not None:
        static = _static(Path(options.ngram_cache_static), resources.vocabulary)
    if options.ngram_cache_dynamic is not None:
        path = Path(options.ngram_cache_dynamic)
        lookup_file.require_updatable(path)
        dynamic = LookupTable(lookup_file.read_or_empty(path, resources.vocabulary))
        save = partial(lookup_file.update, path, resources.vocabulary)
    return NgramCache(options.draft_branches, static, dynamic, save)


def _static(path: Path, vocabulary: int) -> LookupTable:
    table = LookupTable(lookup_file.read(path, vocabulary).bigrams())
    if not len(table):
        raise InputError(
            f"n-grams of two tokens in the lookup file `{path}`", "none", "Name another file."
        )
    return table
