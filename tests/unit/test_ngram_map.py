"""ngram-map-k and ngram-map-k4v: llama.cpp's vectors, where intent departs, and a slow twin."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import fake_resources, named_drafters
from slipstream.drafters import ngram_index
from slipstream.drafters.base import Draft, DraftRequest, Outcome
from slipstream.drafters.ngram_index import NgramIndex, key_hash
from slipstream.drafters.ngram_map import NgramMap
from slipstream.drafters.ngram_map_k import NgramMapK
from slipstream.drafters.ngram_map_k import create as create_k
from slipstream.drafters.ngram_map_k4v import NgramMapK4V
from slipstream.options import SpeculationOptions

KINDS: list[type[NgramMap]] = [NgramMapK, NgramMapK4V]
OTHER = 999


def history() -> list[int]:
    """Three copies of a text, each with its own last token, then the beginning of a fourth."""
    copies = [[*range(100, 120), 900 + copy] for copy in range(3)]
    return [token for copy in copies for token in copy] + [*range(100, 105)]


VECTOR = [*history(), 105]


def ask(drafter: NgramMap, tokens: Sequence[int], sequence: int = 0, n_max: int = 1000) -> Draft:
    [draft] = drafter.draft([DraftRequest(sequence, tokens, n_max)])
    return draft


def chain(drafter: NgramMap, tokens: Sequence[int], sequence: int = 0) -> list[int]:
    draft = ask(drafter, tokens, sequence)
    assert draft.parents == tuple(range(-1, len(draft) - 1))
    return list(draft.tokens)


def opened(kind: type[NgramMap], *arguments: int, prompt: int = 40) -> NgramMap:
    drafter = kind(*arguments)
    drafter.open(0, VECTOR[:prompt], "")
    return drafter


def verified(draft: Draft, text: Sequence[int]) -> Outcome:
    """The outcome where ``text`` is what the target goes on with; its last token ends the walk."""
    path = draft.matched(text[:-1])
    return Outcome(draft, path, tuple(text[: len(path) + 1]), len(draft))


# vectors


def test_hash_vector() -> None:
    assert key_hash(range(1, 13)) == 3885258222
    assert key_hash(range(1, 13)) % (1 << 18) == 21998


def test_defaults_are_those_of_llama_cpp() -> None:
    for name in ("ngram-map-k", "ngram-map-k4v"):
        [drafter] = named_drafters([name], SpeculationOptions())
        assert isinstance(drafter, NgramMap)
        assert (drafter.name, drafter.size_n, drafter.size_m) == (name, 12, 48)
        assert (drafter.min_hits, drafter.branches) == (1, 4)


@pytest.mark.parametrize("branches", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_conformance_vector(kind: type[NgramMap], branches: int) -> None:
    drafter = opened(kind, 4, 8, 1, branches)
    assert chain(drafter, VECTOR) == list(range(106, 114))


def test_map_k_after_two_were_accepted_drafts_two() -> None:
    drafter = opened(NgramMapK, 4, 8)
    draft = ask(drafter, VECTOR)
    drafter.observe(0, verified(draft, [106, 107, OTHER]))
    assert chain(drafter, VECTOR) == [106, 107]


def test_map_k_after_none_was_accepted_is_silent_and_recovers() -> None:
    """llama.cpp's vector is silent here too, but for good."""
    drafter = opened(NgramMapK, 4, 8)
    drafter.observe(0, verified(ask(drafter, VECTOR), [OTHER]))
    assert chain(drafter, VECTOR) == []
    # not drafted, but the target goes on as the text did
    drafter.observe(0, verified(Draft(), [106]))
    assert chain(drafter, VECTOR) == [106, 107]
    drafter.observe(0, verified(Draft(), [OTHER]))
    assert chain(drafter, VECTOR) == []


def test_map_k_honours_min_hits() -> None:
    """llama.cpp's vector drafts on the first hit with ``min_hits`` 5: it never looks at it."""
    drafter = opened(NgramMapK, 4, 8, 5)
    for _ in range(4):
        assert chain(drafter, VECTOR) == []
    assert chain(drafter, VECTOR) == list(range(106, 114))


def test_map_k4v_counts_an_occurrence_once() -> None:
    """llama.cpp's vector has num 2 for the prompt of 40 tokens, and 3 after the same call again:
    the last occurrence counted twice, and the one after the prompt never."""
    drafter = opened(NgramMapK4V, 4, 8)
    third = VECTOR[:48]  # ends with the third occurrence, whose continuation is not yet known
    assert chain(drafter, third) == list(range(106, 114))
    [key] = drafter.places[0].keys.values()
    [value] = key.values
    assert (value.start, value.count, key.hits) == (6, 2, 1)
    chain(drafter, third)
    assert (value.start, value.count, key.hits) == (6, 2, 2)
    for _ in range(2):
        assert chain(drafter, VECTOR) == list(range(106, 114))
        assert (value.start, value.count) == (6, 3)
    assert key.hits == 4


