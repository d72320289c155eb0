"""suffix: its index against a search by hand, its trees, calibration, copying, scopes, bounds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import named_drafters
from slipstream.drafters import suffix_pool
from slipstream.drafters.base import ROOT, Draft, DraftRequest, Outcome
from slipstream.drafters.suffix import Suffix
from slipstream.drafters.suffix_calibration import (
    BUCKETS,
    COPY,
    COUNTS,
    LEAST,
    MOST,
    OWN,
    PRIORS,
    SCOPE,
    SINGLE,
    Calibration,
    bucket_of,
)
from slipstream.drafters.suffix_copying import CopyPointers, Edits
from slipstream.drafters.suffix_index import MATCH_MAX, SEPARATOR, WALK, SuffixIndex
from slipstream.drafters.suffix_pool import SuffixPool
from slipstream.drafters.suffix_tree import SUPPORTERS, DraftTree, Occurrence
from slipstream.options import SpeculationOptions

TOKENS = st.lists(st.sampled_from([0, 1, 2, 151643]), max_size=120)
ENGLISH = random.Random(4).choices(range(300), k=600)

# the index


def indexed(tokens: Sequence[int], shortest: int = 2) -> SuffixIndex:
    index = SuffixIndex(shortest)
    index.extend(tokens)
    return index


def agreeing(tokens: Sequence[int], end: int, query: Sequence[int]) -> int:
    """By hand: how many tokens before ``end`` equal the newest of the query."""
    length = 0
    while (
        length < min(end, len(query), MATCH_MAX) and tokens[end - 1 - length] == query[-1 - length]
    ):
        length += 1
    return length


def occurrences_by_hand(
    tokens: Sequence[int], query: Sequence[int], shortest: int, most: int, before: int
) -> dict[int, int]:
    """The definition: per key length, the newest ``WALK`` occurrences of the last tokens."""
    orders = [shortest]
    while 2 * orders[-1] < MATCH_MAX:
        orders.append(2 * orders[-1])
    found: dict[int, int] = {}
    for order in reversed(orders):
        if len(query) < order:
            continue
        ends = [
            end
            for end in range(order, len(tokens) + 1)
            if tokens[end - order : end] == query[-order:]
        ]
        for end in reversed(ends[-WALK:]):
            if end < before and end not in found and len(found) < most:
                found[end] = agreeing(tokens, end, query)
    return found


@given(TOKENS, st.integers(1, 5), st.integers(1, 30))
def test_own_occurrences_equal_a_search_by_hand(
    tokens: list[int], shortest: int, most: int
) -> None:
    index = indexed(tokens, shortest)
    query = index.query()
    expected = occurrences_by_hand(tokens, tokens, shortest, most, len(tokens))
    found = index.occurrences(query, most, query.length)
    assert list(found.items()) == list(expected.items())


@given(TOKENS, TOKENS, st.integers(1, 3))
def test_occurrences_in_another_text_equal_a_search_by_hand(
    text: list[int], newest: list[int], shortest: int
) -> None:
    text.append(SEPARATOR)
    index = indexed(text, shortest)
    expected = occurrences_by_hand(text, newest, shortest, 8, len(text) + 1)
    found = index.occurrences(indexed(newest, shortest).query(), 8, len(text) + 1)
    assert list(found.items()) == list(expected.items())


@given(st.lists(TOKENS, max_size=5), st.integers(1, 40))
def test_learning_at_once_equals_learning_token_by_token(
    parts: list[list[int]], shortest: int
) -> None:
    slow, fast = SuffixIndex(shortest), SuffixIndex(shortest)
    for part in parts:
        slow.extend_singly(part)
        fast.extend_at_once(part)
        assert slow.query() == fast.query()
    assert slow.tokens == fast.tokens
    for one, other in zip(slow._levels, fast._levels, strict=True):
        assert one.previous == other.previous
        assert one.heads == other.heads


def test_an_index_that_outgrows_its_slots_still_finds_everything() -> None:
    generator = random.Random(1)
    tokens = [generator.randrange(40) for _ in range(5000)]
    index = SuffixIndex(2)
    for start in range(0, len(tokens), 37):
        index.extend(tokens[start : start + 37])
    assert len(index) == 5000
    query = index.query()
    expected = occurrences_by_hand(tokens, tokens, 2, 12, 5000)
    assert index.occurrences(query, 12, query.length) == expected
    assert index.bytes() < 120 * 5000


def test_a_copy_of_an_index_goes_its_own_way() -> None:
    index = indexed([1, 2, 3, 1, 2])
    twin = index.copy()
    twin.extend([3])
    index.extend([9])
    assert twin.occurrences(twin.query(), 4, 6) == {3: 3}
    assert index.occurrences(index.query(), 4, 6) == {}


# the calibration


def test_priors_rise_with_length_and_count() -> None:
    singles = [PRIORS[bucket] for bucket in SINGLE[OWN]]
    assert singles == sorted(singles)
    assert PRIORS[bucket_of(OWN, 2, 1)] < 0.4
    assert PRIORS[bucket_of(OWN, 20, 1)] > 0.95
    assert (
        PRIORS[bucket_of(OWN, 3, 1)] < PRIORS[bucket_of(OWN, 3, 2)] < PRIORS[bucket_of(OWN, 3, 9)]
    )
    assert PRIORS[bucket_of(COPY, 2, 1)] > PRIORS[bucket_of(OWN, 2, 1)]
    every = {
        bucket_of(kind, length, count)
        for kind in (OWN, SCOPE, COPY)
        for length in range(MATCH_MAX + 9)
        for count in (1, *COUNTS, 50)
    }
    assert every == set(range(BUCKETS))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_estimates_approach_what_comes_true(rate: float) -> None:
    calibration, generator = Calibration(), random.Random(3)
    bucket = bucket_of(OWN, 4, 1)
    for _ in range(400):
        calibration.learn(bucket, 1.0, hit=generator.random() < rate)
    assert abs(calibration.estimates[bucket] - rate) < 0.15
    assert calibration.odds[bucket] == pytest.approx(
        calibration.estimates[bucket] / (1 - calibration.estimates[bucket])
    )
    others = [i for i in range(BUCKETS) if i != bucket]
    assert [calibration.estimates[i] for i in others] == [PRIORS[i] for i in others]


def test_estimates_follow_a_change_and_stay_probabilities() -> None:
    calibration = Calibration()
    bucket = bucket_of(SCOPE, 9, 2)
    for _ in range(1000):
        calibration.learn(bucket, 0.3, hit=True)
    assert calibration.estimates[bucket] == MOST
    for _ in range(150):
        calibration.learn(bucket, 1.0, hit=False)
    assert LEAST <= calibration.estimates[bucket] < 0.2


# the tree


@st.composite
def votes(draw: st.DrawFn) -> list[Occurrence]:
    text = draw(st.lists(st.integers(-1, 2), min_size=1, max_size=30))
    places = draw(st.lists(st.integers(0, len(text) - 1), max_size=SUPPORTERS, unique=True))
    return [
        Occurrence(text, place, draw(st.integers(0, 70)), draw(st.sampled_from([OWN, SCOPE, COPY])))
        for place in places
    ]


def tree_by_hand(
    occurrences: list[Occurrence], nodes: int, branches: int, least: float
) -> set[tuple[tuple[int, ...], float, float]]:
    """The definition: paths of the best D, each with its P and D; no ties are asked for."""
    calibration = Calibration()
    paths: list[tuple[tuple[int, ...], float, float]] = []

    def visit(path: tuple[int, ...], supporters: list[Occurrence], reached: float) -> None:
        depth = len(path)
        votes: dict[int, list[tuple[float, Occurrence]]] = {}
        for one in supporters:
            token = one.tokens[one.place + depth] if one.place + depth < len(one.tokens) else -1
            if token >= 0:
                weight = calibration.odds[bucket_of(one.kind, one.length + depth, 1)]
                votes.setdefault(token, []).append((weight, one))
        total = sum(weight for members in votes.values() for weight, _ in members)
        ranked = sorted(votes.items(), key=lambda item: -sum(weight for weight, _ in item[1]))
        for token, members in ranked[:branches]:
            _, best = max(members, key=lambda member: member[0])
            bucket = bucket_of(best.kind, best.length + depth, len(members))
            share = sum(weight for weight, _ in members) / total
            probability = share * calibration.estimates[bucket]
            if reached * probability >= least:
                paths.append(((*path, token), probability, reached * probability))
                visit((*path, token), [one for _, one in members], reached * probability)

    visit((), occurrences, 1.0)
    paths.sort(key=lambda item: -item[2])
    return {(path, round(p, 9), round(d, 9)) for path, p, d in paths[:nodes]}


@settings(deadline=None)
@given(votes(), st.integers(1, 3), st.sampled_from([0.0, 0.05, 0.3]))
def test_tree_equals_its_definition(
    occurrences: list[Occurrence], branches: int, least: float
) -> None:
    tree = DraftTree(occurrences, Calibration(), 10_000, branches, least)
    found = set()
    reached: list[tuple[tuple[int, ...], float]] = []
    for token, parent, p in zip(tree.tokens, tree.parents, tree.probabilities, strict=True):
        before, path = reached[parent] if parent != ROOT else ((), 1.0)
        reached.append(((*before, token), path * p))
        found.add(((*before, token), round(p, 9), round(path * p, 9)))
    assert found == tree_by_hand(occurrences, 10_000, branches, least)
    scores = [path for _, path in reached]
    assert scores == sorted(scores, reverse=True)
    fewer = DraftTree(occurrences, Calibration(), 5, branches, least)
    assert fewer.tokens == tree.tokens[:5]


def test_ties_go_to_the_earlier_occurrence() -> None:
    tree = DraftTree(
        [Occurrence([7], 0, 3, OWN), Occurrence([8], 0, 3, OWN)], Calibration(), 2, 2, 0.0
    )
    assert tree.tokens == [7, 8]
    assert tree.parents == [ROOT, ROOT]


# drafts


def ask(drafter: Suffix, tokens: Sequence[int], sequence: int = 0, n_max: int = 1000) -> Draft:
    [draft] = drafter.draft([DraftRequest(sequence, tokens, n_max)])
    assert len(draft.probabilities) == len(draft.parents) == len(draft)
    assert all(0.0 <= probability <= 1.0 for probability in draft.probabilities)
    return draft


def drafted(tokens: Sequence[int], **options: float) -> list[int]:
    drafter = Suffix(**{"branches": 1, **options})  # type: ignore[arg-type]
    drafter.open(0, tokens, "")
    return list(ask(drafter, tokens).tokens)


def test_a_copy_is_found_at_once_and_is_long() -> None:
    text = [*range(100, 200)]
    assert drafted([*text, 5, 6, *text[:12]], factor=100) == text[12:60]
    # a place to copy from counts as two tokens of match more
    assert drafted([*text, 5, 6, *text[:12]], factor=2) == text[12:40]
    assert drafted([*text, 5, 6, *text[:12]], factor=100, n_max=7) == text[12:19]
    # two tokens of match promise little, three of a half
    assert drafted([*text, 5, 6, *text[:2]], p_min=0.1) == text[2:4]
    assert drafted([*text, 5, 6, *text[:2]], p_min=0.0) == text[2:10]
    assert drafted([*text, 5, 6, *text[:2]], p_min=0.5) == []
    assert drafted([*text, 5, 6, *text[:2]], match=3) == []


def test_new_text_is_met_with_silence() -> None:
    assert drafted(range(500)) == []
    assert drafted([]) == []
    assert drafted([3]) == []


def test_the_most_recent_of_equal_matches_decides() -> None:
    assert drafted([1, 2, 3, 30, 9, 1, 2, 3, 40, 8, 1, 2, 3], n_max=1) == [40]


def test_a_majority_decides_and_a_longer_match_outvotes_it() -> None:
    majority = [1, 2, 30, 7, 1, 2, 30, 8, 1, 2, 30, 9, 1, 2, 40, 6]
    assert drafted([*majority, 1, 2], n_max=1) == [30]
    longer = [*range(50, 60), 1, 2, 40, *majority]
    assert drafted([*longer, *range(50, 60), 1, 2], n_max=1) == [40]


def test_branches() -> None:
    text = [1, 2, 3, 30, 31, 9, 1, 2, 3, 40, 41, 8, 1, 2, 3, 50, 51, 7, 1, 2, 3]
    drafter = Suffix(branches=2, p_min=0.0)
    drafter.open(0, text, "")
    draft = ask(drafter, text)
    roots = [draft.tokens[node] for node in draft.children()[ROOT]]
    assert roots == [50, 40]
    probabilities = [draft.probabilities[node] for node in draft.children()[ROOT]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) <= 1.0
    assert all(len(children) <= 2 for children in draft.children().values())


def test_the_request_bounds_the_nodes() -> None:
    text = [*range(50)] * 3
    for n_max in (1, 2, 15):
        drafter = Suffix()
        drafter.open(0, text, "")
        assert len(ask(drafter, text, n_max=n_max)) == n_max


def follow(drafter: Suffix, prompt: list[int], output: Sequence[int], n_max: int = 15) -> list[int]:
    """Decode a known output; returns the accepted tokens of each step."""
    drafter.open(0, prompt, "")
    tokens, accepted = [*prompt, output[0]], []
    drafter.observe(0, Outcome(Draft(), (), (output[0],)))
    emitted = 1
    while emitted < len(output):
        draft = ask(drafter, tokens, n_max=min(n_max, len(output) - emitted))
        path = draft.matched(output[emitted:-1])
        new = tuple(output[emitted : emitted + len(path) + 1])
        drafter.observe(0, Outcome(draft, path, new, len(draft)))
        tokens += new
        emitted += len(new)
        accepted.append(len(path))
    drafter.close(0)
    return accepted


def test_proposals_that_fail_are_made_no_more() -> None:
    generator = random.Random(8)
    # every pair of tokens comes again and goes on differently
    text = [token for _ in range(400) for token in (1, 2, generator.randrange(10, 5000))]
    drafter = Suffix()
    follow(drafter, text[:30], text[30:600])
    drafter.open(1, text[:600], "")
    assert len(ask(drafter, [*text[:600], 1, 2], 1)) == 0


# copying with edits


def edited(source: list[int], old: list[int], new: list[int]) -> list[int]:
    """Every occurrence of some tokens replaced."""
    out: list[int] = []
    place = 0
    while place < len(source):
        if source[place : place + len(old)] == old:
            out += new
            place += len(old)
        else:
            out.append(source[place])
            place += 1
    return out


def source_with(old: list[int], every: int, length: int = 300) -> list[int]:
    generator = random.Random(6)
    out: list[int] = []
    while len(out) < length:
        out += [generator.randrange(1000) for _ in range(every)]
        out += old
    return out


EDIT_SCRIPTS = [
    pytest.param([5001], [6001], id="one for one"),
    pytest.param([5001, 5002], [6001], id="two for one"),
    pytest.param([5001], [6001, 6002, 6003], id="one for three"),
    pytest.param([5001], [6001, 5001], id="insertion"),
    pytest.param([5001, 5002], [5002], id="deletion"),
]


@pytest.mark.parametrize(("old", "new"), EDIT_SCRIPTS)
def test_repeated_edits_are_foreseen(old: list[int], new: list[int]) -> None:
    source = source_with(old, every=9)
    output = edited(source, old, new)
    accepted = follow(Suffix(branches=2), [*source, 9999, 9998], output)
    # the first edit is news; after a few, drafts run through them
    assert sum(accepted) + len(accepted) == len(output) - 1
    late = accepted[len(accepted) // 2 :]
    assert sum(late) / len(late) > 10


def test_a_copy_goes_on_behind_a_single_edit() -> None:
    source = [*range(100, 160)]
    for edit in ([], [7], [7, 8, 9]):
        for kept in (20, 21, 22, 25):
            prompt = [*source, 1, *source[:20], *edit, *source[kept : kept + 2]]
            pointers_only = Suffix(branches=1, match=40, factor=100)
            pointers_only.open(0, prompt[:61], "")
            adopt(pointers_only, 4)
            assert list(ask(pointers_only, prompt, n_max=5).tokens) == source[kept + 2 : kept + 7]


def adopt(drafter: Suffix, place: int) -> None:
    """The sequence 0 copies from a place of its own text."""
    text = drafter._texts[0]
    text.copying.adopt(text.index, 0, place)


def test_a_substitution_is_expected_right_behind_a_departure() -> None:
    source = [*range(100, 130)]
    index = indexed(source)
    pointers = CopyPointers(index)
    pointers.adopt(index, 10, 8)
    index.extend([110, 111, 7])
    pointers.follow(30)
    [found] = pointers.occurrences(4)
    assert (found.place, found.length, found.kind) == (13, 0, COPY)
    index.extend([113])
    pointers.follow(33)
    [found] = pointers.occurrences(4)
    assert (found.place, found.length) == (14, 1)
    index.extend([114])
    pointers.follow(34)
    [found] = pointers.occurrences(4)
    assert (found.place, found.length) == (15, 2)
    assert [edit.emitted for edit in pointers.edits.at([112, 1], 0)] == [(7,)]


def test_edits_are_believed_by_their_record() -> None:
    edits = Edits()
    source = [1, 2, 3, 1, 2, 4]
    assert edits.applied(source, 0, 9) == (source, 0.0)
    edits.learn((2, 3), (7,))
    assert edits.applied(source, 0, 9) == ([1, 7, 1, 2, 4], pytest.approx(2 / 3))
    edits.learn((2, 3), (7,))
    assert edits.applied(source, 0, 9)[1] == pytest.approx(3 / 4)
    for _ in range(2):
        edits.left_out(source, 1)
    assert edits.applied(source, 0, 9) == (source, 0.0)
    edits.learn((2, 3), (8, 9))
    assert edits.applied(source, 0, 9)[0] == [1, 8, 9, 1, 2, 4]


def test_edits_are_bounded() -> None:
    edits = Edits()
    for token in range(1000):
        edits.learn((token % 7, token), (1,))
    assert len(edits._edits) == sum(map(len, edits._by_first.values())) == 256


# scopes


def outcome(*tokens: int) -> Outcome:
    return Outcome(Draft(), (), tokens)


def test_a_finished_text_serves_its_scope_alone() -> None:
    drafter = Suffix(branches=1)
    drafter.open(0, ENGLISH[:300], "a")
    ask(drafter, ENGLISH[:400])
    drafter.observe(0, outcome(*ENGLISH[400:500]))
    drafter.open(1, ENGLISH[100:150], "a")
    assert len(ask(drafter, ENGLISH[100:150], 1)) == 0
    drafter.close(0)
    assert list(ask(drafter, ENGLISH[100:150], 1, 15).tokens) == ENGLISH[150:165]
    # what was emitted after the last draft is remembered too
    drafter.open(2, ENGLISH[450:470], "a")
    assert list(ask(drafter, ENGLISH[450:470], 2, 15).tokens) == ENGLISH[470:485]
    drafter.open(3, ENGLISH[100:150], "b")
    assert len(ask(drafter, ENGLISH[100:150], 3)) == 0
    assert {scope: pool.tokens for scope, pool in drafter.pools().items()} == {"a": 501, "b": 0}


def test_drafts_of_a_scope_do_not_depend_on_another() -> None:
    def drafts(disturbed: bool) -> list[Draft]:
        drafter = Suffix()
        if disturbed:
            for _ in range(5):
                follow(drafter, ENGLISH[:50], [*ENGLISH[7:40], *ENGLISH[20:60]])
        drafter.open(1, ENGLISH[:50], "own")
        return [ask(drafter, [*ENGLISH[:50], *ENGLISH[7 : 7 + n]], 1) for n in range(1, 30)]

    assert drafts(disturbed=True) == drafts(disturbed=False)


def test_forget() -> None:
    drafter = Suffix(branches=1)
    drafter.open(0, ENGLISH[:300], "a")
    drafter.close(0)
    drafter.open(1, ENGLISH[100:150], "a")
    drafter.open(2, ENGLISH[100:150], "b")
    assert len(ask(drafter, ENGLISH[100:150], 1)) > 0
    drafter.forget("a")
    assert len(ask(drafter, ENGLISH[100:150], 1)) == 0
    drafter.observe(1, outcome(*ENGLISH[150:200]))
    drafter.close(1)
    # of a sequence that was open, what came later is remembered
    assert drafter.pools()["a"].tokens == 51
    drafter.close(2)
    assert drafter.pools()["b"].tokens == 51
    drafter.forget(None)
    assert {pool.tokens for pool in drafter.pools().values()} == {0}


def test_fork_and_close() -> None:
    drafter = Suffix(branches=1)
    drafter.open(0, ENGLISH[:300], "a")
    ask(drafter, [*ENGLISH[:300], *ENGLISH[40:50]])
    drafter.fork(0, 1)
    expected = ask(drafter, [*ENGLISH[:300], *ENGLISH[40:60]], 0, 15)
    assert list(expected.tokens) == ENGLISH[60:75]
    drafter.close(0)
    drafter.close(0)
    assert ask(drafter, [*ENGLISH[:300], *ENGLISH[40:60]], 1, 15) == expected
    drafter.close(1)
    assert drafter._texts == {}


def test_a_conversation_that_goes_on_is_remembered_once() -> None:
    pool = SuffixPool()
    pool.add(ENGLISH[:300])
    pool.add(ENGLISH[:500])
    assert len(pool) == 300 + 1 + 200 + MATCH_MAX + 1
    pool.add(ENGLISH[100:200])
    assert len(pool) == 300 + 1 + 200 + MATCH_MAX + 1 + 101


def test_a_pool_drops_its_oldest_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix_pool, "SEGMENT_TOKENS", 1000)
    monkeypatch.setattr(suffix_pool, "FIRST_SEGMENT_TOKENS", 500)
    pool = SuffixPool(2, 3000)
    generator = random.Random(2)
    texts = [[generator.randrange(10_000) for _ in range(400)] for _ in range(12)]
    for text in texts:
        pool.add(text)
        assert len(pool) <= 3000
    for number, text in enumerate(texts):
        query = indexed(text[:200]).query()
        found = [s.occurrences(query, 4, len(s) + 1) for s in pool.segments]
        assert any(found) == (number >= 5), number
    pool.add([generator.randrange(10_000) for _ in range(9000)])
    assert len(pool) == 3000


def test_a_full_pool_fits_its_promise() -> None:
    pool = SuffixPool()
    text = list(range(60_000))
    for start in range(20):
        pool.add([start, *text])
    assert len(pool) <= suffix_pool.POOL_TOKENS
    assert pool.bytes() <= 64 << 20


def test_options_reach_the_drafter() -> None:
    options = SpeculationOptions(
        suffix_n_max=9, suffix_match=3, suffix_factor=2.5, suffix_p_min=0.25, draft_branches=2
    )
    [made] = named_drafters(["suffix"], options)
    assert isinstance(made, Suffix)
    assert (made.n_max, made.match, made.factor) == (9, 3, 2.5)
    assert (made.p_min, made.branches) == (0.25, 2)
    defaults, plain = Suffix(), SpeculationOptions()
    assert (defaults.n_max, defaults.match) == (plain.suffix_n_max, plain.suffix_match)
    assert (defaults.factor, defaults.p_min) == (plain.suffix_factor, plain.suffix_p_min)
    assert defaults.branches == plain.draft_branches
