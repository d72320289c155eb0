"""The cost controller in worlds with known costs and acceptance: never slower, and close to the
best fixed policy where drafts pay."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from controller_worlds import (
    AROUND_S,
    AVX2,
    DEAR_ROWS,
    STEP_S,
    VNNI,
    Acceptance,
    Run,
    Source,
    World,
    oracle,
)
from slipstream.drafters.base import Draft
from slipstream.engine.asking import heeds
from slipstream.engine.controller import Decision, Room
from slipstream.engine.controllers import LONE_CREDIT
from slipstream.engine.cost_controller import CostController
from slipstream.measure.replay import replay

CURVES = {"avx2": AVX2, "vnni": VNNI, "dear rows": DEAR_ROWS}


def always(acceptance: float) -> Acceptance:
    return lambda _: acceptance


def cheap(acceptance: Acceptance, claimed: Acceptance | None = None, second: float = 0.0) -> Source:
    return Source("suffix", acceptance, claimed, second=second)


def dear(acceptance: Acceptance, pending_s: float = 0.002) -> Source:
    """A draft model of a third of the target's size."""
    return Source("draft-simple", acceptance, None, 0.002, 0.015, pending_s, most=16)


def share_of_gain(made: Run, best: Run) -> float:
    return (made.speed_up - 1.0) / (best.speed_up - 1.0)


NEVER_PAYS: Mapping[str, Callable[[], World]] = {
    "wrong, rows cheap": lambda: World(VNNI, [cheap(always(0.0))]),
    "wrong, rows dear": lambda: World(AVX2, [cheap(always(0.0))]),
    "right at times, no row is shared": lambda: World(DEAR_ROWS, [cheap(always(0.5))]),
    "hostile: sure and wrong": lambda: World(AVX2, [cheap(always(0.0), always(0.99))]),
    "draft model that is wrong": lambda: World(AVX2, [dear(always(0.05))]),
    "both wrong": lambda: World(AVX2, [cheap(always(0.0)), dear(always(0.1))]),
    "long prompt to read": lambda: World(
        AVX2, [cheap(always(0.0)), dear(always(0.2))], prompt=4000
    ),
    "four sequences": lambda: World(
        AVX2, [Source("suffix", always(0.0), always(0.9), 5e-5)], sequences=4
    ),
}


@pytest.mark.parametrize("name", NEVER_PAYS)
def test_where_it_cannot_pay_it_costs_under_one_percent(name: str) -> None:
    world = NEVER_PAYS[name]()
    # of a machine that shares nothing between rows the first guesses are wrong: five steps' worth
    made = world.run(CostController(), 2000 if world.curve is DEAR_ROWS else 256)
    assert made.seconds <= 1.01 * made.plain_s


PAYS: Mapping[str, Callable[[], World]] = {
    "0.3 avx2": lambda: World(AVX2, [cheap(always(0.3))]),
    "0.6 avx2": lambda: World(AVX2, [cheap(always(0.6))]),
    "0.9 avx2": lambda: World(AVX2, [cheap(always(0.9))]),
    "0.3 vnni": lambda: World(VNNI, [cheap(always(0.3))]),
    "0.6 vnni": lambda: World(VNNI, [cheap(always(0.6))]),
    "0.9 vnni": lambda: World(VNNI, [cheap(always(0.9))]),
    "0.6 vnni, claimed 0.2": lambda: World(VNNI, [cheap(always(0.6), always(0.2))]),
    "0.6 avx2, claimed 0.99": lambda: World(AVX2, [cheap(always(0.6), always(0.99))]),
    "0.6 vnni, four sequences": lambda: World(VNNI, [cheap(always(0.6))], sequences=4),
    "0.9 vnni, four sequences": lambda: World(VNNI, [cheap(always(0.9))], sequences=4),
}


@pytest.mark.parametrize("name", PAYS)
def test_where_it_pays_it_takes_most_of_the_best_fixed_gain(name: str) -> None:
    made = PAYS[name]().run(CostController(), 800)
    # where rows are cheaper than the prior says, that has to be found out first
    share = 0.94 if PAYS[name]().curve is AVX2 else 0.85
    assert share_of_gain(made, oracle(PAYS[name], 800)) >= share


@pytest.mark.parametrize("acceptance", [0.8, 0.9])
def test_a_lone_draft_model_is_tried_and_kept_where_it_pays(acceptance: float) -> None:
    def make() -> World:
        return World(AVX2, [dear(always(acceptance))])

    made = make().run(CostController(LONE_CREDIT), 800)
    assert share_of_gain(made, oracle(make, 800)) >= 0.75


def test_a_lone_draft_model_that_is_wrong_costs_no_more_than_its_trial() -> None:
    made = World(AVX2, [dear(always(0.2))]).run(CostController(LONE_CREDIT), 256)
    assert any(d.proposals for d in made.decisions)
    assert made.seconds <= (1.01 + LONE_CREDIT) * made.plain_s


def copying(start: int, length: int) -> Acceptance:
    """Code editing: a copy of the old text, with an edit every ``length`` tokens."""
    return lambda position: 0.02 if position < start or position % length < 6 else 0.98


