"""suffix: continue as the text did where its newest tokens stood before.

After SuffixDecoding (Oliaro et al., arXiv:2411.04975): continuations of the longest suffixes of a
sequence that occurred before, in the sequence itself (prompt and output) or in finished texts of
its scope, drafted in order of their estimated probability. Beyond the paper: estimates that learn
from what came true (suffix_calibration.py), all suffixes voting in one tree (suffix_tree.py), and
copying that is followed over edits and foresees edits made before (suffix_copying.py). A draft
has at most ``factor`` times as many nodes as the best match has tokens (the paper's alpha p).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.drafters.base import BaseDrafter, Draft, DraftRequest, Outcome, Pool
from slipstream.drafters.pools import Pools
from slipstream.drafters.resources import Resources
from slipstream.drafters.suffix_calibration import OWN, SCOPE, Calibration
from slipstream.drafters.suffix_copying import Copying
from slipstream.drafters.suffix_index import Query, SuffixIndex
from slipstream.drafters.suffix_pool import SuffixPool
from slipstream.drafters.suffix_tree import DraftTree, Occurrence
from slipstream.options import SpeculationOptions

IDLE_POOLS = 16  # of scopes without open sequences; a pool may take 40 MiB
OWN_MOST, SCOPE_MOST = 8, 8  # occurrences that vote
OUTVOTED = 2.0  # matches so many times shorter than that of the copy pointer are left out
OUTPUT_ROOM = 1024  # tokens beyond the prompt that an index expects


@dataclass(slots=True)
class _Text:
    """An open sequence.

    Attributes:
        index: its tokens as far as learnt.
        late: tokens that came after those and were emitted.
        unsure: tokens of the last step, some of which may have been cut off.
        first: tokens before this index are not to be remembered (they were forgotten).
        tree: what was proposed in this step.
    """

    index: SuffixIndex
    copying: Copying
    late: list[int] = field(default_factory=list)
    unsure: tuple[int, ...] = ()
    first: int = 0
    tree: DraftTree | None = None


class Suffix(BaseDrafter):
    """
    Args:
        n_max: most nodes of a draft.
        match: tokens of the shortest match.
        factor: most nodes per token of the longest match.
        p_min: least estimated probability that a node is reached and accepted.
        branches: most alternatives per node.
    """

    name = "suffix"

    def __init__(
        self,
        n_max: int = 48,
        match: int = 1,
        factor: float = 4.0,
        p_min: float = 0.1,
        branches: int = 4,
    ) -> None:
        self.n_max = n_max
        self.match = match
        self.factor = factor
        self.p_min = p_min
        self.branches = branches
        self._memories = Pools(lambda: SuffixPool(match), IDLE_POOLS)
        self._texts: dict[int, _Text] = {}

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        self._memories.open(sequence, scope)
        index = SuffixIndex(self.match, len(tokens) + OUTPUT_ROOM)
        index.extend(tokens)
        self._texts[sequence] = _Text(index, Copying(index))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        text = self._texts[request.sequence]
        memory = self._memories.of(request.sequence)
        _learn(text, request.tokens)
        most = min(request.n_max, self.n_max)
        occurrences = _occurrences(text, memory, most)
        text.tree = tree = self._tree(occurrences, memory.calibration, most)
        return Draft(
            tuple(tree.tokens),
            tuple(tree.parents),
            (self.name,) * len(tree.tokens),
            tuple(tree.probabilities),
        )

    def _tree(
        self, occurrences: Sequence[Occurrence], calibration: Calibration, most: int
    ) -> DraftTree:
        best = max((found.length for found in occurrences), default=0)
        nodes = min(most, int(self.factor * best))
        return DraftTree(occurrences, calibration, nodes, self.branches, self.p_min)

    def observe(self, sequence: int, outcome: Outcome) -> None:
        text = self._texts[sequence]
        text.late += text.unsure
        text.unsure = outcome.tokens
        if text.tree is not None:
            _calibrate(text.tree, outcome.tokens, self._memories.of(sequence).calibration)
            text.tree = None

    def fork(self, source: int, target: int) -> None:
        self._memories.fork(source, target)
        text = self._texts[source]
        index = text.index.copy()
        copying = text.copying.copy(index)
        self._texts[target] = _Text(index, copying, list(text.late), text.unsure, text.first)

    def close(self, sequence: int) -> None:
        text = self._texts.pop(sequence, None)
        if text is not None:
            finished = [*text.index.tokens, *text.late][text.first :]
            if len(finished) > self.match:
                self._memories.of(sequence).add(finished)
        self._memories.close(sequence)

    def pools(self) -> Mapping[str, Pool]:
        return {
            scope: Pool(len(memory), memory.bytes())
            for scope, memory in self._memories.all().items()
        }

    def forget(self, scope: str | None) -> None:
        for sequence in self._memories.forget(scope):
            text = self._texts[sequence]
            text.first = len(text.index) + len(text.late) + len(text.unsure)
            text.copying = Copying(text.index)
            text.tree = None


def _learn(text: _Text, tokens: Sequence[int]) -> None:
    known = len(text.index)
    text.index.extend(tokens[known:])
    text.late.clear()
    text.unsure = ()
    text.copying.follow(known)


def _occurrences(text: _Text, memory: SuffixPool, most: int) -> list[Occurrence]:
    """Where the newest tokens stood before; copy pointers first, then longer matches."""
    query = text.index.query()
    found = [
        (text.index, place, length, OWN)
        for place, length in text.index.occurrences(query, OWN_MOST, query.length).items()
    ]
    found += _in_scope(memory, query)
    if found:
        source, place, length, _ = max(found, key=lambda occurrence: occurrence[2])
        text.copying.adopt(source, place, length)
    occurrences = text.copying.occurrences(most)
    taken = {(id(occurrence.tokens), occurrence.place) for occurrence in occurrences}
    heard = max((found.length for found in occurrences), default=0) / OUTVOTED
    occurrences += [
        Occurrence(source.tokens, place, length, kind)
        for source, place, length, kind in found
        if length >= heard and (id(source.tokens), place) not in taken
    ]
    return occurrences


def _in_scope(memory: SuffixPool, query: Query) -> list[tuple[SuffixIndex, int, int, int]]:
    """In finished texts, the newest first."""
    found: list[tuple[SuffixIndex, int, int, int]] = []
    for segment in reversed(memory.segments):
        places = segment.occurrences(query, SCOPE_MOST - len(found), len(segment) + 1)
        found += [(segment, place, length, SCOPE) for place, length in places.items()]
    return found


def _calibrate(tree: DraftTree, tokens: Sequence[int], calibration: Calibration) -> None:
    """Every proposal at a place that the sequence came to either came true or did not."""
    children = tree.children()
    node = -1
    for token in tokens:
        reached = -1
        for child in children.get(node, ()):
            bucket, share = tree.claims[child]
            hit = tree.tokens[child] == token
            calibration.learn(bucket, share, hit=hit)
            if hit:
                reached = child
        if reached < 0:
            return
        node = reached


def create(options: SpeculationOptions, resources: Resources) -> Suffix:
    del resources
    return Suffix(
        options.suffix_n_max,
        options.suffix_match,
        options.suffix_factor,
        options.suffix_p_min,
        options.draft_branches,
    )
