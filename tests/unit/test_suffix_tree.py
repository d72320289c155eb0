"""Estimates of suffix that learn, and trees against their definition."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.drafters.base import ROOT
from slipstream.drafters.suffix_calibration import (
    BUCKETS,
    COPY,
    COUNTS,
    KINDS,
    LEAST,
    MOST,
    OWN,
    PRIORS,
    SCOPE,
    SINGLE,
    Calibration,
    bucket_of,
)
from slipstream.drafters.suffix_index import MATCH_MAX
from slipstream.drafters.suffix_tree import SUPPORTERS, DraftTree, Occurrence


def test_priors_rise_with_length_and_count() -> None:
    singles = [PRIORS[bucket] for bucket in SINGLE[OWN]]
    assert singles == sorted(singles)
    assert PRIORS[bucket_of(OWN, 2, 1)] < 0.5
    assert PRIORS[bucket_of(OWN, 20, 1)] > 0.9
    assert (
        PRIORS[bucket_of(OWN, 3, 1)] < PRIORS[bucket_of(OWN, 3, 2)] < PRIORS[bucket_of(OWN, 3, 9)]
    )
    every = {
        bucket_of(kind, length, count)
        for kind in KINDS
        for length in range(MATCH_MAX + 9)
        for count in (1, *COUNTS, 50)
    }
    assert every == set(range(BUCKETS))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_estimates_approach_what_comes_true(rate: float) -> None:
    calibration, generator = Calibration(), random.Random(3)
    bucket = bucket_of(OWN, 4, 1)
    for _ in range(400):
        calibration.learn(bucket, 1.0, hit=generator.random() < rate)
    assert abs(calibration.estimates[bucket] - rate) < 0.15
    assert calibration.odds[bucket] == pytest.approx(
        calibration.estimates[bucket] / (1 - calibration.estimates[bucket])
    )
    others = [i for i in range(BUCKETS) if i != bucket]
    assert [calibration.estimates[i] for i in others] == [PRIORS[i] for i in others]


def test_estimates_follow_a_change_and_stay_probabilities() -> None:
    calibration = Calibration()
    bucket = bucket_of(SCOPE, 9, 2)
    for _ in range(1000):
        calibration.learn(bucket, 0.3, hit=True)
    assert calibration.estimates[bucket] == MOST
    for _ in range(150):
        calibration.learn(bucket, 1.0, hit=False)
    assert LEAST <= calibration.estimates[bucket] < 0.2


@st.composite
def votes(draw: st.DrawFn) -> list[Occurrence]:
    text = [*draw(st.lists(st.integers(-1, 2), max_size=30)), draw(st.integers(-1, 2)), -1]
    places = draw(st.lists(st.integers(0, len(text) - 1), max_size=7, unique=True))
    return [
        Occurrence(text, place, draw(st.integers(0, 70)), draw(st.sampled_from([OWN, SCOPE, COPY])))
        for place in places
    ]


def tree_by_hand(
    occurrences: list[Occurrence], nodes: int, branches: int, least: float
) -> set[tuple[tuple[int, ...], float, float]]:
    """The definition: paths of the best D, each with its P and D; no ties are asked for."""
    calibration = Calibration()
    paths: list[tuple[tuple[int, ...], float, float]] = []

    def visit(path: tuple[int, ...], supporters: list[Occurrence], reached: float) -> None:
        depth = len(path)
        votes: dict[int, list[tuple[float, Occurrence]]] = {}
        for one in supporters:
            periods = one.tokens[one.place :] * (depth + 1)
            token = periods[depth]
            if token >= 0:
                weight = calibration.odds[bucket_of(one.kind, one.length + depth, 1)]
                votes.setdefault(token, []).append((weight, one))
        total = sum(weight for members in votes.values() for weight, _ in members)
        ranked = sorted(votes.items(), key=lambda item: -sum(weight for weight, _ in item[1]))
        for token, members in ranked[:branches]:
            _, best = max(members, key=lambda member: member[0])
            bucket = bucket_of(best.kind, best.length + depth, len(members))
            share = sum(weight for weight, _ in members) / total
            probability = share * calibration.estimates[bucket]
            if reached * probability >= least:
                paths.append(((*path, token), probability, reached * probability))
                kept = [one for _, one in members][:SUPPORTERS]
                visit((*path, token), kept, reached * probability)

    visit((), occurrences, 1.0)
    paths.sort(key=lambda item: -item[2])
    return {(path, round(p, 9), round(d, 9)) for path, p, d in paths[:nodes]}


@settings(deadline=None)
@given(votes(), st.integers(1, 3), st.sampled_from([0.0, 0.05, 0.3]))
def test_tree_equals_its_definition(
    occurrences: list[Occurrence], branches: int, least: float
) -> None:
    tree = DraftTree(occurrences, Calibration(), 10_000, branches, least)
    found = set()
    reached: list[tuple[tuple[int, ...], float]] = []
    for token, parent, p in zip(tree.tokens, tree.parents, tree.probabilities, strict=True):
        before, path = reached[parent] if parent != ROOT else ((), 1.0)
        reached.append(((*before, token), path * p))
        found.add(((*before, token), round(p, 9), round(path * p, 9)))
    assert found == tree_by_hand(occurrences, 10_000, branches, least)
    scores = [path for _, path in reached]
    assert scores == sorted(scores, reverse=True)
    fewer = DraftTree(occurrences, Calibration(), 5, branches, least)
    assert fewer.tokens == tree.tokens[:5]


def test_ties_go_to_the_earlier_occurrence() -> None:
    tree = DraftTree(
        [Occurrence([7], 0, 3, OWN), Occurrence([8], 0, 3, OWN)], Calibration(), 2, 2, 0.0
    )
    assert tree.tokens == [7, 8]
    assert tree.parents == [ROOT, ROOT]
