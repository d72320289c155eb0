"""Rejection sampling where requests of one engine limit their drafts apart: none is biased.

As in ``test_distribution``: a chi-square test over pairs of tokens, all seeds fixed, and rules that
are wrong must fail it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from random import Random

import pytest

from draft_models import draft_simple, fake_draft_model
from drafters_for_tests import TestDrafter
from engines import check_rounds, fake_engine
from fake_program import FakeProgram
from joint_draws import (
    PRIMITIVES,
    PROMPT,
    SPREAD,
    VOCABULARY,
    Pair,
    chain_probabilities,
    draw,
    joint_probabilities,
    p_value,
    q_of,
)
from slipstream.drafters.base import Draft, DraftRequest
from slipstream.engine import drafting
from slipstream.engine.controller import DoublingController
from slipstream.engine.sequence import Request, Speculation
from slipstream.options import SamplingOptions
from slipstream.verify.rejection import Rejection

DRAWS = 1_500  # of each choice
SIDE = 60  # requests side by side
OPTIONS = SamplingOptions(temperature=1.0, max_tokens=4)
CHOICES: dict[str, Speculation | None] = {
    "the engine's": None,
    "none": Speculation(methods=()),
    "uneven": Speculation(methods=("uneven",)),
    "uneven, long": Speculation(methods=("uneven",), n_min=2),
    "uneven, sure": Speculation(methods=("uneven",), p_min=0.3),
    "uneven, short": Speculation(methods=("uneven",), n_max=1),
    "draft-simple": Speculation(methods=("draft-simple",), n_max=2),
    "draft-simple, sure": Speculation(methods=("draft-simple",), p_min=0.35),
    "draft-simple, long and sure": Speculation(methods=("draft-simple",), p_min=0.45, n_min=2),
}
LEVEL = 0.01 / len(CHOICES)


class Uneven(TestDrafter):
    """Draws honestly; how long a draft is, and how sure of its end, depends on the token drawn."""

    name = "uneven"

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(3)

    def propose(self, request: DraftRequest) -> Draft:
        history = list(request.tokens)
        tokens, sources = [draw(q_of(history), self.random)], [q_of(history)]
        estimates = [0.5]
        if tokens[0] % 2:
            sources.append(q_of([*history, *tokens]))
            tokens.append(draw(sources[1], self.random))
            estimates.append(0.1 if tokens[0] == 1 else 0.8)
        return Draft.chain(tokens, self.name, estimates, sources)


def pairs_of(choices: Sequence[str]) -> dict[str, list[Pair]]:
    """The pair after the first token, which the prompt gives; all choices side by side."""
    draft_model = fake_draft_model(FakeProgram(VOCABULARY, order=2, spread=SPREAD))
    engine = fake_engine(
        [Uneven(), draft_simple(draft_model, VOCABULARY, n_max=3, draft_branches=2)],
        FakeProgram(VOCABULARY, spread=SPREAD),
        parallel=SIDE,
        queue=SIDE,
        verifier=Rejection(),
        controller=DoublingController(fixed=True),
        primitives=PRIMITIVES,
    )
    kinds: dict[int, str] = {}
    tokens: dict[int, list[int]] = {}
    accepted: Counter[str] = Counter()
    seeds = count()
    while engine.busy or len(kinds) < DRAWS * len(choices):
        while len(engine.scheduler.waiting) < SIDE and len(kinds) < DRAWS * len(choices):
            seed = next(seeds)
            kind = choices[seed % len(choices)]
            options = SamplingOptions(temperature=1.0, max_tokens=4, seed=seed)
            identity = engine.submit(Request(PROMPT, options, speculation=CHOICES[kind]))
            kinds[identity], tokens[identity] = kind, []
        for event in engine.step():
            tokens[event.request] += [token.id for token in event.tokens]
            if event.statistics is not None:
                check_rounds(event.statistics)
                accepted[kinds[event.request]] += event.statistics.accepted
    assert all(accepted[kind] > DRAWS / 10 for kind in choices if kind != "none"), accepted
    assert accepted["none"] == 0
    pairs: dict[str, list[Pair]] = {kind: [] for kind in choices}
    for identity, ids in tokens.items():
        pairs[kinds[identity]].append((ids[1], ids[2]))
    return pairs


def expected() -> Counter[Pair]:
    shares: Counter[Pair] = Counter()
    for token, share in enumerate(chain_probabilities(PROMPT, OPTIONS)):
        for pair, chance in joint_probabilities(OPTIONS, [*PROMPT, token]).items():
            shares[pair] += share * chance  # type: ignore[assignment]
    return shares


def test_every_choice_keeps_the_distribution() -> None:
    found = pairs_of(list(CHOICES))
    for kind, pairs in found.items():
        assert p_value(expected(), pairs) > LEVEL, kind


def test_dropping_what_was_drawn_for_being_short_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drafting, "is_drawn", lambda _: False)
    found = pairs_of(["uneven, long"])
    assert p_value(expected(), found["uneven, long"]) < LEVEL


def test_an_estimate_that_depends_on_the_token_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the contract of ``Draft.probabilities`` forbids."""

    def peeking(self: Uneven, request: DraftRequest) -> Draft:
        draft = right(self, request)
        estimates = (0.1 if draft.tokens[0] == 3 else 0.5, *draft.probabilities[1:])
        return Draft.chain(draft.tokens, self.name, estimates, draft.distributions)

    right = Uneven.propose
    monkeypatch.setattr(Uneven, "propose", peeking)
    found = pairs_of(["uneven, sure"])
    assert p_value(expected(), found["uneven, sure"]) < LEVEL
