"""Drafters against the conformance vectors of llama.cpp's methods, and where intent departs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines import named_drafters
from slipstream.drafters import PRECEDENCE, check_names, implemented
from slipstream.drafters.base import Draft, DraftRequest, Outcome
from slipstream.drafters.history import TokenHistory
from slipstream.drafters.ngram_mod import NgramMod
from slipstream.drafters.ngram_simple import NgramSimple
from slipstream.drafters.ngram_table import MULTIPLIER, NgramTable
from slipstream.drafters.pools import Pools
from slipstream.errors import OptionError, UnsupportedError
from slipstream.options import SpeculationOptions

NEWEST = 105


def history() -> list[int]:
    """Three copies of a text, each with its own last token, then the beginning of a fourth."""
    copies = [[*range(100, 120), 900 + copy] for copy in range(3)]
    return [token for copy in copies for token in copy] + [*range(100, 105)]


def ask(drafter: NgramSimple | NgramMod, tokens: Sequence[int], sequence: int = 0) -> list[int]:
    [draft] = drafter.draft([DraftRequest(sequence, tokens, 1000)])
    assert draft.parents == tuple(range(-1, len(draft) - 1))
    return list(draft.tokens)


# ngram-simple


def simple(size_n: int, size_m: int, tokens: Sequence[int]) -> list[int]:
    drafter = NgramSimple(size_n, size_m)
    drafter.open(0, tokens[:3], "")
    return ask(drafter, tokens)


def test_ngram_simple_conformance_vectors() -> None:
    tokens = [*history(), NEWEST]
    assert len(tokens) == 69
    assert simple(4, 8, tokens) == list(range(106, 114))
    assert simple(6, 8, tokens) == list(range(106, 114))
    assert simple(4, 3, tokens) == []


def test_ngram_simple_prefers_the_most_recent_match() -> None:
    tokens = [9, 1, 2, 3, 30, 31, 32, 7, 1, 2, 3, 40, 41, 42, 8, 8, 1, 2, 3]
    assert simple(3, 3, tokens) == [40, 41, 42]


def test_ngram_simple_never_matches_index_0() -> None:
    after = [50, 51, 52, 53, 54, 55, 56, 57]
    assert simple(3, 3, [1, 2, 3, *after, 1, 2, 3]) == []
    assert simple(3, 3, [0, 1, 2, 3, *after, 1, 2, 3]) == [50, 51, 52]


def test_ngram_simple_needs_more_than_n_plus_m_plus_one_tokens() -> None:
    tokens = [0, 1, 2, 3, 50, 51, 52, 1, 2, 3]
    # prompt length 9: 3 + 5 + 1 is not enough, 3 + 4 + 1 is
    assert simple(3, 5, tokens) == []
    assert simple(3, 4, tokens) == [50, 51, 52, 1]


def test_ngram_simple_drops_continuations_shorter_than_its_key() -> None:
    tokens = [*range(20), 1, 2, 3, 50, 51, 1, 2, 3]
    assert simple(3, 8, tokens) == [50, 51, 1, 2]
    assert simple(3, 8, [*range(20), 1, 2, 3, 1, 2, 3]) == []


def reference_simple(n: int, m: int, tokens: list[int]) -> list[int]:
    """The definition, word for word."""
    prompt, length = tokens[:-1], len(tokens) - 1
    if length <= n + m + 1:
        return []
    pattern = [*prompt[len(prompt) - (n - 1) :], tokens[-1]]
    for j in range(length - n - 1, 0, -1):
        if prompt[j : j + n] == pattern:
            found = prompt[j + n : j + n + min(m, length - (j + n))]
            return found if len(found) >= n else []
    return []


@given(
    st.lists(st.sampled_from([0, 1, 256, 65536, 16777217]), min_size=1, max_size=80),
    st.integers(1, 4),
    st.integers(1, 6),
)
def test_ngram_simple_equals_its_definition(tokens: list[int], n: int, m: int) -> None:
    assert simple(n, m, tokens) == reference_simple(n, m, tokens)


def test_history_matches_tokens_not_bytes() -> None:
    kept = TokenHistory()
    kept.follow([0x01000000, 0x00000002, 5])
    # the bytes of token 0x0201 stand across the border of the first two tokens
    assert kept.last_match([0x0201], 0, 3) == -1
    assert kept.last_match([5], 0, 3) == 2
    assert kept.last_match([5], 0, 2) == -1


def test_ngram_simple_fork_and_close() -> None:
    drafter = NgramSimple(4, 8)
    tokens = [*history(), NEWEST]
    drafter.open(0, tokens[:40], "")
    drafter.fork(0, 1)
    drafter.close(0)
    assert ask(drafter, tokens, 1) == list(range(106, 114))


# ngram-mod


def test_ngram_mod_hash_vectors() -> None:
    table = NgramTable(24)
    assert table.hash(range(1, 25)) % (1 << 22) == 1449372
    assert table.hash(range(2, 26)) % (1 << 22) == 1479972
    assert table.hash([151643, 0, -1]) % (1 << 22) == 4039122
    assert table.roll(table.hash(range(1, 25)), 1, 25) == table.hash(range(2, 26))
    assert MULTIPLIER == 6364136223846793005


def test_ngram_table_stores_followers_and_counts_slots() -> None:
    table = NgramTable(3)
    assert table.follow([1, 2, 3], 5) == []
    table.insert([1, 2, 3, 4, 5, 6])
    assert table.used == 3
    assert table.follow([1, 2, 3], 5) == [4, 5, 6]
    assert table.follow([1, 2, 3], 2) == [4, 5]
    table.insert([1, 2, 3, 9])
    assert table.used == 3
    assert table.follow([1, 2, 3], 5) == [9]
    table.insert([7, 7, 7, 0, 7, 7, 7, 8])
    assert table.follow([7, 7, 7], 1) == [8]
    table.clear()
    assert table.used == 0
    assert table.follow([1, 2, 3], 5) == []


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 5))
def test_ngram_table_equals_a_dictionary(tokens: list[int], n: int) -> None:
    table = NgramTable(n)
    expected: dict[tuple[int, ...], int] = {}
    table.insert(tokens)
    for i in range(len(tokens) - n):
        expected[tuple(tokens[i : i + n])] = tokens[i + n]
    assert table.used == len(expected)
    for key, follower in expected.items():
        assert table.follow(key, 1) == [follower]


def mod(n_match: int = 3, n_max: int = 8, n_min: int = 1) -> NgramMod:
    return NgramMod(n_match, n_max, n_min)


def test_ngram_mod_defaults_are_those_of_llama_cpp() -> None:
    drafter = named_drafters(["ngram-mod"], SpeculationOptions())[0]
    assert isinstance(drafter, NgramMod)
    assert (drafter.n_match, drafter.n_max, drafter.n_min) == (24, 64, 48)


def test_ngram_mod_proposes_what_followed() -> None:
    drafter = mod()
    drafter.open(0, [*range(10, 30), 10, 11, 12], "")
    assert ask(drafter, [*range(10, 30), 10, 11, 12]) == list(range(13, 21))


@pytest.mark.parametrize(("n_min", "drafted"), [(7, 7), (8, 0)])
def test_ngram_mod_n_min_tests_the_proposal(n_min: int, drafted: int) -> None:
    drafter = mod(n_max=9, n_min=n_min)
    tokens = list(range(10))
    drafter.open(0, tokens, "")
    assert len(ask(drafter, [50, 51, 0, 1, 2], 0)) == drafted


def test_ngram_mod_sees_generated_text_at_once() -> None:
    drafter = mod()
    drafter.open(0, [1, 2], "")
    tokens = [1, 2, 3, 4, 1, 2, 3]
    assert ask(drafter, tokens)[:1] == [4]


def test_ngram_mod_shares_one_table_between_sequences_of_a_scope() -> None:
    drafter = mod()
    drafter.open(0, range(20), "")
    drafter.open(1, [3, 4], "")
    assert ask(drafter, [3, 4, 5], 1) == list(range(6, 14))
    drafter.open(2, [3, 4], "another")
    assert ask(drafter, [3, 4, 5], 2) == []
    assert {scope: pool.tokens for scope, pool in drafter.pools().items()} == {"": 20, "another": 0}


def test_ngram_mod_clears_a_full_table_before_it_learns_the_prompt() -> None:
    drafter = mod()
    drafter.open(0, range(20), "")
    drafter.tables.of(0).used = (1 << 20) + 1
    drafter.open(1, range(50, 70), "")
    assert drafter.tables.of(0).used == 17
    assert ask(drafter, [50, 51, 52], 1) == list(range(53, 61))
    assert ask(drafter, [3, 4, 5], 0) == []


def outcome(drafted: int, accepted: int, method: str = "ngram-mod") -> Outcome:
    draft = Draft.chain(range(drafted), method)
    return Outcome(draft, tuple(range(accepted)), tuple(range(accepted + 1)), 64)


def test_ngram_mod_forgets_after_five_poor_drafts_in_a_row() -> None:
    drafter = mod()
    drafter.open(0, range(20), "")
    for accepted in (0, 1, 0, 1):
        drafter.observe(0, outcome(8, accepted))
    drafter.observe(0, outcome(8, 2))  # a quarter is not poor
    for _ in range(4):
        drafter.observe(0, outcome(8, 0))
    drafter.observe(0, outcome(8, 0, "ngram-simple"))
    drafter.observe(0, outcome(0, 0, "none"))
    assert drafter.tables.of(0).used == 17
    drafter.observe(0, outcome(8, 1))
    assert drafter.tables.of(0).used == 0
    # the sequence teaches the empty table again
    assert ask(drafter, [*range(20), 3, 4, 5]) == list(range(6, 14))


def test_ngram_mod_judges_by_what_was_verified() -> None:
    drafter = mod()
    drafter.open(0, range(20), "")
    for _ in range(5):
        drafter.observe(0, outcome(4, 4))
    assert drafter.tables.of(0).used == 17


def test_ngram_mod_fork_and_close() -> None:
    drafter = mod()
    drafter.open(0, range(20), "")
    drafter.fork(0, 1)
    drafter.close(0)
    assert ask(drafter, [*range(20), 3, 4, 5], 1) == list(range(6, 14))


# by name, and in a chain


def test_none_stands_alone() -> None:
    for names in ([], ["none"], ["none", "none"]):
        assert named_drafters(names, SpeculationOptions()) == ()
    with pytest.raises(OptionError, match="Leave out 'none'"):
        check_names(["ngram-mod", "none"])


def test_precedence_is_fixed_and_duplicates_collapse() -> None:
    assert check_names(["ngram-mod", "ngram-simple"] * 2) == ("ngram-simple", "ngram-mod")
    assert PRECEDENCE[:2] == ("ngram-simple", "ngram-map-k")


def test_unknown_names_name_the_nearest() -> None:
    with pytest.raises(OptionError, match="Did you mean 'ngram-simple'"):
        named_drafters(["ngram-simpel"], SpeculationOptions())


def test_known_methods_that_cannot_run_yet_are_refused() -> None:
    missing = sorted({*PRECEDENCE, "auto"} - set(implemented()))
    for name in missing:
        with pytest.raises(UnsupportedError, match=name):
            check_names([name])


def test_pools_stay_while_used_and_are_forgotten_by_scope() -> None:
    pools = Pools(list[int], idle=1)
    for sequence, scope in enumerate(["a", "b", "c"]):
        pools.open(sequence, scope).append(sequence)
    pools.fork(2, 3)
    assert (pools.of(3), pools.mates(3)) == ([2], [2, 3])
    for sequence in (0, 1):
        pools.close(sequence)
    assert dict(pools.all()) == {"b": [1], "c": [2]}
    assert pools.open(4, "b") == [1]
    assert pools.forget("c") == [2, 3]
    assert dict(pools.all()) == {"b": [1], "c": []}
    assert sorted(pools.forget(None)) == [2, 3, 4]
    assert pools.forget("unknown") == []
    assert dict(pools.all()) == {"b": [], "c": []}


def test_a_draft_keeps_chosen_nodes_as_a_tree() -> None:
    tree = Draft((5, 6, 7, 8), (-1, -1, 0, 2), ("a", "b", "a", "a"), (0.9, 0.1, 0.8, 0.5))
    assert (tree.method, tree.depths()) == ("a,b", [0, 0, 1, 2])
    kept = tree.kept([0, 2, 1])
    assert kept == Draft((5, 7, 6), (-1, 0, -1), ("a", "a", "b"), (0.9, 0.8, 0.1))
    assert tree.cut(9) is tree
    assert tree.cut(0) == Draft()
    assert tree.matched([5, 7, 9, 8]) == (0, 2)
    assert tree.matched([6]) == (1,)
    assert tree.matched([9]) == ()


def test_ngram_mod_does_not_take_up_again_what_was_erased() -> None:
    drafter = mod()
    text = [*range(20)]
    drafter.open(0, text, "a")
    drafter.observe(0, Outcome(Draft(), (), (20,)))
    drafter.forget("a")
    text += [20, 50, 51, 52, 53]
    assert ask(drafter, [*text, 3, 4, 5]) == []
    drafter.open(1, [3, 4], "a")
    assert ask(drafter, [3, 4, 5], 1) == []
    assert ask(drafter, [50, 51, 52], 1)[:1] == [53]
    # nor where the table is cleared after poor drafts
    for _ in range(5):
        drafter.observe(0, outcome(8, 0))
    assert drafter.tables.of(0).used == 0
    assert ask(drafter, [*text, 3, 4, 5]) == []
    assert ask(drafter, [50, 51, 52], 1)[:1] == [53]
