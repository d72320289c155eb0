"""``Verdict.examined_leaf``: whether the walk ended at a node whose children were looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstream.drafters.base import Distribution, Draft
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, SamplerState
from slipstream.verify.base import Verdict, Verifier
from slipstream.verify.matching import Matching
from slipstream.verify.rejection import Rejection
from slipstream.verify.synthetic import Synthetic

VOCABULARY = 6
END = 5
VERIFIERS: list[Verifier] = [Matching(), Rejection()]
TEMPERATURES = (0.0, 1.0)
DRAFT = Draft((1, 2, 3, 4, 3), (-1, -1, 0, 0, 2))  # 1 has the children 3 and 4, and 3 has 3


def rows(*tokens: int) -> NDArray[np.float32]:
    """Logits that leave no doubt, per row."""
    found = np.full((len(tokens), VOCABULARY), -100.0, np.float32)
    found[np.arange(len(tokens)), tokens] = 100.0
    return found


def walk(
    verifier: Verifier, draft: Draft, *tokens: int, temperature: float = 0.0, end: int = END
) -> Verdict:
    """
    Args:
        tokens: what the target draws at the root and at each node.
    """
    options = SamplingOptions(temperature=temperature)
    state = SamplerState(options, (1, 2), 1, NumpyPrimitives())
    return verifier.verify(draft, rows(*tokens), state, (end,))


def certain(draft: Draft) -> Draft:
    """Each node as drawn from a distribution that knows no other token."""
    ones = tuple(Distribution(np.array([token]), np.ones(1)) for token in draft.tokens)
    return replace(draft, distributions=ones)


@pytest.fixture(params=[DRAFT, certain(DRAFT)], ids=["fixed", "drawn"])
def draft(request: pytest.FixtureRequest) -> Draft:
    found: Draft = request.param
    return found


every = pytest.mark.parametrize("temperature", TEMPERATURES)
lossless = pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: verifier.name)


@every
@lossless
def test_a_leaf_whose_children_all_differed_was_examined(
    verifier: Verifier, draft: Draft, temperature: float
) -> None:
    at_root = walk(verifier, draft, 0, 0, 0, 0, 0, 0, temperature=temperature)
    assert (at_root.path, at_root.tested, at_root.examined_leaf) == ((), 2, True)
    deeper = walk(verifier, draft, 1, 0, 0, 0, 0, 0, temperature=temperature)
    assert (deeper.path, deeper.tested, deeper.examined_leaf) == ((0,), 3, True)


@every
@lossless
def test_a_leaf_without_children_was_not(
    verifier: Verifier, draft: Draft, temperature: float
) -> None:
    whole = walk(verifier, draft, 1, 3, 0, 3, 0, 0, temperature=temperature)
    assert (whole.path, whole.tested, whole.examined_leaf) == ((0, 2, 4), 3, False)
    other = walk(verifier, draft, 2, 0, 0, 0, 0, 0, temperature=temperature)
    assert (other.path, other.tested, other.examined_leaf) == ((1,), 2, False)
    empty = walk(verifier, Draft(), 0, temperature=temperature)
    assert (empty.path, empty.tested, empty.examined_leaf) == ((), 0, False)


def test_matching_looks_at_no_children_where_the_end_is_drawn(draft: Draft) -> None:
    for temperature in TEMPERATURES:
        foreseen = walk(Matching(), draft, 1, 3, 0, 0, 0, 0, temperature=temperature, end=3)
        assert (foreseen.path, foreseen.tested, foreseen.examined_leaf) == ((0,), 1, False)
        unforeseen = walk(Matching(), draft, END, 0, 0, 0, 0, 0, temperature=temperature)
        assert (unforeseen.path, unforeseen.tested, unforeseen.examined_leaf) == ((), 0, False)


def test_rejection_has_examined_an_end_id_before_it_is_emitted(draft: Draft) -> None:
    """It was accepted by the walk, yet it is no accepted token of the path."""
    first = walk(Rejection(), draft, 1, 3, 0, 0, 0, 0, temperature=1.0, end=3)
    assert (first.path, first.tested, first.examined_leaf) == ((0,), 2, True)
    second = walk(Rejection(), draft, 1, 4, 0, 0, 0, 0, temperature=1.0, end=4)
    assert (second.path, second.tested, second.examined_leaf) == ((0,), 3, True)
    at_root = walk(Rejection(), draft, 1, 0, 0, 0, 0, 0, temperature=1.0, end=1)
    assert (at_root.path, at_root.tested, at_root.examined_leaf) == ((), 1, True)
    assert at_root.next_token == 1


def test_rejection_ends_at_a_leaf_without_children(draft: Draft) -> None:
    end = walk(Rejection(), draft, 2, 0, END, 0, 0, 0, temperature=1.0)
    assert (end.path, end.tested, end.examined_leaf) == ((1,), 2, False)


@pytest.mark.parametrize(
    ("rates", "path", "examined"),
    [((0.0,), (), True), ((1.0, 0.0), (0,), True), ((1.0, 1.0, 1.0), (0, 2, 4), False)],
)
def test_pretended_verdicts(rates: Sequence[float], path: tuple[int, ...], examined: bool) -> None:
    found = walk(Synthetic(rates), DRAFT, 0, 0, 0, 0, 0, 0)
    assert (found.path, found.examined_leaf) == (path, examined)
    ended = walk(Synthetic((1.0, 1.0)), DRAFT, 0, 0, 0, 0, 0, 0, end=1)
    assert (ended.path, ended.examined_leaf) == ((), True)