def test_copy_bursts_pay_more_than_any_fixed_length() -> None:
    def make() -> World:
        return World(AVX2, [cheap(copying(130, 50), always(0.5))])

    assert share_of_gain(make().run(CostController(), 800), oracle(make, 800)) >= 1.0


def test_it_adapts_when_the_regime_changes() -> None:
    def make() -> World:
        return World(AVX2, [cheap(lambda p: 0.95 if p < 500 else 0.0)], prompt=100)

    made = make().run(CostController(), 1000)
    steps = [d for d in made.decisions if d.room.context >= 500]
    assert sum(len(d.verified) for d in steps[30:]) <= 0.15 * len(steps)
    backwards = World(AVX2, [cheap(lambda p: 0.0 if p < 500 else 0.95)], prompt=100)
    made = backwards.run(CostController(), 1000)
    steps = [d for d in made.decisions if d.room.context >= 530]
    assert 3.0 * len(steps) < 1000 - 430


def test_a_parked_drafter_is_watched_without_rows() -> None:
    """Rows come back only with evidence that cost nothing: unverified proposals that came true."""
    world = World(DEAR_ROWS | {2: 1.4}, [cheap(lambda p: 0.0 if p < 400 else 1.0)])
    made = world.run(CostController(), 600)
    early = [d for d in made.decisions if 150 <= d.room.context < 400]
    late = [d for d in made.decisions if d.room.context >= 420]
    assert not any(len(d.verified) for d in early)
    assert sum(map(bool, (d.verified for d in late))) > 0.8 * len(late)
    assert all(d.proposals for d in early)


@pytest.mark.parametrize("curve", ["avx2", "vnni"])
def test_a_draft_model_that_knows_when_to_stop_is_let_go_on(curve: str) -> None:
    def sure(position: int) -> float:
        return 0.98 if position % 12 < 8 else 0.5

    def made(heeds: bool) -> Run:
        source = Source("draft-simple", sure, sure, 0.002, 0.012, 0.002, heeds=heeds)
        return World(CURVES[curve], [source]).run(CostController(LONE_CREDIT), 1000)

    heeding, stubborn = made(True), made(False)
    assert heeding.speed_up > 1.05 * stubborn.speed_up
    lengths = {len(p.draft) for d in heeding.decisions for p in d.proposals}
    assert 1 in lengths
    assert max(lengths) > 4
    assert max(len(p.draft) for d in stubborn.decisions for p in d.proposals) <= 8


def test_who_heeds_what_a_further_token_is_worth() -> None:
    told = Draft((1, 2, 3), (-1, 0, 1), ("m",) * 3, (0.9, 0.8, 0.1))
    assert heeds(told, 0.72)
    assert not heeds(told, 0.73)
    assert not heeds(Draft.chain([1, 2], "m"), 0.0)


def test_a_draft_model_is_left_out_where_a_cheap_draft_is_good() -> None:
    both = World(AVX2, [cheap(always(0.97)), dear(always(0.9))])
    made = both.run(CostController(), 600)
    asked = [p.method for d in made.decisions for p in d.proposals]
    assert asked.count("draft-simple") <= 0.05 * len(made.decisions)
    copies = Source("suffix", always(0.97), present=lambda p: p % 200 < 100)
    gaps = World(AVX2, [copies, dear(always(0.9), 0.0005)], prompt=5)
    made = gaps.run(CostController(), 1500)
    alone = World(AVX2, [copies], prompt=5).run(CostController(), 1500)
    assert made.speed_up > 1.05 * alone.speed_up


@pytest.mark.parametrize("curve", ["avx2", "vnni"])
@pytest.mark.parametrize("first", [0.4, 0.6, 0.8])
def test_trees_are_never_worse_than_chains(curve: str, first: float) -> None:
    def world(second: float) -> World:
        return World(CURVES[curve], [cheap(always(first), always(first), second)])

    chain = world(0.0).run(CostController(), 1600)
    tree = world(0.6 * (1.0 - first)).run(CostController(), 1600)
    assert tree.speed_up >= 0.99 * chain.speed_up


def test_sequences_share_the_rows() -> None:
    """Where one is copied and three are not, the rows of the pass go to the copy."""
    source = cheap(always(0.0))
    other = Source("suffix", always(0.97))
    source.choice = lambda sequence, position: (  # type: ignore[method-assign]
        other.choice(sequence, position) if sequence == 0 else 2
    )
    made = World(VNNI, [source], sequences=4).run(CostController(), 400)
    rows = dict.fromkeys(range(4), 0)
    for decision in made.decisions:
        if decision.room.context > 110:
            rows[decision.room.sequence] += len(decision.verified)
    assert rows[0] > 200
    assert max(rows[i] for i in (1, 2, 3)) < 0.05 * rows[0]


