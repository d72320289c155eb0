"""The CPU backend: a graph becomes one native program, one call of which runs a whole step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Outputs, Step, Weights
from slipstream.dispatch.select import Plan, resolve_level, select
from slipstream.errors import BackendError, OptionError, OutOfMemoryError, RequestError
from slipstream.gguf import GGUFFile
from slipstream.graph import (
    Add,
    Attention,
    Embed,
    Gated,
    GatedLinear,
    Gather,
    Graph,
    Input,
    Linear,
    LinearGroup,
    Output,
    RmsNorm,
    Rope,
    Scale,
    Softcap,
)
from slipstream.machine import default_threads
from slipstream.memory.attention import AttentionMemory
from slipstream.memory.base import Memory
from slipstream.options import Precision
from slipstream.quants import QUANT_TYPES

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

ROW_INVARIANT: Final[tuple[type, ...]] = (
    Embed,
    Input,
    RmsNorm,
    Linear,
    LinearGroup,
    GatedLinear,
    Gated,
    Rope,
    Attention,
    Add,
    Scale,
    Softcap,
    Gather,
    Output,
)
"""Op kinds whose rows are compared bit by bit in tests/laws; a kind is added with its test."""


def native_types() -> frozenset[int]:
    """GGML ids that this build has kernels for."""
    return frozenset(type_id for type_id in QUANT_TYPES if _native.has_kernels(type_id))


def cpu_level(asked: str | None) -> tuple[str, str]:
    """The instruction-set level that runs, and why (``dispatch.select.resolve_level``)."""
    return resolve_level(asked, _native.isa_levels(), _verify)


def _verify(isa: str) -> str | None:
    from slipstream.backends.self_check import self_check

    return self_check(isa, against="portable")


class CpuBackend:
    """Native kernels on the processor's cores.

    Args:
        isa: instruction-set level; None = ``SLIPSTREAM_ISA`` or the best one that is backed.
        threads: worker threads, the calling one included; None = one per physical core.
        precision: of the activations that quantised weights meet.

    Attributes:
        isa, threads, precision: the ones in use.
        isa_reason: why that level.

    Raises:
        OptionError: there is no such level here, or the number of threads is out of range.
    """

    name = "cpu"
    row_invariant: Mapping[str, bool] = {kind.__name__: True for kind in ROW_INVARIANT}

    def __init__(
        self, isa: str | None = None, threads: int | None = None, precision: Precision = "a8"
    ) -> None:
        self.precision: Precision = precision
        self.isa, self.isa_reason = cpu_level(isa)
        try:
            self._pool = _native.Pool(default_threads() if threads is None else threads)
        except (ValueError, TypeError) as error:
            raise OptionError(
                "a number of threads that the native pool takes",
                str(error),
                "Change --threads or leave it out.",
            ) from error
        self.threads = self._pool.threads

    def load(
        self,
        file: GGUFFile,
        graph: Graph,
        progress: Progress | None = None,
        plan: Plan | None = None,
    ) -> CpuWeights:
        """Repack every matrix of the graph and give the source pages back as it goes.

        Args:
            progress: called with (bytes done, bytes in all) after every tensor.
            plan: which kernels run, so which layouts are loaded; None = the one of ``select``.

        Raises:
            ModelFileError: a scale is NaN or infinite.
            UnsupportedError: a tensor's type is not run.
            OutOfMemoryError: the weights do not fit.
            BackendError: the plan is of another precision.
        """
        plan = plan or self.plan(graph)
        if plan.precision != self.precision:
            raise BackendError(
                f"a plan at {self.precision}, the backend's precision",
                f"one at {plan.precision}",
                "Give the plan and the backend the same precision.",
            )
        plan.require_complete()
        return Loader(file, graph, self._pool, plan, progress).load()

    def plan(self, graph: Graph) -> Plan:
        """What ``load`` chooses."""
        return select(graph, self.isa, native_types(), precision=self.precision)

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
        program = compiler.compile(graph, self._pool)
        plan = weights.plan.with_memory(memory.kv_type)
        return CpuProgram(graph, memory, program, compiler, plan)


class CpuProgram:
    """A graph bound to weights and a memory.

    Attributes:
        plan: the kernels that its weights were loaded for, and those of its memory.
        workspace_bytes: memory for the values of a step; grows with the largest step seen.
    """

    def __init__(
        self,
        graph: Graph,
        memory: AttentionMemory,
        program: _native.Program,
        compiler: Compiler,
        plan: Plan,
    ) -> None:
        self.graph = graph
        self.plan = plan
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
        except RuntimeError as error:
            raise BackendError(
                "a program run by the process that loaded it",
                str(error),
                "Load the model after forking, or start a new process.",
            ) from error
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

    def profile(self, on: bool) -> None:
        """Time every phase of a step from now on, or stop doing so."""
        self._program.profile(on)

    def phase_seconds(self) -> list[float]:
        """Wall seconds of each of ``phases`` in the last step; only while profiled."""
        return self._program.phase_seconds()

    def phases(self) -> list[tuple[str, list[str], list[tuple[int, int, int]]]]:
        """Kind, kernel paths and matrices (type, rows, columns) of each phase of a step."""
        return self._program.phases()

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
