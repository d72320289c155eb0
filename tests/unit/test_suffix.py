"""suffix: its drafts, copying over edits, scopes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import named_drafters
from slipstream.drafters.base import ROOT, Draft, DraftRequest, Outcome
from slipstream.drafters.suffix import Suffix
from slipstream.drafters.suffix_calibration import COPY, RESUMED
from slipstream.drafters.suffix_copying import Copying
from slipstream.drafters.suffix_edits import Edits
from slipstream.drafters.suffix_index import SuffixIndex
from slipstream.engine.drafts import checked
from slipstream.options import SpeculationOptions

ENGLISH = random.Random(4).choices(range(300), k=600)


# drafts


def ask(drafter: Suffix, tokens: Sequence[int], sequence: int = 0, n_max: int = 1000) -> Draft:
    [draft] = drafter.draft([DraftRequest(sequence, tokens, n_max)])
    assert len(draft.probabilities) == len(draft.parents) == len(draft)
    assert all(0.0 <= probability <= 1.0 for probability in draft.probabilities)
    return draft


def drafted(tokens: Sequence[int], **options: float) -> list[int]:
    drafter = Suffix(**{"branches": 1, "match": 2, **options})  # type: ignore[arg-type]
    drafter.open(0, tokens, "")
    return list(ask(drafter, tokens).tokens)


def test_a_copy_is_found_at_once_and_is_long() -> None:
    text = [*range(100, 200)]
    assert drafted([*text, 5, 6, *text[:12]], factor=100) == text[12:60]
    # twelve tokens copied count as one of match more
    assert drafted([*text, 5, 6, *text[:12]], factor=2) == text[12:38]
    assert drafted([*text, 5, 6, *text[:12]], factor=100, n_max=7) == text[12:19]
    # two tokens of match promise 0.42, and each further one more: four times 0.1
    assert drafted([*text, 5, 6, *text[:2]], p_min=0.1) == text[2:6]
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
        drafter = Suffix(match=2)
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


def test_the_copying_goes_on_where_one_token_agrees_behind_a_departure() -> None:
    source = [*range(100, 130)]
    index = SuffixIndex(2)
    index.extend(source)
    pointers = Copying(index)
    pointers.adopt(index, 10, 8)
    index.extend([110, 111, 7])
    pointers.follow(30)
    assert pointers.occurrences(4) == []
    index.extend([113])
    pointers.follow(33)
    [found] = pointers.occurrences(4)
    assert (found.place, found.length, found.kind) == (14, 1 + 1, RESUMED)
    index.extend([114])
    pointers.follow(34)
    [found] = pointers.occurrences(4)
    assert (found.place, found.length, found.kind) == (15, 2 + 1, COPY)
    assert [edit.emitted for edit in pointers.edits.at([112, 1], 0)] == [(7,)]


def test_a_known_edit_is_followed_while_it_is_made() -> None:
    index = SuffixIndex(2)
    index.extend([*range(100, 130), 112, 113, *range(140, 150)])
    copying = Copying(index)
    copying.edits.learn((112,), (7, 8))
    copying.adopt(index, 10, 8)
    index.extend([110, 111])
    copying.follow(42)
    plain, edited = copying.occurrences(4)
    assert (list(plain.tokens[12:14]), plain.odds) == ([112, 113], 0.0)
    assert (list(edited.tokens[:4]), edited.odds) == ([7, 8, 113, 114], pytest.approx(2.0))
    index.extend([7])
    copying.follow(44)
    [found] = copying.occurrences(4)
    assert list(found.tokens[:4]) == [8, 113, 114, 115]
    index.extend([8])
    copying.follow(45)
    [found] = copying.occurrences(4)
    assert (found.place, found.kind) == (13, COPY)
    assert copying.edits.at([112], 0)[0].made == 2


def test_a_pointer_into_a_forgotten_text_is_gone() -> None:
    drafter = Suffix(branches=1, match=40)
    drafter.open(0, ENGLISH[:300], "a")
    drafter.close(0)
    drafter.open(1, ENGLISH[:100], "a")
    assert list(ask(drafter, ENGLISH[:100], 1, 9).tokens) == ENGLISH[100:109]
    behind_an_edit = [*ENGLISH[:110], 999, *ENGLISH[111:113]]
    assert list(ask(drafter, behind_an_edit, 1, 9).tokens) == ENGLISH[113:122]
    drafter.forget("a")
    assert len(ask(drafter, behind_an_edit, 1, 9)) == 0


def test_edits_are_believed_by_their_record() -> None:
    edits = Edits()
    source = [1, 2, 3, 1, 2, 4]
    assert edits.applied(source, 0, 9) == (source, 0.0)
    edits.learn((2, 3), (7,))
    assert edits.applied(source, 0, 9) == ([1, 7, 1, 2, 4], pytest.approx(2 / 3))
    edits.learn((2, 3), (7,))
    assert edits.applied(source, 0, 9)[1] == pytest.approx(3 / 4)
    for _ in range(2):
        edits.left_out(source, 0, 3)
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
    drafter = Suffix(branches=1, match=2)
    drafter.open(0, ENGLISH[:300], "a")
    ask(drafter, ENGLISH[:400])
    drafter.observe(0, outcome(*ENGLISH[400:500]))
    drafter.observe(0, outcome(*ENGLISH[500:600]))
    drafter.open(1, ENGLISH[100:150], "a")
    assert len(ask(drafter, ENGLISH[100:150], 1)) == 0
    drafter.close(0)
    assert list(ask(drafter, ENGLISH[100:150], 1, 15).tokens) == ENGLISH[150:165]
    # what was emitted after the last draft is remembered too, but the last step
    drafter.open(2, ENGLISH[450:470], "a")
    assert list(ask(drafter, ENGLISH[450:470], 2, 15).tokens) == ENGLISH[470:485]
    drafter.open(3, ENGLISH[100:150], "b")
    assert len(ask(drafter, ENGLISH[100:150], 3)) == 0
    assert {scope: pool.tokens for scope, pool in drafter.pools().items()} == {"a": 501, "b": 0}


def test_drafts_of_a_scope_do_not_depend_on_another() -> None:
    def drafts(disturbed: bool) -> list[Draft]:
        drafter = Suffix(match=2)
        if disturbed:
            for _ in range(5):
                follow(drafter, ENGLISH[:50], [*ENGLISH[7:40], *ENGLISH[20:60]])
        drafter.open(1, ENGLISH[:50], "own")
        return [ask(drafter, [*ENGLISH[:50], *ENGLISH[7 : 7 + n]], 1) for n in range(1, 30)]

    assert drafts(disturbed=True) == drafts(disturbed=False)


def test_forget() -> None:
    drafter = Suffix(branches=1, match=2)
    drafter.open(0, ENGLISH[:300], "a")
    drafter.close(0)
    drafter.open(1, ENGLISH[100:150], "a")
    drafter.open(2, ENGLISH[100:150], "b")
    assert len(ask(drafter, ENGLISH[100:150], 1)) > 0
    drafter.forget("a")
    assert len(ask(drafter, ENGLISH[100:150], 1)) == 0
    drafter.observe(1, outcome(*ENGLISH[150:200]))
    drafter.observe(1, outcome(ENGLISH[200]))
    drafter.close(1)
    # of a sequence that was open, what came later is remembered
    assert drafter.pools()["a"].tokens == 51
    drafter.close(2)
    assert drafter.pools()["b"].tokens == 51
    drafter.forget(None)
    assert drafter.pools() == {}


def test_fork_and_close() -> None:
    drafter = Suffix(branches=1, match=2)
    drafter.open(0, ENGLISH[:300], "a")
    ask(drafter, [*ENGLISH[:300], *ENGLISH[40:50]])
    drafter.fork(0, 1)
    expected = ask(drafter, [*ENGLISH[:300], *ENGLISH[40:60]], 0, 15)
    assert list(expected.tokens) == ENGLISH[60:75]
    drafter.close(0)
    drafter.close(0)
    found = ask(drafter, [*ENGLISH[:300], *ENGLISH[40:60]], 1, 15)
    assert found.tokens == expected.tokens
    drafter.close(1)
    assert drafter._texts == {}


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


def test_a_loop_is_drafted_beyond_its_end() -> None:
    assert drafted([9, *[1, 2, 3] * 6], n_max=10) == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
    assert drafted([9, *[7] * 12], n_max=6) == [7] * 6


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.booleans())),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_any_text_gets_well_formed_drafts(
    prompt: list[int], steps: list[tuple[list[int], bool]], branches: int, match: int
) -> None:
    drafter = Suffix(branches=branches, match=match, p_min=0.0)
    for sequence in range(2):
        drafter.open(sequence, prompt, "")
        tokens = list(prompt)
        for new, asked in steps:
            draft = ask(drafter, tokens, sequence, 12) if asked else Draft()
            assert len(draft) <= 12
            assert checked(draft, 4, drafter.name) == (draft, None)
            drafter.observe(sequence, Outcome(draft, draft.matched(new), tuple(new), len(draft)))
            tokens += new
        drafter.close(sequence)


def test_a_step_before_the_erasure_is_not_remembered() -> None:
    drafter = Suffix(match=2)
    drafter.open(0, [1, 2, 3], "a")
    drafter.observe(0, outcome(4, 5))
    drafter.forget("a")
    drafter.observe(0, outcome(6, 7, 8))
    drafter.observe(0, outcome(9))
    drafter.close(0)
    assert drafter.pools()["a"].tokens == 4  # 6, 7, 8 and a mark between texts


def test_what_the_limit_cut_off_is_not_remembered() -> None:
    """A step may verify more than was emitted: the rest never was a part of the text."""
    drafter = Suffix(match=2)
    drafter.open(0, [1, 2, 3, 4], "a")
    ask(drafter, [1, 2, 3, 4])
    drafter.observe(0, outcome(50, 51, 52, 53))
    drafter.close(0)
    drafter.open(1, [50, 51], "a")
    assert len(ask(drafter, [50, 51], 1)) == 0
    assert drafter.pools()["a"].tokens == 5
