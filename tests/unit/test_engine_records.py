"""Statistics recomputed from rounds, and the controller's decisions."""

from __future__ import annotations

from drafters_for_tests import HostileDrafter
from engines import check_counts, fake_engine, greedy, run
from slipstream.drafters.base import Draft
from slipstream.engine.controller import Decision, DoublingController, Room, replay
from slipstream.engine.statistics import Round, Statistics

PROMPT = [1, 2, 3, 4, 5]


def test_statistics_are_recomputed_from_rounds() -> None:
    rounds = [
        Round(0, 0, 0, 0, 1, 5),
        Round(4, 3, 2, 3, 3, 5, 64, "a", 0.1),
        Round(4, 1, 0, 1, 1, 5, 4, "a", 0.1),
        Round(2, 2, 2, 2, 1, 3, 2, "b", 0.1),
    ]
    s = Statistics(5, 0, 1.0, rounds, first_token_s=1.5, finished_s=3.0, drafters=("a", "b", "c"))
    check_counts(s)
    assert (s.emitted, s.discarded, s.target_passes, s.verification_steps) == (6, 2, 4, 3)
    assert (s.drafted, s.tested, s.accepted) == (10, 6, 4)
    assert s.acceptance_rate == 0.4
    assert s.tokens_per_pass == 1.5
    assert s.mean_acceptance_length == 1 + 4 / 3
    # depth 0 was reached by all three, depth 1 by the first and the last, depth 2 by the first
    assert s.acceptance_at == (2 / 3, 1.0, 0.0)
    assert (s.ttft_s, s.total_s, s.decode_tok_s) == (0.5, 2.0, 5 / 1.5)
    assert s.never_fired == ("c",)
    assert s.summary()["discarded"] == 2


def decision(drafted: int, accepted: int, rejected: bool, room: int = 100) -> Decision:
    return Decision(0.0, 0, room, drafted, drafted, drafted, accepted, rejected, drafted + 1, 0.1)


def test_widths_double_and_fall_back() -> None:
    controller = DoublingController()
    widths = []
    for accepted, rejected in [(4, False), (8, False), (15, False), (6, True), (0, True)]:
        [cap] = controller.plan([Room(0, 100)])
        widths.append(cap)
        controller.observe(decision(cap, accepted, rejected))
    assert widths == [4, 8, 15, 15, 7]
    assert controller.plan([Room(0, 100), Room(1, 100), Room(0, 0)]) == [1, 4, 0]
    controller.observe(decision(0, 0, False))
    assert controller.plan([Room(0, 100)]) == [1]
    controller.close(0)
    assert controller.plan([Room(0, 2), Room(0, -1)]) == [2, 0]


def test_trimming_keeps_a_prefix() -> None:
    drafts = [Draft.chain([1, 2, 3], "a"), Draft.chain([4], "a"), Draft()]
    trimmed = DoublingController().trim(drafts, [2, 2, 0])
    assert [draft.tokens for draft in trimmed] == [(1, 2), (4,), ()]


def test_decisions_replay_from_a_trace() -> None:
    trace: list[Decision] = []
    drafter = HostileDrafter(24, 3, [[*PROMPT, *greedy(PROMPT, 60)]])
    engine = fake_engine(drafter, controller=DoublingController(trace=trace.append))
    run(engine, PROMPT, max_tokens=60)
    assert len({d.cap for d in trace}) > 2
    assert replay(trace, DoublingController()) == [d.cap for d in trace]
    assert replay(trace, DoublingController(first=2)) != [d.cap for d in trace]