def test_choices_replay_from_the_record() -> None:
    worlds = [
        World(AVX2, [cheap(copying(130, 50)), dear(always(0.8))]),
        World(VNNI, [cheap(always(0.5), always(0.7), 0.2), dear(always(0.6))], sequences=3),
    ]
    for world in worlds:
        made = world.run(CostController(), 300)
        chosen = replay(made.decisions, CostController())
        assert chosen == [d.verified for d in made.decisions]
        other = replay(made.decisions, CostController(credit=0.5))
        assert any(len(draft) for draft in other)


def test_scopes_do_not_teach_each_other() -> None:
    def rows(second_scope: str) -> float:
        controller = CostController()
        first = World(AVX2, [cheap(always(0.9))], scope="session one")
        first.run(controller, 400)
        second = World(AVX2, [cheap(always(0.9))], scope=second_scope, prompt=5)
        rooms = [Room(9, 300, 50, False, second_scope)]
        del first
        [cap] = controller.plan("suffix", rooms, [()])
        draft = second.sources[0].propose(9, 51, cap)
        values = controller.experience.of(rooms[0]).foresight("suffix").paths(draft, 48, 0.0)
        return values[0]

    assert rows("session one") > 0.7
    assert rows("session two") == pytest.approx(rows("session three"))
    assert rows("session two") < 0.5


def test_forgetting_a_scope_takes_what_was_learned() -> None:
    controller = CostController()
    World(AVX2, [cheap(always(0.9))], scope="session a").run(controller, 200)
    room = Room(0, 100, 10, False, "session a")
    assert controller.experience.of(room).scope.ledger.plain_s > 0.0
    controller.forget("session b")
    assert controller.experience.of(room).scope.ledger.plain_s > 0.0
    controller.forget("session a")
    assert controller.experience.of(room).scope.ledger.plain_s == 0.0


def test_the_ledger_agrees_with_the_world() -> None:
    controller = CostController()
    world = World(AVX2, [cheap(always(0.7)), dear(always(0.7))], noise=0.02, interruptions=0.0)
    made = world.run(controller, 1500)
    ledger = controller.experience.of(made.decisions[0].room).scope.ledger
    assert ledger.plain_s == pytest.approx(made.plain_s, rel=0.05)
    assert ledger.plain_s + ledger.regret_s == pytest.approx(made.seconds, rel=0.05)
    assert ledger.saved_s > 0.0
    assert ledger.rows_s > 0.0
    assert ledger.bookkeeping_s == pytest.approx(AROUND_S * len(made.decisions), rel=0.1)


def test_a_reason_is_given_for_every_step_without_a_draft() -> None:
    def reasons(world: World) -> set[str]:
        controller = CostController()
        inner, told = controller.choose, []

        def choose(rooms, held):  # type: ignore[no-untyped-def]
            chosen = inner(rooms, held)
            for room, draft in zip(rooms, chosen, strict=True):
                reason = controller.reason(room.sequence)
                assert bool(reason) == (len(draft) == 0)
                told.append(reason)
            return chosen

        controller.choose = choose  # type: ignore[method-assign]
        world.run(controller, 200)
        return set(told)

    sources = [cheap(always(0.0)), dear(always(0.0))]
    found = reasons(World(AVX2, sources, prompt=3000))
    assert {"first pass", "limit reached"} <= found
    assert any("no gain" in reason for reason in found)
    assert any("draft-simple" in reason for reason in found)
    nothing = World(AVX2, [Source("suffix", always(0.0), present=lambda _: False)])
    assert "nothing proposed" in reasons(nothing)


def test_the_first_pass_is_plain_and_a_second_may_verify_much() -> None:
    made = World(VNNI, [cheap(always(1.0), always(0.99))]).run(CostController(), 100)
    assert len(made.decisions[0].verified) == 0
    assert len(made.decisions[1].verified) >= 3


def test_without_room_nothing_is_asked_or_chosen() -> None:
    controller = CostController()
    World(AVX2, [cheap(always(0.9))]).run(controller, 50)
    rooms = [Room(7, 0, 10), Room(8, -1, 10)]
    assert controller.plan("suffix", rooms, [(), ()]) == [0, 0]
    assert controller.plan("draft-simple", rooms, [(), ()]) == [0, 0]
    assert [len(draft) for draft in controller.choose(rooms, [(), ()])] == [0, 0]


def test_bookkeeping_of_decisions_without_times_is_harmless() -> None:
    """Engines in tests may have clocks that stand still."""
    controller = CostController()
    made = World(AVX2, [cheap(always(0.9))]).run(CostController(), 50)
    for decision in made.decisions:
        still = Decision(
            0.0,
            decision.room,
            decision.proposals,
            decision.verified,
            decision.path,
            decision.tokens,
            decision.rejected,
            0,
            decision.rows,
            0.0,
            step=decision.step,
        )
        controller.plan("suffix", [decision.room], [()])
        controller.choose([decision.room], [decision.proposals])
        controller.observe(still)
    assert not controller.times.known
    assert STEP_S > 0.0


def test_a_sequence_that_is_cancelled_between_plan_and_verdict_leaves_nothing() -> None:
    controller = CostController()
    controller._probing = {(1, "draft-simple"), (2, "draft-simple")}
    controller.close(1)
    assert controller._probing == {(2, "draft-simple")}
