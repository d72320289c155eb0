"""Graph rewrites: fewer, larger ops with the same bits. They read structure, never a row count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slipstream.dispatch.structure import reader_counts, reads, writes
from slipstream.graph import Add, Gated, GatedLinear, Graph, Linear, LinearGroup, Op, Value

Rewrite = Callable[[Graph], Graph]


def add_into_linear(graph: Graph) -> Graph:
    """``linear(x) + r`` becomes a linear with the residual ``r``.

    Only when the sum is the linear's one reader and ``r`` is written before the linear runs.
    """
    readers, written = reader_counts(graph), _written_at(graph)
    ops: list[Op | None] = list(graph.ops)
    for position, op in enumerate(graph.ops):
        if isinstance(op, Add):
            found = _residual(ops, written, op)
            if found is not None and readers[found[1].out.index] == 1:
                at, linear, residual = found
                ops[at] = replace(linear, out=op.out, residual=residual)
                ops[position] = None
    return _with_ops(graph, ops)


def _residual(
    ops: Sequence[Op | None], written: dict[int, int], add: Add
) -> tuple[int, Linear, Value] | None:
    """Position and op of the later operand's linear, and the other operand."""
    last, other = sorted((add.a, add.b), key=lambda value: written[value.index], reverse=True)
    at = written[last.index]
    linear = ops[at]
    if not isinstance(linear, Linear) or linear.residual is not None:
        return None
    return (at, linear, other) if written[other.index] < at else None


def gate_with_up(graph: Graph) -> Graph:
    """``activation(gate(x)) * up(x)`` of two plain linears becomes one op."""
    readers, written = reader_counts(graph), _written_at(graph)
    ops: list[Op | None] = list(graph.ops)
    for position, op in enumerate(graph.ops):
        if not isinstance(op, Gated):
            continue
        gate_at, up_at = written[op.gate.index], written[op.up.index]
        gate, up = ops[gate_at], ops[up_at]
        if (
            isinstance(gate, Linear)
            and isinstance(up, Linear)
            and gate.x == up.x
            and all(_is_plain(linear, readers[linear.out.index]) for linear in (gate, up))
        ):
            ops[gate_at] = ops[up_at] = None
            ops[position] = GatedLinear(op.out, gate.x, gate.weight, up.weight, op.activation)
    return _with_ops(graph, ops)


def _is_plain(linear: Linear, readers: int) -> bool:
    return linear.bias is None and linear.residual is None and readers == 1


def group_linears(graph: Graph) -> Graph:
    """Linears of one input become a group, which prepares that input once.

    A group runs where its first member stood, so a linear with a residual written later stays out.
    """
    written = _written_at(graph)
    ops: list[Op | None] = list(graph.ops)
    members: dict[int, list[int]] = {}
    for position, op in enumerate(graph.ops):
        if isinstance(op, Linear):
            positions = members.setdefault(op.x.index, [position])
            if position not in positions and all(
                written[value.index] < positions[0] for value in reads(op)
            ):
                positions.append(position)
    for first, *rest in members.values():
        if rest:
            group = tuple(op for at in (first, *rest) if isinstance(op := graph.ops[at], Linear))
            for at in rest:
                ops[at] = None
            ops[first] = LinearGroup(group[0].x, group)
    return _with_ops(graph, ops)


def _written_at(graph: Graph) -> dict[int, int]:
    """Value index -> position of the op that writes it."""
    return {value.index: at for at, op in enumerate(graph.ops) for value in writes(op)}


def _with_ops(graph: Graph, ops: Sequence[Op | None]) -> Graph:
    return replace(graph, ops=tuple(op for op in ops if op is not None))


REWRITES: tuple[Rewrite, ...] = (add_into_linear, gate_with_up, group_linears)


def fuse(graph: Graph, rewrites: Sequence[Rewrite] = REWRITES) -> Graph:
    """The graph after each rewrite in turn; no rewrites leave it as it is."""
    for rewrite in rewrites:
        graph = rewrite(graph)
    return graph
