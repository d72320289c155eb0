"""Trees out of counts: order, estimates, branches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.drafters.base import Draft
from slipstream.drafters.growth import Path, grow, tree

PATHS = st.lists(
    st.builds(
        lambda tokens, weight: Path(tuple(tokens), weight),
        st.lists(st.integers(0, 3), max_size=6),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=8,
)


def worth(draft: Draft) -> list[float]:
    """Node -> the product of estimates along its path."""
    products: list[float] = []
    for parent, estimate in zip(draft.parents, draft.probabilities, strict=True):
        products.append(estimate * (products[parent] if parent >= 0 else 1.0))
    return products


def test_the_best_node_comes_next() -> None:
    branches = {0: [(1, 0.6), (2, 0.4)], 1: [(3, 0.5), (4, 0.5)], 2: [(5, 0.9)]}

    def followers(state: int) -> Iterator[tuple[int, float, int]]:
        for token, estimate in branches.get(state, ()):
            yield token, estimate, token

    grown = grow(0, followers, 10, "m")
    # products: 1: 0.6, 2: 0.4, 5: 0.36, 3 and 4: 0.3, in the order offered
    assert grown.tokens == (1, 2, 5, 3, 4)
    assert grown.parents == (-1, -1, 1, 0, 0)
    assert grown.probabilities == (0.6, 0.4, 0.9, 0.5, 0.5)
    assert grown.methods == ("m",) * 5
    assert grow(0, followers, 3, "m") == grown.cut(3)
    assert grow(9, followers, 3, "m") == Draft()


def test_paths_are_joined_where_they_agree() -> None:
    paths = [Path((1, 2), 1), Path((1, 3), 2), Path((4,), 4)]
    grown = tree(paths, 2, 4, 10, "m")
    assert grown.tokens == (4, 1, 3, 2)
    assert grown.parents == (-1, -1, 1, 1)
    # 7 continuations after 2 tokens, 3 after 3: what was not seen weighs 1/2 and 1/3
    assert grown.probabilities == pytest.approx(
        (4 / 7.5, 3 / 7.5, 2 / (3 + 1 / 3), 1 / (3 + 1 / 3))
    )


def test_one_branch_follows_the_first_path_and_the_others_make_it_less_likely() -> None:
    paths = [Path((1, 2), 1), Path((3, 2), 5), Path((1, 4), 1)]
    grown = tree(paths, 1, 1, 10, "m")
    assert (grown.tokens, grown.parents) == ((1, 2), (-1, 0))
    assert grown.probabilities == pytest.approx((2 / 8, 1 / 2.5))


@given(PATHS, st.integers(1, 12), st.integers(1, 4), st.integers(0, 20))
def test_a_tree_of_paths(paths: list[Path], context: int, branches: int, nodes: int) -> None:
    grown = tree(paths, context, branches, nodes, "m")
    assert len(grown) <= nodes
    assert all(0 < estimate < 1 for estimate in grown.probabilities)
    products = worth(grown)
    assert products == sorted(products, reverse=True)
    for node, parent in enumerate(grown.parents):
        assert parent < node
    for children in grown.children().values():
        assert len(children) <= branches
        tokens = [grown.tokens[child] for child in children]
        assert len(set(tokens)) == len(tokens)
        assert sum(grown.probabilities[child] for child in children) < 1
    texts = {tuple(path.tokens[:length]) for path in paths for length in range(1, 7)}
    for leaf in range(len(grown)):
        text: list[int] = []
        node = leaf
        while node >= 0:
            text.insert(0, grown.tokens[node])
            node = grown.parents[node]
        assert tuple(text) in texts


@given(PATHS, st.integers(1, 12))
def test_one_branch_is_the_first_path(paths: list[Path], context: int) -> None:
    grown = tree(paths, context, 1, 100, "m")
    assert grown.tokens == tuple(paths[0].tokens)
    assert grown.parents == tuple(range(-1, len(paths[0].tokens) - 1))


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(1, 5), st.integers(1, 9))
def test_a_single_path_is_the_tree_of_its_halves(tokens: list[int], weight: int, n: int) -> None:
    whole = tree([Path(tokens, 2 * weight)], n, 4, 10, "m")
    halves = tree([Path(tokens, weight), Path(tokens, weight)], n, 4, 10, "m")
    assert whole.tokens == halves.tokens
    assert whole.probabilities == pytest.approx(halves.probabilities)
