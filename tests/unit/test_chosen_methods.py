"""Controllers plan with what is open for a sequence, and judge it as if it were all there is."""

from __future__ import annotations

from collections import Counter

import pytest

from controller_worlds import AROUND_S, AVX2, VNNI, Run, Source, World
from slipstream.drafters.base import GRAMMAR, Draft
from slipstream.engine.controller import (
    Controller,
    Decision,
    DoublingController,
    Proposal,
    Room,
)
from slipstream.engine.controllers import LONE_CREDIT, controller_for
from slipstream.engine.cost_controller import CREDIT, CostController
from slipstream.measure.replay import replay
from slipstream.measure.trace_policies import FixedController


def cheap(acceptance: float = 0.8) -> Source:
    return Source("suffix", lambda _: acceptance)


def dear(acceptance: float) -> Source:
    """A draft model of a third of the target's size."""
    return Source("draft-simple", lambda _: acceptance, None, 0.002, 0.015, 0.002, most=16)


def choices(made: Run) -> list[tuple[int, ...]]:
    return [decision.verified.tokens for decision in made.decisions]


@pytest.mark.parametrize(
    "make",
    [DoublingController, lambda: FixedController(3), CostController],
    ids=["doubling", "fixed", "cost"],
)
def test_nothing_is_planned_for_a_drafter_that_is_not_open(make: type[Controller]) -> None:
    controller = make()
    World(VNNI, [cheap(1.0)]).run(controller, 30)
    rooms = [
        Room(90, 50, 10),
        Room(91, 50, 10, methods=("suffix", "draft-simple")),
        Room(92, 50, 10, methods=("draft-simple",)),
        Room(93, 50, 10, methods=()),
    ]
    caps = controller.plan("suffix", rooms, [()] * 4)
    assert [cap > 0 for cap in caps] == [True, True, False, False]
    assert controller.plan("draft-simple", rooms, [()] * 4)[3] == 0
    assert [room.opens("suffix") for room in rooms] == [True, True, False, False]
    assert all(room.opens(GRAMMAR) for room in rooms)


@pytest.mark.parametrize("acceptance", [0.2, 0.8, 0.9])
@pytest.mark.parametrize("tokens", [100, 600])
def test_a_chosen_draft_model_is_judged_as_one_alone(acceptance: float, tokens: int) -> None:
    one = controller_for(["draft-simple"], fixed=False)
    alone = World(AVX2, [dear(acceptance)]).run(one, tokens)
    both = controller_for(["suffix", "draft-simple"], fixed=False)
    chosen = World(AVX2, [cheap(), dear(acceptance)], methods=("draft-simple",)).run(both, tokens)
    assert choices(chosen) == choices(alone)
    assert [d.proposals for d in chosen.decisions] == [d.proposals for d in alone.decisions]
    assert tokens < 600 or any(d.proposals for d in chosen.decisions)


def test_a_chosen_look_up_is_judged_as_one_alone() -> None:
    alone = World(AVX2, [cheap()]).run(controller_for(["suffix"], fixed=False), 400)
    both = controller_for(["suffix", "draft-simple"], fixed=False)
    chosen = World(AVX2, [cheap(), dear(0.9)], methods=("suffix",)).run(both, 400)
    assert choices(chosen) == choices(alone)
    assert any(choices(chosen))


def test_credit_is_that_of_the_chosen_drafters() -> None:
    def purse(methods: tuple[str, ...] | None, credit: float = CREDIT, **room: int) -> float:
        controller = CostController(credit)
        World(AVX2, [cheap()]).run(controller, 3)
        wanted = Room(9, 99, 10, scope="session new", methods=methods, **room)
        return controller._purse_s(controller.experience.of(wanted), wanted) / controller._plain_s()

    assert purse(None) == purse(("suffix", "draft-simple")) == pytest.approx(100 * CREDIT)
    assert purse(("draft-simple",)) == pytest.approx(100 * LONE_CREDIT)
    assert purse(("draft-simple",), 20.0) == purse(None, 20.0) == pytest.approx(2000)
    # a limit on the path is none on the tokens to come
    assert purse(("draft-simple",), coming=500) == pytest.approx(500 * LONE_CREDIT)