def test_map_k4v_honours_min_hits() -> None:
    drafter = opened(NgramMapK4V, 4, 8, 2)
    assert chain(drafter, VECTOR) == []
    assert chain(drafter, VECTOR) == list(range(106, 114))


# bounds


@pytest.mark.parametrize("kind", KINDS)
def test_two_n_and_m_tokens_are_needed(kind: type[NgramMap]) -> None:
    tokens = [0, 1, 2, 3, 50, 51, 52, 53, 1, 2, 3]  # 10 tokens and the newest
    for m, expected in {3: [50, 51, 52], 4: [50, 51, 52, 53], 5: []}.items():
        drafter = kind(3, m)
        drafter.open(0, tokens[:1], "")
        assert chain(drafter, tokens) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_index_0_never_matches(kind: type[NgramMap]) -> None:
    drafter = kind(3, 3)
    tokens = [1, 2, 3, *range(50, 60), 1, 2, 3]
    drafter.open(0, tokens, "")
    assert chain(drafter, tokens) == []
    drafter.open(1, [0, *tokens], "")
    assert chain(drafter, [0, *tokens], 1) == [50, 51, 52]


@pytest.mark.parametrize("kind", KINDS)
def test_n_max_bounds_the_nodes(kind: type[NgramMap]) -> None:
    for branches in (1, 4):
        drafter = opened(kind, 4, 8, 1, branches)
        assert ask(drafter, VECTOR, n_max=3).tokens == (106, 107, 108)


def test_the_latest_match_decides_for_map_k() -> None:
    drafter = NgramMapK(2, 3)
    tokens = [0, 1, 2, 30, 31, 32, 1, 2, 40, 41, 42, 1, 2]
    drafter.open(0, tokens, "")
    assert chain(drafter, tokens) == [40, 41, 42]
    # the match must have m tokens after it, the newest token not counted
    assert chain(drafter, [*tokens, 50, 51, 52, 1, 2]) == [50, 51, 52]
    assert chain(drafter, [*tokens, 50, 51, 52, 1, 2, 60, 61, 1, 2]) == [50, 51, 52]


def repeated(*followers: int) -> list[int]:
    """1 2 followed by f f+1 f+2, for each f, then 1 2 again."""
    return [0, *[t for f in followers for t in (1, 2, f, f + 1, f + 2)], 1, 2]


def test_k4v_drafts_what_followed_twice_as_often_as_all_else() -> None:
    for followers, expected in {
        (30, 30, 40): [30, 31, 32],
        (30, 30, 40, 30, 40): [],  # 3 against 2
        (30, 30, 40, 50): [],  # 2 against 2
        (30, 30, 30, 40, 30, 50): [30, 31, 32],
        (40, 30, 30): [30, 31, 32],
    }.items():
        drafter = NgramMapK4V(2, 3)
        drafter.open(0, repeated(*followers), "")
        assert chain(drafter, repeated(*followers)) == expected, followers


def test_k4v_keeps_four_values() -> None:
    drafter = NgramMapK4V(2, 3, 1, 8)
    tokens = repeated(30, 40, 50, 60, 70)
    drafter.open(0, tokens, "")
    draft = ask(drafter, tokens)
    roots = [token for token, parent in zip(draft.tokens, draft.parents, strict=True) if parent < 0]
    assert roots == [30, 40, 50, 60]


# trees


@pytest.mark.parametrize("kind", KINDS)
def test_alternatives_are_branches(kind: type[NgramMap]) -> None:
    drafter = kind(2, 3, 1, 2)
    tokens = repeated(30, 40, 30, 50)
    drafter.open(0, tokens, "")
    draft = ask(drafter, tokens)
    roots = draft.children()[-1]
    second = 50 if kind is NgramMapK else 40
    assert [draft.tokens[node] for node in roots] == [30, second]
    # 4 occurrences after 2 tokens
    assert [draft.probabilities[node] for node in roots] == pytest.approx([2 / 4.5, 1 / 4.5])
    assert set(draft.tokens) == {30, 31, 32, second, second + 1, second + 2}
    assert draft.distributions == ()


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_tree_the_branch_that_was_right_is_judged(kind: type[NgramMap]) -> None:
    drafter = kind(2, 3, 1, 2)
    tokens = repeated(30, 40, 30)
    drafter.open(0, tokens, "")
    draft = ask(drafter, tokens)
    drafter.observe(0, verified(draft, [40, OTHER]))
    draft = ask(drafter, tokens)
    depths = {30: 1 if kind is NgramMapK else 3, 40: 1}
    for first, depth in depths.items():
        assert len(draft.matched([first, first + 1, first + 2])) == depth


