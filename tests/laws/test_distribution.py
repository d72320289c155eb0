"""The distribution of the output is plain decoding's: chi-square over all pairs of first tokens.

Every draw has a seed of its own; all seeds are fixed, so a test passes always or never. The level
is divided by the number of tests (Bonferroni): with other seeds, all of them together would fail
by chance once in a hundred times. A wrong rule must fail the same test at the same level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from draft_models import draft_simple, fake_draft_model
from drafters_for_tests import TestDrafter
from engines import check_counts, fake_engine, run
from fake_program import FakeProgram
from joint_draws import (
    DRAFTERS,
    OPTIONS,
    PRIMITIVES,
    PROMPT,
    SPREAD,
    VOCABULARY,
    Pair,
    Propose,
    Siblings,
    chain_probabilities,
    draw,
    draw_pair,
    joint_probabilities,
    one_drawn,
    p_value,
    probability,
    q_of,
    trees,
)
from slipstream.backends.base import Outputs, Step
from slipstream.drafters import draft_simple as draft_simple_module
from slipstream.drafters.base import BaseDrafter, Distribution, Draft, DraftRequest
from slipstream.drafters.draft_tree import Child
from slipstream.engine.controller import Proposal, Room
from slipstream.engine.cost_controller import CostController
from slipstream.engine.engine import Engine
from slipstream.engine.events import EmittedToken
from slipstream.engine.sequence import Request
from slipstream.noise import ACCEPTANCE, TOKENS
from slipstream.options import SamplingOptions
from slipstream.sampling import SamplerState
from slipstream.verify import rejection
from slipstream.verify.base import Verifier
from slipstream.verify.matching import Matching
from slipstream.verify.rejection import Candidate, Rejection, Remainder

DRAWS = 4_000
MERGED = "point masses and two drafters' draws, tree"
VERIFIERS: dict[str, Verifier] = {"matching": Matching(), "rejection": Rejection()}
CASES = [
    *(("rejection", drafter, "all") for drafter in DRAFTERS),
    *(("rejection", MERGED, options) for options in OPTIONS if options != "all"),
    *(("matching", drafter, "temperature 1") for drafter in DRAFTERS if "chain" in drafter),
    *(("matching", MERGED, options) for options in OPTIONS),
]
TESTS = len(CASES) + 4  # and those through an engine
LEVEL = 0.01 / TESTS


def found_p_value(verifier: Verifier, propose: Propose, options: SamplingOptions) -> float:
    random = Random(1_000_003)
    draws = [draw_pair(verifier, propose, options, seed, random) for seed in range(DRAWS)]
    return p_value(joint_probabilities(options), draws)


@pytest.mark.parametrize(("verifier", "drafter", "options"), CASES)
def test_pairs_of_tokens_have_plain_decodings_distribution(
    verifier: str, drafter: str, options: str
) -> None:
    assert found_p_value(VERIFIERS[verifier], DRAFTERS[drafter], OPTIONS[options]) > LEVEL


def check_caught(propose: Propose) -> None:
    assert found_p_value(Rejection(), propose, OPTIONS["temperature 1"]) < LEVEL


class Generous(Rejection):
    @staticmethod
    def _accepts(left: Remainder, found: Candidate, state: SamplerState, number: int) -> bool:
        likelier = replace(found, total=1.5 * found.total)
        return Rejection._accepts(left, likelier, state, number)


def test_accepting_too_often_is_caught() -> None:
    assert found_p_value(Generous(), DRAFTERS["drawn, chain"], OPTIONS["temperature 1"]) < LEVEL


def test_drawing_without_subtraction_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remainder, "subtract", lambda *_: None)
    check_caught(DRAFTERS["drawn, chain"])


def test_a_later_siblings_distribution_must_be_renormalised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_renormalised(*arguments: Any) -> Candidate:
        return replace(right(*arguments), total=1.0)

    right = rejection.candidate
    monkeypatch.setattr(rejection, "candidate", not_renormalised)
    check_caught(DRAFTERS["drawn siblings, tree"])


def test_one_uniform_number_for_two_purposes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "REMAINDER", ACCEPTANCE)
    check_caught(DRAFTERS["drawn, chain"])


def test_drawing_with_noise_that_drafters_know_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "REMAINDER", TOKENS)
    check_caught(DRAFTERS["knows plain decoding, tree"])


def likely_draws(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """Cut by the probability of the token drawn, which the contract forbids."""
    [(token, q)] = one_drawn(tokens, state, random)
    return [(token, q)] if probability(q_of(tokens), token) > 0.3 else []


def one_noise_for_two(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """Two drafters that draw with the same noise, so that their draws are not independent."""
    del state
    number = random.random()
    first, second = (draw(q_of(tokens, drafter), Random(number)) for drafter in (0, 1))
    return [(first, q_of(tokens)), (second, q_of(tokens, 1))]


def another_distribution(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """Drawn from one distribution, said to be from another."""
    del state
    return [(draw(q_of(tokens), random), q_of([*tokens, 50]))]


def first_dropped(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """A sibling vanished where it equalled one that was dropped afterwards."""
    del state
    first, second = draw(q_of(tokens), random), draw(q_of(tokens, 1), random)
    return [(second, q_of(tokens, 1))] if first != second else []


def misplaced(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """A child of two drafters belongs to the one that comes second."""
    del state
    first, second = draw(q_of(tokens), random), draw(q_of(tokens, 1), random)
    own = [(second, q_of(tokens, 1))]
    return own if first == second else [(first, q_of(tokens)), *own]


@pytest.mark.parametrize(
    "level", [likely_draws, one_noise_for_two, another_distribution, first_dropped, misplaced]
)
def test_a_drafter_that_breaks_the_contract_is_caught(level: Any) -> None:
    check_caught(trees(level))


class DrawingDrafter(TestDrafter):
    """Draws chains and trees from its own distributions, as an honest draft model would."""

    name = "drawing"

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(5)
        self.kinds = [DRAFTERS["drawn, chain"], DRAFTERS[MERGED]]

    def propose(self, request: DraftRequest) -> Draft:
        assert request.drawn
        assert request.sampler is not None
        kind = self.random.choice(self.kinds)
        return kind(list(request.tokens), request.sampler, self.random)


def drawing_engine(**keywords: Any) -> Engine:
    program = FakeProgram(VOCABULARY, spread=SPREAD)
    return fake_engine(DrawingDrafter(), program, verifier=Rejection(), **keywords)


def test_the_engine_keeps_the_distribution() -> None:
    """The pair after the first token, which prefill emits without a draft."""
    engine = drawing_engine(parallel=64, queue=DRAWS, primitives=PRIMITIVES)
    options = SamplingOptions(temperature=1.0, max_tokens=4)
    for seed in range(DRAWS):
        engine.submit(Request(PROMPT, structs.replace(options, seed=seed)))
    outputs: dict[int, list[EmittedToken]] = {}
    while engine.busy:
        for event in engine.step():
            outputs.setdefault(event.request, []).extend(event.tokens)
    expected: Counter[Pair] = Counter()
    for token, share in enumerate(chain_probabilities(PROMPT, options)):
        for pair, chance in joint_probabilities(options, [*PROMPT, token]).items():
            expected[pair] += share * chance  # type: ignore[assignment]
    assert sum(token.from_draft for tokens in outputs.values() for token in tokens) > DRAWS / 2
    assert p_value(expected, [(t[1].id, t[2].id) for t in outputs.values()]) > LEVEL


class PricedProgram(FakeProgram):
    """A pass takes 20 ms, or so many times that if it has more rows; logits perhaps all equal."""

    def __init__(self, times: float, *, flat: bool, vocabulary: int, spread: float) -> None:
        super().__init__(vocabulary, spread=spread)
        self.times = times
        self.flat = flat

    def logits(self, history: Sequence[int]) -> NDArray[np.float32]:
        return np.zeros(self.graph.vocabulary, np.float32) if self.flat else super().logits(history)

    def run(self, step: Step) -> Outputs:
        seconds = 0.02 if len(step.sequences) == 1 else 0.02 * self.times
        return replace(super().run(step), elapsed_s=seconds)


class Unequal(BaseDrafter):
    """Draws from the target's own distribution; what follows depends on the first token.

    Args:
        stated: first token -> what it says of the nodes, that one included.
    """

    name = "draft-test"

    def __init__(self, stated: Sequence[tuple[float, ...]]) -> None:
        self.random = Random(7)
        self.stated = stated
        ids = np.arange(len(stated))
        self.q = Distribution(ids, np.full(ids.size, 1.0 / ids.size))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        tokens = [draw(self.q, self.random)]
        stated = self.stated[tokens[0]][: request.n_max]
        tokens += [draw(self.q, self.random) for _ in stated[1:]]
        return Draft.chain(tokens, self.name, stated, [self.q] * len(tokens))


class Stubborn(BaseDrafter):
    """Always proposes token 1."""

    name = "suffix"

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft.chain((1,), self.name, (0.5,)) for _ in requests]


def cost_controlled(
    drafters: Sequence[BaseDrafter],
    program: PricedProgram,
    expected: Mapping[Pair, float],
    kind: type[CostController] = CostController,
) -> float:
    """The p-value of the pair after the first token, each request with a scope of its own."""
    draws, controller = 800, kind(credit=20.0)
    engine = fake_engine(
        drafters,
        program,
        verifier=Rejection(),
        controller=controller,
        queue=draws,
        scope="request",
        primitives=PRIMITIVES,
    )
    run(engine, list(PROMPT[:1]), temperature=1.0, max_tokens=60)  # shows what rows take
    for seed in range(draws):
        engine.submit(Request(PROMPT, SamplingOptions(temperature=1.0, max_tokens=5, seed=seed)))
    outputs: dict[int, list[EmittedToken]] = {}
    while engine.busy:
        for event in engine.step():
            outputs.setdefault(event.request, []).extend(event.tokens)
    assert sum(token.from_draft for tokens in outputs.values() for token in tokens) > draws / 3
    return p_value(expected, [(t[1].id, t[2].id) for t in outputs.values()])


def flat_pairs(vocabulary: int) -> dict[Pair, float]:
    ids = range(vocabulary)
    return {(a, b): 1.0 / vocabulary**2 for a in ids for b in ids}


def test_whether_a_drawn_node_is_kept_does_not_depend_on_what_follows() -> None:
    stated = [(0.5, 0.98, 0.98, 0.98)] * 4 + [(0.5, 0.05)] * 4
    program = PricedProgram(1.7, flat=True, vocabulary=8, spread=1.0)
    assert cost_controlled([Unequal(stated)], program, flat_pairs(8)) > LEVEL


def test_which_drafter_has_the_step_does_not_depend_on_what_was_drawn() -> None:
    drafters = [Stubborn(), Unequal([(0.5, 0.98, 0.98, 0.98), (0.5,)])]
    program = PricedProgram(1.1, flat=True, vocabulary=2, spread=1.0)
    assert cost_controlled(drafters, program, flat_pairs(2)) > LEVEL


class SureBehindZero(FakeProgram):
    """A draft model that knows what follows token 0, and nothing else."""

    def logits(self, history: Sequence[int]) -> NDArray[np.float32]:
        row = np.zeros(self.graph.vocabulary, np.float32)
        row[0] = 9.0 * (history[-1] == 0)
        return row


def drafted_trees(kind: type[CostController] = CostController) -> float:
    drafter = draft_simple(fake_draft_model(SureBehindZero(3)), 3, n_max=4, draft_branches=2)
    program = PricedProgram(1.5, flat=True, vocabulary=3, spread=1.0)
    return cost_controlled([drafter], program, flat_pairs(3), kind)


def test_a_draft_models_trees_keep_the_distribution_under_the_cost_controller() -> None:
    assert drafted_trees() > LEVEL


def test_an_order_of_growth_that_depends_on_the_token_drawn_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The likelier a drawn token makes what follows, the earlier it is expanded and kept."""

    def weighed(*arguments: Any) -> list[Child]:
        children: list[Child] = right(*arguments)
        return [replace(child, weight=0.9 if child.token == 0 else 0.3) for child in children]

    right = draft_simple_module.drawn
    monkeypatch.setattr(draft_simple_module, "drawn", weighed)
    assert drafted_trees() < LEVEL


class CutsByTokens(CostController):
    """Verifies a drawn draft up to the first token that is not 0."""

    def _settled(self, room: Room, made: tuple[Proposal, ...]) -> tuple[Draft, int]:
        draft, count = super()._settled(room, made)
        others = [node for node, token in enumerate(draft.tokens[:count]) if token != 0]
        return draft, min([count, *others])


def test_a_controller_that_cuts_by_what_was_drawn_is_caught() -> None:
    assert drafted_trees(CutsByTokens) < LEVEL


def test_counts_hold_under_rejection() -> None:
    outputs = run(drawing_engine(parallel=3), *[list(PROMPT)] * 6, max_tokens=40, temperature=1.0)
    for output in outputs:
        check_counts(output)
        statistics = output.statistics
        assert (statistics.verification, statistics.lossless) == ("rejection", True)
        assert not statistics.seed_exact
    assert sum(output.statistics.accepted for output in outputs) > 20