def test_what_one_choice_costs_is_no_debt_of_another() -> None:
    """The same session: a draft model that is wrong, then look-ups alone."""
    controller = CostController()
    World(AVX2, [dear(0.0)], methods=("draft-simple",)).run(controller, 300)
    look_up, draft_model, whole = (
        Room(sequence, 99, 10, scope="session ", methods=methods)
        for sequence, methods in ((91, ("suffix",)), (92, ("draft-simple",)), (93, None))
    )
    assert controller.experience.of(draft_model).ledger.draft_s > 0.0
    assert controller.experience.of(look_up).ledger.regret_s == 0.0
    assert controller.experience.of(whole).ledger.regret_s == 0.0
    assert controller.knows("session ")
    assert controller.knows("session ", ("draft-simple", "other"))
    assert not controller.knows("session ", ("suffix",))
    assert not controller.knows("session other", ("draft-simple",))
    controller.forget("session ")
    assert not controller.knows("session ")


def test_what_was_not_open_does_not_age() -> None:
    controller = CostController()
    World(AVX2, [cheap()]).run(controller, 200)
    room = Room(91, 99, 10, scope="session ", methods=("suffix",))
    shared = controller.experience.of(room).foresight("suffix").shared
    before = shared.now
    draft_model = Room(92, 99, 10, scope="session ", methods=("draft-simple",))
    draft = Draft.chain((5,), "draft-simple")
    made = Proposal("draft-simple", 1, draft, 0.01)
    controller.choose([draft_model], [(made,)])
    controller.observe(
        Decision(0.0, draft_model, (made,), draft, (0,), (5, 6), False, 0, 2, 0.05, step=10**6)
    )
    assert shared.now == before
    assert controller.experience.of(draft_model).foresight("draft-simple").shared.now == 2


# sequences for which nothing may be drafted


def test_sequences_without_drafters_are_kept_no_account_of() -> None:
    controller = CostController()
    made = World(AVX2, [cheap()], sequences=3, methods=(), plain=3).run(controller, 100)
    assert not any(choices(made))
    assert all(not decision.proposals for decision in made.decisions)
    assert controller.times.known, "their passes show what rows take"
    assert not controller.experience._scopes
    assert not controller.experience._views
    assert controller._reasons == {}


@pytest.mark.parametrize("plain", [1, 3])
def test_their_rows_are_in_the_pass_and_their_time_is_not_in_the_purse(plain: int) -> None:
    controller = CostController()
    world = World(VNNI, [cheap(0.9)], sequences=4, plain=plain, noise=0.02, interruptions=0.0)
    made = world.run(controller, 300)
    drafted = [d for d in made.decisions if d.room.sequence >= plain]
    assert all(not d.verified for d in made.decisions if d.room.sequence < plain)
    assert sum(len(d.verified) for d in drafted) > 200
    ledger = controller.experience.of(drafted[0].room).scope.ledger
    assert ledger.bookkeeping_s == pytest.approx(
        AROUND_S * len({d.step for d in drafted}), rel=0.15
    )
    alive = Counter(decision.step for decision in made.decisions)
    plain_s = sum(len(d.tokens) * world.seconds(alive[d.step]) / alive[d.step] for d in drafted)
    assert ledger.plain_s == pytest.approx(plain_s, rel=0.1)
    chosen = replay(made.decisions, CostController())
    assert chosen == [decision.verified for decision in made.decisions]


def test_a_grammar_of_a_sequence_without_drafters_is_still_weighed() -> None:
    """Its drafters may all have failed."""
    controller = CostController()
    World(VNNI, [cheap(0.9)]).run(controller, 60)
    room = Room(91, 50, 70, methods=())
    made = Proposal(GRAMMAR, 4, Draft.chain((1, 2, 3), GRAMMAR, (1.0, 1.0, 1.0)))
    [draft] = controller.choose([room], [(made,)])
    assert len(draft) == 3
    assert controller.reason(91) == ""