# limits


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_proposal_is_judged_by_what_was_verified(kind: type[NgramMap]) -> None:
    drafter = opened(kind, 4, 8)
    draft = ask(drafter, VECTOR).cut(3)
    drafter.observe(0, verified(draft, range(106, 114)))
    assert len(chain(drafter, VECTOR)) == 8
    drafter.observe(0, verified(draft, [106, 107, 108, OTHER]))
    assert len(chain(drafter, VECTOR)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_grows_to_twice_what_was_right(kind: type[NgramMap]) -> None:
    drafter = opened(kind, 4, 8)
    limits = []
    for right in (1, 1, 5, 5, 8):
        draft = ask(drafter, VECTOR)
        text = [*range(106, 106 + right), OTHER] if right < 8 else list(range(106, 120))
        drafter.observe(0, verified(draft, text))
        limits.append(len(chain(drafter, VECTOR)))
    # 1 of 8; 1 of 1, then a wrong token; 1 of 1, then a right one; 4 of 4, then a right one
    assert limits == [1, 1, 4, 8, 8]


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_learns_from_the_text_whoever_drafted(kind: type[NgramMap]) -> None:
    drafter = opened(kind, 4, 8)
    ask(drafter, VECTOR)
    drafter.observe(0, verified(Draft.chain([106, 107, 108], "another"), [106, 107, OTHER]))
    # the drafter was not asked in this step, so it says nothing about a guess
    drafter.observe(0, verified(Draft(), [OTHER]))
    assert chain(drafter, VECTOR) == [106, 107]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rejection_counts_where_the_token_would_have_matched(kind: type[NgramMap]) -> None:
    """As pretended acceptance may have it."""
    drafter = opened(kind, 4, 8)
    draft = ask(drafter, VECTOR)
    drafter.observe(0, Outcome(draft, (0, 1), (106, 107, 108), 8))
    assert chain(drafter, VECTOR) == [106, 107]


# sequences and scopes


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_goes_its_own_way(kind: type[NgramMap]) -> None:
    drafter = opened(kind, 4, 8)
    draft = ask(drafter, VECTOR)
    drafter.fork(0, 1)
    drafter.observe(1, verified(draft, [106, OTHER]))
    assert chain(drafter, VECTOR, 1) == [106]
    drafter.close(1)
    assert len(chain(drafter, VECTOR)) == 8
    drafter.observe(0, verified(draft, [106, 107, OTHER]))
    assert len(chain(drafter, VECTOR)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outlives_a_sequence_or_reaches_another(kind: type[NgramMap]) -> None:
    drafter = opened(kind, 4, 8)
    drafter.observe(0, verified(ask(drafter, VECTOR), [OTHER]))
    drafter.open(1, VECTOR[:45], "")
    drafter.open(2, [7, 8, 9], "")
    assert len(chain(drafter, VECTOR, 1)) == 8
    assert chain(drafter, [7, 8, 9, *range(200, 230), 102, 103, 104, 105], 2) == []
    drafter.close(0)
    drafter.open(0, VECTOR, "")
    assert len(chain(drafter, VECTOR)) == 8
    assert drafter.pools() == {}
    for sequence in range(3):
        drafter.close(sequence)
    drafter.close(0)
    assert drafter.places == {}


@pytest.mark.parametrize("kind", KINDS)
def test_forget_drops_limits_and_counts_of_a_scope(kind: type[NgramMap]) -> None:
    drafter = kind(4, 8, 2)
    for sequence, scope in enumerate(["a", "b"]):
        drafter.open(sequence, VECTOR, scope)
        ask(drafter, VECTOR, sequence)
        drafter.observe(sequence, verified(ask(drafter, VECTOR, sequence), [OTHER]))
    drafter.forget("a")
    assert [len(chain(drafter, VECTOR, 0)) for _ in range(2)] == [0, 8]
    assert chain(drafter, VECTOR, 1) == []
    drafter.forget(None)
    assert [len(chain(drafter, VECTOR, 1)) for _ in range(2)] == [0, 8]


# the index


@given(
    st.lists(st.integers(0, 2), max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_index_equals_a_search(tokens: list[int], cuts: list[int], n: int, margin: int) -> None:
    index = NgramIndex(n, margin)
    for cut in [*sorted(cuts), len(tokens)]:
        index.follow(tokens[:cut])
    key = array("i", tokens[-n:])
    prompt = len(tokens) - 1
    expected = [
        j for j in range(prompt - n - margin - 1, 0, -1) if tokens[j : j + n] == key.tolist()
    ]
    if len(key) == n:
        assert index.places(key, 100) == expected
        assert index.places(key, 2) == expected[:2]
        assert index.copy().places(key, 100) == expected


def test_keys_of_one_hash_do_not_lose_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_index, "WORD", 1)
    index = NgramIndex(2, 1)
    index.follow([0, 1, 2, 3, 4, 1, 2, 5, 6, 7, 8, 9])
    assert index.places(array("i", [1, 2]), 100) == [5, 1]
    assert index.places(array("i", [2, 3]), 100) == [2]
    assert index.places(array("i", [3, 1]), 100) == []
    # of places with one hash only so many are tried
    assert index.places(array("i", [1, 2]), 1) in ([], [5])


# the slow twin


@dataclass
class Twin:
    """The methods by their definition, chains only: everything is searched for at every draft."""

    kind: type[NgramMap]
    n: int
    m: int
    min_hits: int
    hits: dict[tuple[int, ...], int] = field(default_factory=dict)
    limits: dict[tuple[tuple[int, ...], ...], int] = field(default_factory=dict)
    guessed: tuple[tuple[int, ...], ...] = ()
    text: tuple[int, ...] = ()

    def draft(self, tokens: list[int]) -> list[int]:
        self.guessed = ()
        n, m, prompt = self.n, self.m, len(tokens) - 1
        if prompt < 2 * n + m:
            return []
        key = tuple(tokens[prompt + 1 - n :])
        texts = [
            tuple(tokens[j + n : j + n + m])
            for j in range(1, prompt - n - m)
            if tuple(tokens[j : j + n]) == key
        ]
        if not texts:
            return []
        self.hits[key] = self.hits.get(key, 0) + 1
        text = texts[-1]
        self.guessed = (key,)
        if self.kind is NgramMapK4V:
            kept = list(dict.fromkeys(texts))[:4]
            counts = [texts.count(one) for one in kept]
            most = max(counts)
            if most < 2 * (sum(counts) - most):
                self.guessed = ()
                return []
            text = kept[counts.index(most)]
            self.guessed = (key, text)
        self.text = text
        if self.hits[key] < self.min_hits:
            return []
        return list(text[: self.limits.get(self.guessed, m)])

    def observe(self, emitted: Sequence[int]) -> None:
        if not self.guessed:
            return
        right = 0
        while right < min(len(emitted), self.m) and emitted[right] == self.text[right]:
            right += 1
        if right < min(len(emitted), self.m):
            self.limits[self.guessed] = right
        else:
            old = self.limits.get(self.guessed, self.m)
            self.limits[self.guessed] = max(old, min(2 * right, self.m))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=2, max_size=120),
    st.integers(1, 119),
    st.sampled_from(KINDS),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.integers(0, 9), min_size=1, max_size=10),
)
def test_methods_equal_their_definition(
    text: list[int],
    prompt: int,
    kind: type[NgramMap],
    n: int,
    m: int,
    min_hits: int,
    cuts: list[int],
) -> None:
    """The target goes on as ``text``; of a draft the first ``cuts`` nodes are verified."""
    drafter = kind(n, m, min_hits)
    drafter.most_matches = 1000
    twin = Twin(kind, n, m, min_hits)
    length, steps = min(prompt, len(text) - 1), 0
    drafter.open(0, text[:length], "")
    while length < len(text) - 1:
        draft = ask(drafter, text[:length])
        assert list(draft.tokens) == twin.draft(text[:length])
        cut = draft.cut(cuts[steps % len(cuts)])
        outcome = verified(cut, text[length:])
        drafter.observe(0, outcome)
        twin.observe(outcome.tokens)
        length += len(outcome.tokens)
        steps += 1


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=20, max_size=120),
    st.sampled_from(KINDS),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(2, 4),
    st.integers(1, 12),
)
def test_trees_hold_the_rules(
    text: list[int], kind: type[NgramMap], n: int, m: int, branches: int, n_max: int
) -> None:
    drafter = kind(n, m, 1, branches)
    drafter.open(0, text[:10], "")
    for length in range(10, len(text)):
        draft = ask(drafter, text[:length], n_max=n_max)
        assert len(draft) <= n_max
        assert all(depth < m for depth in draft.depths())
        assert all(0 < estimate < 1 for estimate in draft.probabilities)
        assert len(draft.probabilities) == len(draft)
        for children in draft.children().values():
            estimates = [draft.probabilities[child] for child in children]
            assert len(children) <= branches
            assert estimates == sorted(estimates, reverse=True)
        drafter.observe(0, verified(draft, text[length:]))


def test_options_reach_the_drafter() -> None:
    options = SpeculationOptions(
        ngram_map_k_size_n=3, ngram_map_k_size_m=5, ngram_map_k_min_hits=2, draft_branches=1
    )
    drafter = create_k(options, fake_resources())
    assert (drafter.size_n, drafter.size_m, drafter.min_hits, drafter.branches) == (3, 5, 2, 1)
