"""Scoring proposals by the tokens that come out, verified or not."""

from __future__ import annotations

import random

import pytest

from slipstream.drafters.base import Draft
from slipstream.engine.acceptance import (
    ANY,
    LEAST,
    RANKS,
    UNKNOWN_RUN,
    Evidence,
    Foresight,
    SharedEvidence,
    buckets,
    key_of,
)


def foresight(method: str = "suffix") -> Foresight:
    return Foresight(method, SharedEvidence())


def chain(*tokens: int, claims: float | None = None) -> Draft:
    return Draft.chain(tokens, "suffix", [claims] * len(tokens) if claims is not None else [])


def test_evidence_decays_with_trials_and_with_tokens() -> None:
    evidence = Evidence(10.0, 100.0)
    for i in range(200):
        evidence.learn(1, i % 2 == 0, 0.0)
    trials, hits = evidence.counts(1, 0.0)
    assert trials == pytest.approx(10.0, rel=0.01)
    assert hits / trials == pytest.approx(0.5, abs=0.05)
    assert evidence.counts(1, 100.0)[0] == pytest.approx(trials / 2)
    assert evidence.counts(2, 0.0) == (0.0, 0.0)


def test_nodes_are_classed_by_claim_or_by_rank_among_siblings() -> None:
    tree = Draft((1, 2, 3, 4, 5), (-1, -1, -1, -1, 0))
    first, second, third, fourth, below = buckets(tree)
    assert len({first, second, third}) == 3
    assert (fourth, below) == (third, first)
    claimed = Draft.chain((1, 2, 3), "a", (0.0, 0.5, 1.0))
    assert buckets(claimed) == sorted(set(buckets(claimed)))
    assert ANY not in buckets(tree) + buckets(claimed)


def test_a_proposal_counts_though_it_was_not_verified() -> None:
    seen = foresight()
    before = seen.paths(chain(1), 8, 0.0)[0]
    for step in range(20):
        seen.learn(chain(step, step + 1), [step])
    assert seen.paths(chain(1), 8, 0.0)[0] > max(before, 0.85)
    assert seen.run == 20
    for step in range(20):
        seen.learn(chain(step), [step + 1])
    assert seen.paths(chain(1), 8, 0.0)[0] < 0.2
    assert seen.run == 0


def test_the_rest_of_a_proposal_is_followed_through_later_steps() -> None:
    seen = foresight("draft-simple")
    seen.learn(chain(1, 2, 3, 4), [1, 2])
    assert seen.shared.counts(_deep(2), 0.0) == (0.0, 0.0)
    seen.learn(None, [3])
    assert seen.run == UNKNOWN_RUN
    trials, hits = seen.shared.counts(_deep(2), 0.0)
    assert (trials, hits) == (1.0, 1.0)
    seen.learn(None, [9])
    trials, hits = seen.shared.counts(_deep(3), 0.0)
    assert hits < trials
    seen.learn(None, [5])
    assert seen.shared.counts(_deep(3), 0.0)[0] == pytest.approx(trials)


def _deep(depth: int) -> int:
    """The key of an unstated first child at a depth, in a proposal of unknown run."""
    return key_of(RANKS, depth, depth)


def test_a_hostile_drafter_is_seen_through_within_a_few_steps() -> None:
    seen = foresight()
    believed = seen.paths(chain(1, claims=0.99), 8, 0.0)[0]
    assert believed > 0.8
    for _ in range(5):
        seen.learn(chain(1, 2, 3, claims=0.99), [7])
    assert seen.paths(chain(1, claims=0.99), 8, 0.0)[0] < 0.25


def test_an_honest_claim_is_kept_apart_from_another() -> None:
    seen = foresight()
    chance = random.Random(1)
    for _ in range(200):
        claim = chance.choice((0.95, 0.3))
        hit = chance.random() < claim
        seen.learn(chain(1, claims=claim), [1 if hit else 2])
    assert seen.paths(chain(1, claims=0.95), 8, 0.0)[0] > 0.8
    assert seen.paths(chain(1, claims=0.3), 8, 0.0)[0] < 0.5


def test_runs_matter_more_than_averages() -> None:
    """After a miss little is expected, within a copy much: half of the tokens are right in all."""
    seen = foresight()
    for step in range(400):
        seen.learn(chain(1, 1, 1), [1 if step % 40 < 20 else 2])
    assert seen.run == 0
    low = seen.paths(chain(1), 8, 0.0)[0]
    for _ in range(6):
        seen.learn(chain(1, 1, 1), [1])
    assert seen.paths(chain(1), 8, 0.0)[0] > low + 0.4


def test_paths_multiply_and_end_where_nothing_is_left() -> None:
    seen = foresight()
    tree = Draft((1, 2, 3, 4), (-1, 0, 1, 0), ("suffix",) * 4, (0.9, 0.9, 0.9, 0.005))
    first, second, third, unlikely = seen.paths(tree, 2, 0.0)
    assert 1.0 > first > second > LEAST
    assert third == 0.0  # too deep
    assert unlikely == 0.0
    assert seen.paths(tree, 8, 2.0)[0] < first


def test_siblings_are_tried_one_by_one() -> None:
    seen = foresight()
    tree = Draft((1, 2), (-1, -1))
    for _ in range(60):
        seen.learn(tree, [2])
    first, second = seen.paths(tree, 8, 0.0)
    assert first < 0.1
    assert second > 0.8
    assert seen.chain(1, 0.0)[0] > 0.8
    assert seen.first_trials() > 20


def test_of_drawn_tokens_only_those_that_were_tested_count() -> None:
    seen = foresight()
    verified = Draft((1, 2, 3), (-1, -1, 1), ("suffix",) * 3, (0.5, 0.5, 0.5))
    seen.learn_drawn(verified, (1,), True)
    bucket = buckets(verified)[0]
    trials, hits = seen.shared.counts(_claimed(bucket), 0.0)
    assert trials == pytest.approx(3.0, abs=0.1)
    assert hits == pytest.approx(1.0, abs=0.1)
    seen.learn_drawn(Draft.chain((1, 2), "suffix", (0.5, 0.5)), (0, 1), False)
    assert seen.shared.counts(_claimed(bucket), 0.0)[1] == pytest.approx(3.0, abs=0.1)
    seen.learn_drawn(Draft.chain((1, 2), "suffix", (0.5, 0.5)), (), False)  # ended at once
    assert seen.shared.counts(_claimed(bucket), 0.0)[0] == pytest.approx(5.0, abs=0.2)


def _claimed(bucket: int) -> int:
    return key_of(bucket)
