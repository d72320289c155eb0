"""ngram-cache: llama.cpp's vectors and rules, a slow twin, scopes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import drain, fake_engine, joined, named_drafters, run
from fake_program import FakeProgram
from slipstream.drafters import ngram_counts
from slipstream.drafters.base import Draft, DraftRequest, Outcome
from slipstream.drafters.lookup import Lookup
from slipstream.drafters.lookup_rows import rows_of
from slipstream.drafters.lookup_table import LookupTable
from slipstream.drafters.ngram_cache import NgramCache
from slipstream.drafters.ngram_counts import NgramCounts, after, grams_of
from slipstream.engine.engine import Engine
from slipstream.engine.sequence import Request
from slipstream.errors import OperationError
from slipstream.options import SamplingOptions, SpeculationOptions

Counted = Mapping[tuple[int, ...], Mapping[int, int]]


def history() -> list[int]:
    """Three copies of a text, each with its own last token, then the beginning of a fourth."""
    copies = [[*range(100, 120), 900 + copy] for copy in range(3)]
    return [token for copy in copies for token in copy] + [*range(100, 105)]


def gram(*tokens: int) -> int:
    return grams_of(tokens)[-1]


def counts_of(counted: Counted) -> NgramCounts:
    return NgramCounts.of(
        (gram(*key), token, count)
        for key, followers in counted.items()
        for token, count in followers.items()
    )


def table_of(counted: Counted) -> LookupTable:
    return LookupTable(rows_of(counts_of(counted)))


def ask(drafter: NgramCache, tokens: Sequence[int], sequence: int = 0, n_max: int = 1000) -> Draft:
    [draft] = drafter.draft([DraftRequest(sequence, tokens, n_max)])
    return draft


def chain(drafter: NgramCache, tokens: Sequence[int], sequence: int = 0) -> list[int]:
    draft = ask(drafter, tokens, sequence)
    assert draft.parents == tuple(range(-1, len(draft) - 1))
    return list(draft.tokens)


def outcome(*tokens: int) -> Outcome:
    return Outcome(Draft(), (), tokens)


# vectors


def test_update_vectors() -> None:
    for tokens, pairs in {(5,): 0, (5, 6): 1, (5, 6, 7): 3}.items():
        counts = NgramCounts()
        counts.learn(tokens, ())
        assert counts.pairs == pairs


@pytest.mark.parametrize("branches", [1, 4])
def test_draft_vector(branches: int) -> None:
    drafter = NgramCache(branches)
    drafter.open(0, history()[:7], "")
    draft = ask(drafter, [*history(), 105], n_max=8)
    assert draft.tokens == tuple(range(106, 114))
    assert draft.parents == tuple(range(-1, 7))


def test_the_limit_of_8_tokens() -> None:
    drafter = NgramCache()
    drafter.open(0, [*history(), 105], "")
    assert len(chain(drafter, [*history(), 105])) == 8


def test_steps_of_one_token_teach() -> None:
    """In llama.cpp a step of one token is a text of its own, which holds no n-gram."""
    whole, steps = NgramCache(), NgramCache()
    text = [*history(), 105]
    whole.open(0, text, "")
    steps.open(0, text[:1], "")
    for length in range(2, len(text) + 1):
        steps.draft([DraftRequest(0, text[:length], 1)])
    assert list(steps._texts[0].counts.rows()) == list(whole._texts[0].counts.rows())


# counts


def test_ngrams_of_different_sizes_differ() -> None:
    grams = [gram(*[0] * size) for size in range(1, 5)]
    assert len(set(grams)) == 4
    assert after(grams_of([1, 2, 3, 4]), 5) == grams_of([2, 3, 4, 5]) == grams_of([9, 2, 3, 4, 5])
    assert grams_of([]) == ()


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 60), max_size=3))
def test_counts_equal_a_dictionary(tokens: list[int], cuts: list[int]) -> None:
    counts, grams, start = NgramCounts(), (), 0
    for stop in [*sorted(cuts), len(tokens)]:
        grams = counts.learn(tokens[start:stop], grams)
        start = max(start, min(stop, len(tokens)))
    expected = reference_counts(tokens)
    found = defaultdict(dict)
    for key, token, count in counts.rows():
        found[key][token] = count
    assert found == {gram(*key): dict(followers) for key, followers in expected.items()}
    assert counts.pairs == sum(map(len, expected.values()))
    assert counts.tokens == len(tokens)
    for source in (counts, counts.copy(), LookupTable(rows_of(counts))):
        for key, followers in expected.items():
            assert source.totals(gram(*key)) == (sum(followers.values()), max(followers.values()))
            assert source.followers(gram(*key)) == followers
        assert source.totals(gram(7)) == (0, 0)
        assert source.followers(gram(7)) == {}


def test_a_copy_is_independent() -> None:
    counts = counts_of({(1,): {5: 1}, (2,): {5: 1, 6: 1}})
    twin = counts.copy()
    twin.add(gram(1), 5, 1)
    twin.add(gram(2), 6, 3)
    assert counts.followers(gram(1)) == {5: 1}
    assert counts.followers(gram(2)) == {5: 1, 6: 1}


def test_merged_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_counts, "MOST_PAIRS", 5)
    pool = counts_of({(1,): {2: 4, 3: 1}, (2,): {3: 2}})
    pool.tokens = 8
    pool.merge(counts_of({(4,): {5: 1, 6: 1}}))
    assert pool.pairs == 5
    pool.merge(counts_of({(7,): {8: 1, 9: 1}}))
    # counts were halved once, so what was seen once made room
    assert sorted(pool.rows()) == sorted(
        counts_of({(1,): {2: 2}, (2,): {3: 1}, (7,): {8: 1, 9: 1}}).rows()
    )
    assert pool.tokens == 4
    pool.merge(counts_of({(token,): {0: 2} for token in range(20)}))
    assert pool.pairs <= 5


def test_counts_stay_within_what_a_file_holds() -> None:
    counts = counts_of({(1,): {5: (1 << 31) - 1}, (2,): {5: (1 << 31) - 1, 6: 1}})
    counts.add(gram(1), 5, 9)
    counts.add(gram(2), 5, 9)
    assert counts.followers(gram(1)) == {5: (1 << 31) - 1}
    assert counts.totals(gram(2)) == (1 << 31, (1 << 31) - 1)


# rules


def first(
    context: Counted | None = None,
    dynamic: Counted | None = None,
    static: Counted | None = None,
    tokens: Sequence[int] = (1, 2, 3, 4),
) -> int | None:
    """The first choice after ``tokens``, with a dynamic source half in the pool, half in a file."""
    taught = {key: {t: c for t, c in f.items() if t % 2} for key, f in (dynamic or {}).items()}
    filed = {key: {t: c for t, c in f.items() if not t % 2} for key, f in (dynamic or {}).items()}
    lookup = Lookup(
        counts_of(context or {}),
        counts_of(taught),
        table_of(filed),
        table_of(static) if static else None,
        1,
    )
    ranked = lookup.ranked(grams_of(tokens))
    return ranked[0][0] if ranked else None


@pytest.mark.parametrize(
    ("key", "followers", "lax", "strict"),
    [
        ((4,), {50: 1}, None, None),
        ((4,), {50: 2}, 50, None),
        ((4,), {50: 3}, 50, None),
        ((4,), {50: 4}, 50, 50),
        ((4,), {50: 65, 51: 35}, None, None),
        ((4,), {50: 66, 51: 34}, 50, None),
        ((4,), {50: 74, 51: 26}, 50, None),
        ((4,), {50: 75, 51: 25}, 50, 50),
        ((3, 4), {50: 1}, None, None),
        ((3, 4), {50: 2}, 50, None),
        ((3, 4), {50: 3}, 50, 50),
        ((3, 4), {50: 49, 51: 49, 52: 2}, None, None),
        ((3, 4), {50: 50, 51: 50}, 50, None),
        ((3, 4), {50: 65, 51: 35}, 50, None),
        ((3, 4), {50: 66, 51: 34}, 50, 50),
        ((2, 3, 4), {50: 1}, 50, None),
        ((2, 3, 4), {50: 2}, 50, 50),
        ((2, 3, 4), {50: 50, 51: 50}, 50, None),
        ((2, 3, 4), {50: 66, 51: 34}, 50, 50),
        ((1, 2, 3, 4), {50: 1}, 50, None),
        ((1, 2, 3, 4), {50: 2}, 50, 50),
        ((1, 2, 3, 4), {50: 49, 51: 49, 52: 2}, None, None),
        ((1, 2, 3, 4), {50: 66, 51: 34}, 50, 50),
    ],
)
def test_thresholds(
    key: tuple[int, ...], followers: dict[int, int], lax: int | None, strict: int | None
) -> None:
    assert first(context={key: followers}) == lax
    assert first(dynamic={key: followers}) == strict


def test_the_largest_ngram_that_passes_decides() -> None:
    context = {(1, 2, 3, 4): {50: 1, 51: 1, 52: 1}, (2, 3, 4): {53: 1}, (3, 4): {54: 9}}
    assert first(context) == 53


def test_the_context_comes_first_then_the_dynamic_source_then_the_static() -> None:
    weak, strong = {(4,): {50: 2}}, {(4,): {51: 9}}
    static = {(3, 4): {52: 2}}
    assert first(weak, strong, static) == 50
    assert first({(4,): {50: 1}}, strong, static) == 51
    assert first({(4,): {50: 1}}, {(4,): {51: 3}}, static) == 52
    assert first(static={(3, 4): {52: 1}}) is None
    assert first(static={(3, 4): {52: 5, 53: 5}}) == 52
    assert first(static={(3, 4): {52: 4, 53: 4, 54: 4}}) is None


def test_followers_that_the_static_file_has_too_weigh_more() -> None:
    context = {(2, 3, 4): {50: 3, 51: 3}}
    assert first(context) == 50
    assert first(context, static={(3, 4): {51: 1}}) == 51
    assert first(context, static={(3, 4): {50: 2, 51: 3}}) == 51
    # 1 * 100 * 4 is more than 3 * 100 * 1, but 1 of 4 is under 50 %, as is 5 of 15
    static = {(3, 4): {50: 1, 51: 4, 52: 5, 53: 5}}
    assert first({(2, 3, 4): {50: 3, 51: 1}}, static=static) is None
    # other pairs of the file say nothing
    assert first(context, static={(2, 4): {51: 1}}) == 50


def test_ties_go_to_the_lowest_id() -> None:
    assert first({(3, 4): {51: 2, 50: 2}}) == 50
    assert first({(3, 4): {50: 2, 51: 2}}) == 50


def test_dynamic_counts_of_pool_and_file_add_up() -> None:
    taught, filed = counts_of({(4,): {50: 2, 51: 1}}), table_of({(4,): {50: 2}})
    ranked = Lookup(NgramCounts(), taught, filed, None, 2).ranked(grams_of([4]))
    # 4 of 5 times, after one token: what was not seen weighs 1
    assert ranked == [(50, pytest.approx(4 / 6)), (51, pytest.approx(1 / 6))]
    taught = counts_of({(4,): {51: 2}})
    assert Lookup(NgramCounts(), taught, filed, None, 2).ranked(grams_of([4])) == []


# trees


def test_alternatives_are_branches() -> None:
    drafter = NgramCache(2)
    text = [1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2]
    drafter.open(0, text, "")
    draft = ask(drafter, text, n_max=20)
    roots = draft.children()[-1]
    assert [draft.tokens[node] for node in roots] == [3, 4]
    # 3 times after two tokens: what was not seen weighs 1/2
    assert [draft.probabilities[node] for node in roots] == pytest.approx([2 / 3.5, 1 / 3.5])
    assert len(draft) == 20
    assert draft.distributions == ()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.integers(2, 4), st.integers(1, 40))
def test_trees_hold_the_rules(text: list[int], branches: int, n_max: int) -> None:
    drafter = NgramCache(branches)
    drafter.open(0, text, "")
    draft = ask(drafter, text, n_max=n_max)
    assert len(draft) <= min(n_max, 32)
    assert all(depth < 8 for depth in draft.depths())
    assert all(0 < estimate < 1 for estimate in draft.probabilities)
    for children in draft.children().values():
        estimates = [draft.probabilities[child] for child in children]
        assert len(children) <= branches
        assert estimates == sorted(estimates, reverse=True)
        assert sum(estimates) < 1


# the slow twin


def reference_counts(tokens: Sequence[int]) -> dict[tuple[int, ...], Counter[int]]:
    counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for size in range(1, 5):
        for i in range(size, len(tokens)):
            counts[tuple(tokens[i - size : i])][tokens[i]] += 1
    return counts


def reference_pick(
    primary: Counted, static: Mapping[int, int], tokens: Sequence[int], strict: bool
) -> int | None:
    least = [4, 3, 2, 2] if strict else [2, 2, 1, 1]
    percent = [75, 66, 66, 66] if strict else [66, 50, 50, 50]
    for size in range(4, 0, -1):
        followers = primary.get(tuple(tokens[-size:]), {}) if len(tokens) >= size else {}
        total, best, weight = sum(followers.values()), None, 0
        for token in sorted(followers):
            mass = followers[token] * (100 * static[token] if token in static else 1)
            if mass > weight:
                best, weight = token, mass
        if best is None or total < least[size - 1]:
            continue
        if 100 * followers[best] >= percent[size - 1] * total:
            return best
    return None


def reference_draft(
    tokens: list[int], context: Counted, dynamic: Counted, static: Counted
) -> list[int]:
    """The definition, word for word."""
    drafted: list[int] = []
    while len(drafted) < 8:
        sequence = [*tokens, *drafted]
        part = static.get(tuple(sequence[-2:]), {}) if len(sequence) >= 2 else {}
        token = reference_pick(context, part, sequence, strict=False)
        if token is None:
            token = reference_pick(dynamic, part, sequence, strict=True)
        if token is None and sum(part.values()) >= 2:
            best = min(part, key=lambda follower: (-part[follower], follower))
            if 2 * part[best] >= sum(part.values()):
                token = best
        if token is None:
            break
        drafted.append(token)
    return drafted


TEXTS = st.lists(st.integers(0, 4), max_size=60)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS, TEXTS, st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 9))
def test_drafts_equal_their_definition(
    taught: list[int], filed: list[int], fixed: list[int], text: list[int], step: int
) -> None:
    counts = reference_counts(fixed)
    static = {key: followers for key, followers in counts.items() if len(key) == 2}
    file = NgramCounts()
    file.learn(filed, ())
    drafter = NgramCache(1, table_of(static), LookupTable(rows_of(file)))
    drafter.open(7, taught, "")
    drafter.close(7)
    dynamic = reference_counts(taught)
    for key, followers in reference_counts(filed).items():
        dynamic[key] = dynamic[key] + followers
    drafter.open(0, text[:1], "")
    for length in range(1, len(text) + 1, step):
        tokens = text[:length]
        expected = reference_draft(tokens, reference_counts(tokens), dynamic, static)
        assert chain(drafter, tokens) == expected


# what is learned, and where it stays


def test_defaults() -> None:
    [drafter] = named_drafters(["ngram-cache"], SpeculationOptions())
    assert isinstance(drafter, NgramCache)
    assert (drafter.name, drafter.branches) == ("ngram-cache", 4)
    assert drafter.static is drafter.dynamic is None


def test_steps_without_a_draft_are_learned_but_the_last() -> None:
    drafter = NgramCache()
    drafter.open(0, [1, 2], "")
    for token in (3, 4, 5):
        drafter.observe(0, outcome(token))
    assert drafter._texts[0].learned == 4
    assert ask(drafter, [1, 2, 3, 4, 5]) == Draft()
    assert drafter._texts[0].learned == 5
    drafter.observe(0, outcome(6, 7))
    drafter.close(0)
    assert drafter.pools()[""].tokens == 5


def test_a_finished_sequence_teaches_its_scope_alone() -> None:
    drafter = NgramCache()
    drafter.open(0, [*range(10, 20)] * 3, "a")
    drafter.open(1, [10, 11, 12], "a")
    assert chain(drafter, [10, 11, 12], 1) == []
    drafter.close(0)
    assert chain(drafter, [10, 11, 12], 1) == [*range(13, 20), 10]
    drafter.open(2, [10, 11, 12], "b")
    assert chain(drafter, [10, 11, 12], 2) == []
    pools = drafter.pools()
    assert {scope: pool.tokens for scope, pool in pools.items()} == {"a": 30, "b": 0}
    assert pools["a"].bytes > 0 == pools["b"].bytes
    drafter.forget("b")
    assert len(chain(drafter, [10, 11, 12], 1)) == 8
    drafter.forget("a")
    assert chain(drafter, [10, 11, 12], 1) == []
    # what an open sequence says of itself it still knows
    assert chain(drafter, [10, 11, 12, 10], 1) == []
    assert chain(drafter, [10, 11, 12, 10, 11, 12], 1) == [10, 11, 12, 10, 11, 12, 10, 11]


def test_forget_all() -> None:
    drafter = NgramCache()
    for scope in ("a", "b"):
        drafter.open(0, [*range(10, 20)] * 2, scope)
        drafter.close(0)
    drafter.forget(None)
    assert all(pool.tokens == 0 for pool in drafter.pools().values())
    for scope in ("a", "b"):
        drafter.open(0, [10, 11, 12], scope)
        assert chain(drafter, [10, 11, 12]) == []
        drafter.close(0)


def test_a_fork_goes_its_own_way() -> None:
    drafter = NgramCache()
    drafter.open(0, [1, 2, 3, 1, 2, 3], "a")
    drafter.fork(0, 1)
    assert chain(drafter, [1, 2, 3, 1, 2, 3, 7, 8, 9, 7, 8, 9], 1)[:2] == [7, 8]
    assert chain(drafter, [1, 2, 3, 1, 2, 3, 1]) == [2, 3, 1, 2, 3, 1, 2, 3]
    assert drafter._texts[0].counts.totals(gram(7)) == (0, 0)
    drafter.close(1)
    assert drafter.pools()["a"].tokens == 12
    drafter.close(0)
    drafter.close(0)
    assert drafter._texts == {}


def test_a_sequence_that_could_not_be_saved_is_a_recorded_reason() -> None:
    def save(counts: NgramCounts) -> None:
        del counts
        raise OperationError("room", "a full disk", "Make room.")

    drafter = NgramCache(save=save)
    [output] = run(fake_engine(drafter, FakeProgram(24, 2)), [1, 2, 3] * 4, max_tokens=8)
    reasons = output.statistics.rejected_drafts
    assert [reason for reason in reasons if "full disk" in reason]
    assert len(output.ids) == 8
    assert drafter._texts == {}
    assert sum(pool.tokens for pool in drafter.pools().values()) >= 12


def drafted_in(engine: Engine, session: str) -> list[tuple[int, ...]]:
    """Proposed, drafted and accepted tokens of each step of a request."""
    options = SamplingOptions(seed=1, max_tokens=24)
    identity = engine.submit(Request([1, 2], options, session=session))
    rounds = joined(drain(engine), identity).statistics.rounds
    return [(r.proposed, r.drafted, r.accepted) for r in rounds]


def test_a_session_leaves_no_trace_in_another() -> None:
    cold = drafted_in(fake_engine(NgramCache(), FakeProgram(24, 2)), "b")
    engine = fake_engine(NgramCache(), FakeProgram(24, 2))
    assert drafted_in(engine, "a") == cold
    drafted_in(engine, "a")  # seen once is not often enough for another text
    warm = drafted_in(engine, "a")
    assert sum(accepted for _, _, accepted in warm) > sum(accepted for _, _, accepted in cold)
    assert drafted_in(engine, "b") == cold
    engine.drafting.forget(["session a"])
    assert drafted_in(engine, "a") == cold
    alone = fake_engine(NgramCache(), FakeProgram(24, 2), scope="request")
    assert [drafted_in(alone, "a") for _ in range(3)] == [cold] * 3


def test_an_open_sequence_teaches_nothing_that_was_erased() -> None:
    saved: list[int] = []
    drafter = NgramCache(save=lambda counts: saved.append(counts.tokens))
    secret = [*range(10, 20)] * 3
    drafter.open(0, secret, "a")
    drafter.observe(0, outcome(7, 8))
    drafter.forget("a")
    assert chain(drafter, [*secret, 7, 8, 10, 11, 12])[:2] == [13, 14]  # its own text serves it
    drafter.fork(0, 1)
    for sequence in (0, 1):
        drafter.close(sequence)
    assert drafter.pools()["a"].tokens == 6
    assert saved == [3, 3]
    drafter.open(2, [10, 11, 12], "a")
    assert not set(chain(drafter, [10, 11, 12], 2)) - {10, 11, 12}
    assert {token for _, token, _ in drafter.taught.of(2).rows()} == {11, 12}
