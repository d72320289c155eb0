"""Architectures: one module each, named as in ``general.architecture``, that builds the graph.

A module takes part by being here: it has ``build(file, graph, shape)``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Protocol, cast

from slipstream.errors import UnsupportedError
from slipstream.gguf import GGUFFile
from slipstream.graph import Graph, GraphBuilder, Weight
from slipstream.models.base import ModelShape, read_shape
from slipstream.quants import quant_type

__all__ = ["build_graph", "supported_architectures"]

NOT_ARCHITECTURES = frozenset({"base", "rope"})
NAMES_SHOWN = 4


class Architecture(Protocol):
    def build(self, file: GGUFFile, graph: GraphBuilder, shape: ModelShape) -> None:
        """Append the ops of one step; outputs ``logits``, ``final_norm``, ``layer_input.<i>``."""


def supported_architectures() -> tuple[str, ...]:
    """The values of ``general.architecture`` that can be run."""
    names = {module.name for module in pkgutil.iter_modules(__path__)}
    return tuple(sorted(names - NOT_ARCHITECTURES))


def build_graph(file: GGUFFile) -> Graph:
    """The graph of one step of the model in ``file``.

    Raises:
        UnsupportedError: the architecture, a tensor, a tensor type or a feature is not run.
        ModelFileError: metadata or tensors are missing or contradict each other.
    """
    architecture = file.get_string("general.architecture")
    module = _architecture(architecture)
    shape = read_shape(file)
    tensors = _TensorTable(file)
    builder = GraphBuilder(tensors)
    module.build(file, builder, shape)
    tensors.check_all_used()
    graph = Graph(tuple(builder.ops), architecture, shape.width, 0, shape.context)
    vocabulary = graph.outputs()["logits"].width
    return Graph(graph.ops, architecture, shape.width, vocabulary, shape.context)


def _architecture(name: str) -> Architecture:
    if name not in supported_architectures():
        raise UnsupportedError(
            expected=f"an architecture among {', '.join(supported_architectures())}",
            found=f"{name[:64]!r}",
            remedy="Use a model of one of these architectures.",
        )
    return cast(Architecture, importlib.import_module(f"{__name__}.{name}"))


class _TensorTable(Mapping[str, Weight]):
    """The tensors of a file as weights; remembers which were taken."""

    def __init__(self, file: GGUFFile) -> None:
        self._tensors = file.tensors
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> Weight:
        info = self._tensors[name]
        columns, *rest = info.shape
        while rest and rest[-1] == 1:
            rest.pop()
        if len(rest) > 1:
            raise UnsupportedError(
                expected=f"tensor {name!r} to be a vector or a matrix",
                found=f"{len(info.shape)} dimensions, {list(info.shape)}",
                remedy="Mixture-of-experts and convolution tensors are not run.",
            )
        quant_type(info.type_id, name)
        self._used.add(name)
        return Weight(name, info.type_id, rest[0] if rest else 1, columns)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def check_all_used(self) -> None:
        """Refuse a file with tensors that the graph leaves out: they change the computation."""
        unused = [name for name in self._tensors if name not in self._used]
        if unused:
            more = f" and {len(unused) - NAMES_SHOWN} more" if len(unused) > NAMES_SHOWN else ""
            raise UnsupportedError(
                expected="only tensors that the architecture's graph uses",
                found=", ".join(map(ascii, unused[:NAMES_SHOWN])) + more,
                remedy="The file needs a feature that Slipstream does not run.",
            )
