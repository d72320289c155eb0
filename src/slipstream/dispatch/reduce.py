"""A graph rewrite for draft models: logits of the first token ids only.

The rows of an output head are independent, so the logits that remain keep their bits and the others
cost nothing. Byte-pair and SentencePiece vocabularies number their tokens in order of merging: the
lowest ids are the most frequent tokens of the tokeniser's training text.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from slipstream.dispatch.structure import reads, writes
from slipstream.errors import BackendError
from slipstream.graph import Graph, Linear, Op, Output, Value


def first_logits(graph: Graph, count: int) -> Graph:
    """The graph whose ``logits`` are those of ids 0 .. count-1; itself where it has no more.

    Args:
        graph: not fused.

    Raises:
        BackendError: between head and output stands an op that is not element-wise.
    """
    if count >= graph.vocabulary:
        return graph
    concerned = _after_head(graph)
    ops = tuple(_narrowed(op, concerned, count) for op in graph.ops)
    return replace(graph, ops=ops, vocabulary=count)


def _after_head(graph: Graph) -> frozenset[int]:
    """Values from the head's product to the output."""
    makers = {value.index: op for op in graph.ops for value in writes(op)}
    value = graph.outputs()["logits"]
    found = {value.index}
    while not isinstance(makers[value.index], Linear):
        operands = reads(makers[value.index])
        if len(operands) != 1 or operands[0].width != value.width:
            raise BackendError(
                "an output head followed by element-wise ops only",
                type(makers[value.index]).__name__,
                "Leave out `draft_vocab` for this draft model.",
            )
        value = operands[0]
        found.add(value.index)
    return frozenset(found)


def _narrowed(op: Op, concerned: frozenset[int], count: int) -> Op:
    def narrow(value: Any) -> Any:
        wide = isinstance(value, Value) and value.index in concerned
        return replace(value, width=count) if wide else value

    if not any(value.index in concerned for value in _touched(op)):
        return op
    changed = {field.name: narrow(getattr(op, field.name)) for field in fields(op)}
    if isinstance(op, Linear):
        changed["weight"] = replace(op.weight, rows=count)
        changed["bias"] = None if op.bias is None else replace(op.bias, columns=count)
    return type(op)(**changed)


def _touched(op: Op) -> tuple[Value, ...]:
    return (op.x,) if isinstance(op, Output) else (*reads(op), *writes(op))
