"""The CPU backend: a graph becomes one native program, one call of which runs a whole step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Outputs, Step, Weights
from slipstream.errors import BackendError, OptionError, OutOfMemoryError, RequestError
from slipstream.gguf import GGUFFile
from slipstream.graph import Embed, Graph, Op
from slipstream.machine import default_threads
from slipstream.memory.attention import AttentionMemory
from slipstream.memory.base import Memory

try:
    from slipstream import _native
except ImportError as _error:
    raise BackendError(
        "the native core, slipstream._native",
        str(_error),
        "Install a wheel for this platform, or build the project from its source.",
    ) from _error

from slipstream.backends._cpu_compile import Compiler
from slipstream.backends._cpu_weights import CpuWeights, Loader, Progress

Floats = NDArray[np.float32]


class CpuBackend:
    """Native kernels on the processor's cores.

    Args:
        isa: instruction-set level; None = ``SLIPSTREAM_ISA`` or the fastest of this processor.
        threads: worker threads, the calling one included; None = one per physical core.

    Attributes:
        isa, threads: the ones in use.

    Raises:
        OptionError: there is no such level here, or the number of threads is out of range.
    """

    name = "cpu"
    row_invariant: Mapping[str, bool] = {kind.__name__: True for kind in get_args(Op)}

    def __init__(self, isa: str | None = None, threads: int | None = None) -> None:
        try:
            self.isa = _native.resolve_isa(isa or "")
            self._pool = _native.Pool(default_threads() if threads is None else threads)
        except (ValueError, TypeError) as error:
            raise OptionError(
                f"a number of threads and one of the levels {', '.join(_native.isa_levels())}",
                str(error),
                "Change --threads, --isa or SLIPSTREAM_ISA, or leave them out.",
            ) from error
        self.threads = self._pool.threads

    def load(self, file: GGUFFile, graph: Graph, progress: Progress | None = None) -> CpuWeights:
        """Repack every matrix of the graph and give the source pages back as it goes.

        Args:
            progress: called with (bytes done, bytes in all) after every tensor.

        Raises:
            ModelFileError: a scale is NaN or infinite.
            UnsupportedError: a tensor's type is not run.
            OutOfMemoryError: the weights do not fit.
        """
        return Loader(file, graph, self._pool, self.isa, progress).load()

    def compile(self, graph: Graph, weights: Weights, memory: Memory) -> CpuProgram:
        """Bind a graph to weights and a memory.

        Raises:
            BackendError: the weights are another backend's, the memory is not paged attention, or
                either belongs to another graph.
        """
        if not isinstance(weights, CpuWeights) or not isinstance(memory, AttentionMemory):
            raise BackendError(
                "weights that the CPU backend loaded, and an attention memory",
                f"{type(weights).__name__} and {type(memory).__name__}",
                "Load the weights with the backend that compiles the graph.",
            )
        compiler = Compiler(weights, memory, self.isa)
        return CpuProgram(graph, memory, compiler.compile(graph, self._pool), compiler)


class CpuProgram:
    """A graph bound to weights and a memory.

    Attributes:
        workspace_bytes: memory for the values of a step; grows with the largest step seen.
    """

    def __init__(
        self, graph: Graph, memory: AttentionMemory, program: _native.Program, compiler: Compiler
    ) -> None:
        self.graph = graph
        self.memory: Memory = memory
        self._program = program
        self._inputs = compiler.inputs
        self._outputs = compiler.outputs
        self._vocabulary = min(
            (op.weight.rows for op in graph.ops if isinstance(op, Embed)), default=0
        )

    def run(self, step: Step) -> Outputs:
        """Compute all rows; keys and values are written, nothing is committed.

        Raises:
            RequestError: a token id is outside the vocabulary.
            ValueError: the step asks for an output or lacks an input of the graph, or its arrays
                do not fit each other.
            TypeError: an array is of another type or not contiguous.
            OutOfMemoryError: no page is free, or the workspace does not fit.
        """
        started = time.perf_counter()
        self._check_tokens(step.tokens)
        vectors = self._vectors(step)
        outputs = self._allocate(step)
        layout = self.memory.layout(step.sequences, step.parents)
        try:
            self._program.run(
                step.tokens,
                layout.positions,
                layout.slots,
                layout.table,
                layout.identity,
                layout.tail_start,
                layout.tail_count,
                layout.tail,
                layout.tables,
                step.logit_rows,
                vectors,
                list(outputs.values()),
            )
        except MemoryError as error:
            raise OutOfMemoryError(
                f"a workspace for {len(step.sequences)} rows",
                "not enough memory",
                "Close other programs or lower the number of rows per step.",
            ) from error
        wanted = {name: array for name, array in outputs.items() if array is not None}
        return Outputs(wanted.pop("logits"), wanted, time.perf_counter() - started)

    def observed(self) -> Mapping[str, int]:
        """Kernel path, such as ``matmul/q4_k/avx2/rows_2_8`` -> sub-batches that took it."""
        return self._program.counts()

    @property
    def workspace_bytes(self) -> int:
        return self._program.workspace_bytes

    def _check_tokens(self, tokens: NDArray[np.int32] | None) -> None:
        if tokens is None or self._vocabulary == 0 or len(tokens) == 0:
            return
        smallest, largest = int(tokens.min()), int(tokens.max())
        if smallest < 0 or largest >= self._vocabulary:
            raise RequestError(
                f"token ids from 0 to {self._vocabulary - 1}",
                f"ids from {smallest} to {largest}",
                "Tokenise the text with this model's own tokenizer.",
            )

    def _vectors(self, step: Step) -> list[Floats]:
        missing = [name for name in self._inputs if name not in step.vectors]
        if missing:
            raise ValueError(f"the step lacks the input {missing[0]!r}")
        return [step.vectors[name] for name in self._inputs]

    def _allocate(self, step: Step) -> dict[str, Floats | None]:
        """An array for every output of the graph that the step wants, in order."""
        unknown = step.hidden - set(self._outputs)
        if unknown:
            raise ValueError(f"no output is named {min(unknown)!r}")
        counts = {"all": len(step.sequences), "logits": len(step.logit_rows)}
        return {
            name: np.empty((counts[value.row_set], value.width), np.float32)
            if name == "logits" or name in step.hidden
            else None
            for name, value in self._outputs.items()
        }
