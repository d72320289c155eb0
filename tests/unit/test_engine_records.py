"""Statistics recomputed from rounds, and the controller's decisions."""

from __future__ import annotations

import dataclasses
import json

import pytest

from drafters_for_tests import HostileDrafter, ScriptedDrafter
from engines import check_counts, check_rounds, fake_engine, greedy, run
from fake_program import FakeTokenizer
from slipstream.drafters.base import Draft
from slipstream.engine.controller import Decision, DoublingController, Proposal, Room
from slipstream.engine.statistics import Round, Statistics
from slipstream.measure.replay import replay

PROMPT = [1, 2, 3, 4, 5]


def test_statistics_are_recomputed_from_rounds() -> None:
    rounds = [
        Round(0, 0, 0, 0, 1, 1, 0, 5),
        Round(4, 3, 2, 3, 3, 3, 0, 5, 64, 7, "a", ("a",), ("a", "c")),
        Round(4, 1, 0, 1, 1, 1, 0, 5, 4, 0, "a", ("a",)),
        Round(2, 2, 2, 2, 3, 1, 2, 3, 2, 0, "b", ("b",)),
    ]
    s = Statistics(5, 0, 1.0, rounds, first_token_s=1.5, finished_s=3.0, drafters=("a", "b", "c"))
    check_rounds(s)
    assert (s.emitted, s.discarded, s.target_passes, s.verification_steps) == (6, 2, 4, 3)
    assert (s.drafted, s.tested, s.accepted) == (10, 6, 4)
    assert s.acceptance_rate == 0.4
    assert s.tokens_per_pass == 1.5
    assert s.mean_acceptance_length == 1 + 4 / 3
    # depth 0 was reached by all three, depth 1 by the first and the last, depth 2 by the first
    assert s.acceptance_at == (2 / 3, 1.0, 0.0)
    assert (s.ttft_s, s.total_s, s.decode_tok_s) == (0.5, 2.0, 5 / 1.5)
    assert s.never_fired == ("c",)
    assert s.never_asked == ("b",)  # no engine makes such rounds: what fired was asked
    summary = s.summary()
    assert summary["discarded"] == 2
    assert summary["cut_for_time"] == 7
    assert summary["drafters"] == ("a", "b", "c")


def test_a_summary_is_recomputed_from_its_own_json() -> None:
    drafter = HostileDrafter(24, 3, [[*PROMPT, *greedy(PROMPT, 40)]])
    [output] = run(fake_engine(drafter), PROMPT, max_tokens=40)
    summary = json.loads(json.dumps(output.statistics.summary()))
    rounds = [Round(**r) for r in summary["rounds"]]
    assert {r.method for r in rounds} == {"none", "hostile"}
    again = Statistics(5, 1, 0.0, rounds, drafters=("hostile",)).summary()
    for name in (
        *("emitted", "target_passes", "verification_steps", "drafted", "tested", "accepted"),
        *("discarded", "acceptance_rate", "tokens_per_pass", "mean_acceptance_length"),
        "cut_for_time",
    ):
        assert again[name] == summary[name], name
    assert list(again["acceptance_at"]) == summary["acceptance_at"]  # type: ignore[call-overload]


BREACHES = {
    "a token that was never delivered": {"emitted": 9, "sampled": 9},
    "a token that was sampled and lost": {"emitted": 7},
    "a token cut and not counted": {"sampled": 9},
    "a cut that never was": {"discarded": 1},
    "an acceptance too many": {"accepted": 8, "tested": 8, "reached": 8},
}


@pytest.mark.parametrize("breach", BREACHES)
def test_the_laws_see_a_wrong_count(breach: str) -> None:
    drafter = ScriptedDrafter([[*PROMPT, *greedy(PROMPT, 40)]], length=7)
    engine = fake_engine(drafter, controller=DoublingController(first=7))
    [output] = run(engine, PROMPT, max_tokens=17)
    check_counts(output)
    rounds = output.statistics.rounds
    assert (rounds[1].accepted, rounds[1].sampled, rounds[1].emitted) == (7, 8, 8)
    rounds[1] = dataclasses.replace(rounds[1], **BREACHES[breach])
    with pytest.raises(AssertionError):
        check_counts(output)


def test_discarded_tokens_are_those_verified_and_not_delivered() -> None:
    truth = greedy(PROMPT, 40)
    for limit in range(1, 20):
        end = truth[limit]
        drafter = ScriptedDrafter([[*PROMPT, *truth]])
        stop = FakeTokenizer().pieces[end].decode()
        [output] = run(fake_engine(drafter), PROMPT, max_tokens=40, stop=(stop,))
        verified = sum(len(outcome.tokens) for outcome in drafter.outcomes[0])
        assert output.statistics.discarded == verified - len(output.tokens)
        check_counts(output)


def decision(drafted: int, accepted: int, rejected: bool) -> Decision:
    draft = Draft.chain(range(drafted), "a")
    path, tokens = tuple(range(accepted)), (*range(accepted), 99)
    room, proposals = Room(0, 100), (Proposal("a", drafted, draft),)
    return Decision(0.0, room, proposals, draft, path, tokens, rejected, 0, drafted + 1, 0.1)


def test_widths_double_and_fall_back() -> None:
    controller = DoublingController()
    widths = []
    for accepted, rejected in [(4, False), (8, False), (15, False), (6, True), (0, True)]:
        [cap] = controller.plan("a", [Room(0, 100)], [()])
        widths.append(cap)
        controller.observe(decision(cap, accepted, rejected))
    assert widths == [4, 8, 15, 15, 7]
    rooms = [Room(0, 100), Room(1, 100), Room(0, 0)]
    assert controller.plan("a", rooms, [()] * 3) == [1, 4, 0]
    controller.observe(decision(0, 0, False))
    assert controller.plan("a", [Room(0, 100)], [()]) == [1]
    controller.close(0)
    assert controller.plan("a", [Room(0, 2), Room(0, -1)], [(), ()]) == [2, 0]


def test_the_first_that_proposes_has_the_step() -> None:
    controller = DoublingController(first=2)
    nothing = Proposal("a", 2, Draft())
    some, more = (Proposal(name, 2, Draft.chain([1, 2, 3], name)) for name in "bc")
    rooms = [Room(0, 100), Room(1, 100), Room(2, 1)]
    assert controller.plan("b", rooms, [(nothing,), (some,), ()]) == [2, 0, 1]
    chosen = controller.choose(rooms, [(nothing, some, more), (more,), (some,)])
    assert [draft.tokens for draft in chosen] == [(1, 2), (1, 2), (1,)]
    assert [draft.method for draft in chosen] == ["b", "c", "b"]


def test_decisions_replay_from_a_trace() -> None:
    trace: list[Decision] = []
    drafter = HostileDrafter(24, 3, [[*PROMPT, *greedy(PROMPT, 60)]])
    engine = fake_engine(drafter, trace=lambda decision, _: trace.append(decision))
    run(engine, PROMPT, max_tokens=60)
    steps = [decision for decision in trace if decision.room.sequence >= 0]
    assert len({len(d.verified) for d in steps}) > 2
    assert replay(steps, DoublingController()) == [d.verified for d in steps]
    assert replay(steps, DoublingController(first=2)) != [d.verified for d in steps]
