"""What every verdict is, whatever the tree, the distributions and the sampler: property tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.drafters.base import ROOT, Distribution, Draft
from slipstream.noise import PRETENCE, in_stream, uniform
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, SamplerState
from slipstream.verify.base import Verdict, Verifier
from slipstream.verify.matching import Matching
from slipstream.verify.rejection import Rejection
from slipstream.verify.synthetic import Synthetic

VOCABULARY = 7
VERIFIERS: list[Verifier] = [Matching(), Rejection(), Synthetic((0.8, 0.6, 0.5, 0.1))]
Rows = np.ndarray[Any, np.dtype[np.float32]]
many = settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def distributions(draw: st.DrawFn, token: int) -> Distribution | None:
    """None, or one that may have drawn the token."""
    if draw(st.booleans()):
        return None
    ids = draw(st.sets(st.integers(0, VOCABULARY - 1), max_size=VOCABULARY)) | {token}
    weights = np.array([draw(st.floats(1e-6, 1.0)) for _ in ids])
    return Distribution(np.array(sorted(ids)), weights / weights.sum())


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    nodes: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 9))):
        node = (draw(st.integers(0, VOCABULARY - 1)), draw(st.integers(ROOT, len(nodes) - 1)))
        if node not in nodes:
            nodes.append(node)
    return Draft(
        tuple(token for token, _ in nodes),
        tuple(parent for _, parent in nodes),
        distributions=tuple(draw(distributions(token)) for token, _ in nodes),
    )


@st.composite
def samplings(draw: st.DrawFn) -> SamplingOptions:
    return SamplingOptions(
        temperature=draw(st.sampled_from([0.0, 0.3, 1.0, 2.0])),
        top_k=draw(st.sampled_from([0, 1, 3])),
        top_p=draw(st.sampled_from([1.0, 0.7])),
        min_p=draw(st.sampled_from([0.0, 0.3])),
        presence_penalty=draw(st.sampled_from([0.0, 0.8])),
        logit_bias=draw(st.sampled_from([{}, {1: 3.0, 2: -3.0}])),
        logprobs=draw(st.sampled_from([None, 2])),
    )


def random_rows(count: int, seed: int) -> Rows:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((count, VOCABULARY)) * 1.5).astype(np.float32)


def state_of(options: SamplingOptions, seed: int = 1) -> SamplerState:
    return SamplerState(options, (1, 2), seed, NumpyPrimitives())


def tokens_of(verdict: Verdict) -> tuple[int, ...]:
    return tuple(drawn.token for drawn in verdict.sampled)


def examined_nodes(draft: Draft, verdict: Verdict) -> list[int]:
    """Children of the root and of every accepted node, up to the accepted one or all of them."""
    children = draft.children()
    found: list[int] = []
    for place, node in enumerate((ROOT, *verdict.path)):
        siblings = children.get(node, [])
        token = verdict.sampled[place].token
        tokens = [draft.tokens[sibling] for sibling in siblings]
        stop = tokens.index(token) + 1 if token in tokens else len(tokens)
        found += siblings[:stop]
    return sorted(found)


@many
@given(
    verifier=st.sampled_from(VERIFIERS),
    draft=drafts(),
    options=samplings(),
    seed=st.integers(0, 2**63),
    ends=st.frozensets(st.integers(0, VOCABULARY - 1), max_size=2),
)
def test_a_verdict_is_a_path_and_its_counts_conserve(
    verifier: Verifier, draft: Draft, options: SamplingOptions, seed: int, ends: frozenset[int]
) -> None:
    rows = random_rows(1 + len(draft), seed % 2**32)
    state = state_of(options, seed)
    verdict = verifier.verify(draft, rows, state, tuple(ends))
    parents = [draft.parents[node] for node in verdict.path]
    assert parents == [ROOT, *verdict.path][: len(verdict.path)]
    tokens = tokens_of(verdict)
    assert tokens[:-1] == tuple(draft.tokens[node] for node in verdict.path)
    assert len(draft) >= verdict.tested >= len(verdict.path) == len(tokens) - 1 == state.index - 1
    assert not ends.intersection(tokens[:-1])
    assert all((drawn.logprob is None) == (options.logprobs is None) for drawn in verdict.sampled)
    walked = state_of(options, seed)
    for node, token in zip((ROOT, *verdict.path), tokens, strict=True):
        if verifier.lossless:
            assert walked.distribution(rows[node + 1])[token] > 0.0
        walked.advance(token)
    again = verifier.verify(draft, rows, state_of(options, seed), tuple(ends))
    assert again == verdict


@many
@given(
    verifier=st.sampled_from(VERIFIERS[:2]),
    draft=drafts(),
    options=samplings(),
    seed=st.integers(0, 2**32),
)
def test_nodes_that_were_not_examined_change_nothing(
    verifier: Verifier, draft: Draft, options: SamplingOptions, seed: int
) -> None:
    """A path inside a tree is verified as it is without the rest of the tree."""
    rows = random_rows(1 + len(draft), seed)
    whole = verifier.verify(draft, rows, state_of(options, seed), ())
    kept = examined_nodes(draft, whole)
    assert len(kept) == whole.tested
    pruned = draft.kept(kept)
    alone = verifier.verify(
        pruned, rows[[0, *(node + 1 for node in kept)]], state_of(options, seed), ()
    )
    assert alone.sampled == whole.sampled
    assert alone.tested == whole.tested
    assert tuple(kept[node] for node in alone.path) == whole.path


@many
@given(options=samplings(), seed=st.integers(0, 2**32), length=st.integers(1, 12))
def test_a_drafter_that_equals_the_target_is_always_accepted(
    options: SamplingOptions, seed: int, length: int
) -> None:
    rows, sampler = random_rows(length + 1, seed), state_of(options, seed)
    random = np.random.default_rng(seed)
    tokens, sources = [], []
    for row in rows[:-1]:
        p = sampler.distribution(row)
        tokens.append(int(random.choice(VOCABULARY, p=p)))
        sources.append(Distribution(np.arange(VOCABULARY), p))
        sampler.advance(tokens[-1])
    draft = Draft.chain(tokens, "twin", distributions=sources)
    verdict = Rejection().verify(draft, rows, state_of(options, seed + 1), ())
    assert verdict.path == tuple(range(length))
    assert verdict.tested == length


@many
@given(draft=drafts(), options=samplings(), seed=st.integers(0, 2**32))
def test_greedy_requests_are_verified_as_by_matching(
    draft: Draft, options: SamplingOptions, seed: int
) -> None:
    greedy = SamplingOptions(top_k=options.top_k, logit_bias=options.logit_bias)
    rows = random_rows(1 + len(draft), seed)
    found, expected = (
        verifier.verify(draft, rows, state_of(greedy), (3,)) for verifier in VERIFIERS[1::-1]
    )
    assert found == expected


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_synthetic_acceptance_has_the_rates_it_was_given(depth: int) -> None:
    rates = (0.9, 0.5, 0.2)
    rows = random_rows(4, 3)
    draft = Draft.chain([1, 2, 3], "test")
    paths = [
        len(Synthetic(rates).verify(draft, rows, state_of(SamplingOptions(), seed), ()).path)
        for seed in range(3000)
    ]
    share = np.mean([length >= depth for length in paths])
    # 4 standard errors
    assert abs(share - rates[depth - 1]) < 4 * np.sqrt(0.25 / len(paths))


def test_streams_are_independent_of_each_other() -> None:
    pairs = [(uniform(seed, 5), uniform(seed, in_stream(5, PRETENCE))) for seed in range(4000)]
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 4 / np.sqrt(len(pairs))
