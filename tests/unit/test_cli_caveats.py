"""What run and chat say beside the statistics: fallbacks, and ops that are not exact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.backends.reference import ReferenceBackend
from slipstream.cli.statistics import backend_record, caveats, note_lines
from slipstream.graph import Graph, GraphBuilder, Weight


def graph() -> Graph:
    g = GraphBuilder({})
    g.output("logits", g.linear(g.input("x", 32), Weight("w", 0, 4, 32)))
    return Graph(tuple(g.ops), "test", 32, 4, 16)


def loaded(backend: Any, notes: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(
        memory=SimpleNamespace(kv_type="f16"),
        backend=backend,
        graph=graph(),
        weights=SimpleNamespace(notes=notes),
    )


def test_an_inexact_op_is_named() -> None:
    model = loaded(ReferenceBackend())
    assert caveats(model) == ["exact: not guaranteed (Linear)"]
    assert backend_record(model)["varying_ops"] == ("Linear",)
    assert backend_record(model)["exact"] is False


def test_an_op_that_the_map_lacks_is_not_exact() -> None:
    backend = SimpleNamespace(
        name="new", precision="a8", row_invariant={"Input": True, "Output": True}
    )
    assert caveats(loaded(backend)) == ["exact: not guaranteed (Linear)"]


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (3, 3), (4, 4), (200, 4)])
def test_fallbacks_are_said(count: int, lines: int) -> None:
    exact = {"Input": True, "Output": True, "Linear": True}
    notes = tuple(f"w{at}: expanded to f32" for at in range(count))
    backend = SimpleNamespace(name="cpu", precision="a8", row_invariant=exact)
    model = loaded(backend, notes)
    said = caveats(model)
    assert said == note_lines(notes)
    assert len(said) == lines
    assert said[:1] == ["note: w0: expanded to f32"][:count]
    assert backend_record(model)["notes"] == notes
    if count > lines:
        assert said[-1] == f"note: {count - 3} more tensors, listed by --json"


def test_a16_is_said() -> None:
    exact = {"Input": True, "Output": True, "Linear": True}
    model = loaded(SimpleNamespace(name="cpu", precision="a16", row_invariant=exact))
    assert caveats(model) == ["precision: a16 (activations two int8 planes)"]
    assert backend_record(model)["precision"] == "a16"
