"""Merging proposals, and choosing how many nodes to verify."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.drafters.base import Draft
from slipstream.engine.controller import Decision, Proposal, Room
from slipstream.engine.cost_controller import CostController
from slipstream.engine.drafts import checked
from slipstream.engine.tree import best_count, in_draft_order, union


def test_the_same_path_is_the_same_node_and_belongs_to_the_first() -> None:
    first = Draft.chain((1, 2, 3), "a")
    second = Draft((1, 5, 2, 9), (-1, -1, 0, 2), ("b",) * 4, (0.8, 0.1, 0.7, 0.6))
    tree, values = union([first, second], [(0.5, 0.3, 0.2), (0.8, 0.1, 0.6, 0.4)])
    assert tree.tokens == (1, 2, 3, 5, 9)
    assert tree.parents == (-1, 0, 1, -1, 1)
    assert tree.methods == ("a", "a", "a", "b", "b")
    assert values == pytest.approx([0.8, 0.6, 0.2, 0.1, 0.4])
    assert tree.probabilities[3:] == (0.1, 0.6)


def test_nodes_without_value_are_left_out() -> None:
    tree, values = union([Draft.chain((1, 2, 3), "a")], [(0.5, 0.3, 0.0)])
    assert tree.tokens == (1, 2)
    assert values == [0.5, 0.3]


def test_claims_of_siblings_that_disagree_are_scaled_down() -> None:
    first, second = Draft.chain((1, 2), "a"), Draft.chain((7, 8), "b")
    _, values = union([first, second], [(0.9, 0.8), (0.6, 0.3)])
    assert values == pytest.approx([0.6, 0.9 / 1.5 * 0.8 / 0.9, 0.4, 0.2])


def test_a_later_sibling_is_worth_no_more_than_an_earlier_one() -> None:
    tree = Draft((1, 2, 3, 4), (-1, -1, 0, 1))
    assert in_draft_order(tree, (0.2, 0.6, 0.2, 0.5)) == [0.2, 0.2, 0.2, 0.2]


def test_the_best_point_may_lie_beyond_a_dear_row() -> None:
    seconds = [1.0, 1.9, 1.95, 2.0]
    assert best_count([0.9, 0.9, 0.9], seconds, 1, 0.0)[0] == 3
    assert best_count([0.9, 0.1], [1.0, 2.0, 2.05], 1, 0.0) == (0, 1.0)
    assert best_count([0.9, 0.9, 0.9], seconds, 1, 5.0)[1] == pytest.approx(3.7 / 7.0)
    assert best_count([], [1.0], 2, 0.0) == (0, 2.0)


@st.composite
def drafts(draw: st.DrawFn, method: str) -> Draft:
    count = draw(st.integers(0, 12))
    parents = [draw(st.integers(-1, node - 1)) for node in range(count)]
    seen: dict[int, int] = {}
    tokens = []
    for parent in parents:
        seen[parent] = seen.get(parent, 0) + 1
        tokens.append(seen[parent])
    claims = st.floats(0.0, 1.0, allow_nan=False)
    stated = [draw(claims) for _ in range(count)] if draw(st.booleans()) else []
    return Draft(tuple(tokens), tuple(parents), (method,) * count, tuple(stated))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(drafts("suffix"), drafts("draft-simple")), min_size=1, max_size=3),
            st.integers(0, 9),
            st.booleans(),
            st.lists(st.integers(1, 3), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_is_proposed_a_choice_is_a_tree_of_proposed_paths(steps: list) -> None:  # type: ignore[type-arg]
    controller = CostController()
    for number, (offers, nodes, drawn, truth) in enumerate(steps, 1):
        rooms = [Room(i, nodes, 10 + number, drawn, "s") for i in range(len(offers))]
        for method in ("suffix", "draft-simple"):
            caps = controller.plan(method, rooms, [()] * len(rooms))
            assert all(0 <= cap <= max(nodes, 0) for cap in caps)
        held = [
            (Proposal("suffix", 9, first, 1e-4), Proposal("draft-simple", 9, second, 1e-3))
            for first, second in offers
        ]
        chosen = controller.choose(rooms, held)
        rows = len(rooms) + sum(map(len, chosen))
        for room, made, draft in zip(rooms, held, chosen, strict=True):
            _check_choice(draft, [proposal.draft for proposal in made], nodes)
            path = draft.matched(truth)
            tokens = (*(draft.tokens[node] for node in path), 99)
            leaf = path[-1] if path else -1
            rejected = leaf in draft.parents
            controller.observe(
                Decision(0.0, room, made, draft, path, tokens, rejected, 0, rows, 0.03, step=number)
            )


def _check_choice(draft: Draft, proposed: list[Draft], most: int) -> None:
    assert checked(Draft(draft.tokens, draft.parents), 100, "any")[1] is None
    assert max(draft.depths(), default=-1) < most or not len(draft)
    assert len(draft.methods) == len(draft)
    for node in range(len(draft)):
        tokens = []
        at = node
        while at >= 0:
            tokens.append(draft.tokens[at])
            at = draft.parents[at]
        tokens.reverse()
        assert any(len(source.matched(tokens)) == len(tokens) for source in proposed)
        owner = next(s for s in proposed if len(s.matched(tokens)) == len(tokens))
        assert draft.methods[node] in {s.methods[0] for s in proposed if len(s)}
        assert len(owner)
