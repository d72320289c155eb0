"""The native core: kernels, thread pool and program executor.

Every function raises ValueError for a value or shape that does not fit, TypeError for an array of
another type or layout, and MemoryError when memory does not suffice.
"""

import enum
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

version: str

def isa_levels() -> list[str]:
    """Instruction-set levels of this build that this processor runs, slowest first."""

def argmax(row: NDArray[np.float32], isa: str) -> int:
    """Index of the largest of float32 ``[n]``; ties go to the lowest."""

def log_sum_exp(row: NDArray[np.float32], isa: str) -> float: ...
def sample(
    row: NDArray[np.float32],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    index: int,
    isa: str,
) -> int:
    """argmax of logit / temperature + Gumbel(seed, index, id) over the filtered candidates."""

def read_bandwidth(bytes: int, threads: int, rounds: int = 3, streams: int = 1) -> float:
    """Bytes per second read from a buffer of ``bytes``, the best of ``rounds``.

    Each thread reads ``streams`` (1, 2, 4, 8 or 16) distant places in turn.
    """

def multiply_mixes() -> list[str]:
    """``unsigned_int8``, ``signed_int8``, ``float32``: what ``multiply_peak`` measures."""

def multiply_peak(isa: str, mix: str, threads: int) -> float:
    """Multiply-accumulates per second in registers, by the instructions of the level's kernels."""

def has_kernels(type_id: int) -> bool:
    """Whether there are native kernels for a GGML type."""

def matrix_bytes(type_id: int, rows: int, columns: int) -> int:
    """Bytes that ``pack`` takes from an arena."""

class Pool:
    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...

class Arena:
    """Address space for repacked matrices."""

    def __init__(self, bytes: int) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def address(self) -> int: ...

class Matrix:
    """A matrix repacked into strips of 16 rows."""

    @property
    def type_id(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def bytes(self) -> int: ...

class SourceRows:
    """Rows in the layout of the file: ``data`` is uint8 ``[rows * bytes of a row]``, kept alive.

    ``mapped``: it is a read-only map of a file, whose pages may be dropped after they were read.
    """

    def __init__(
        self,
        type_id: int,
        data: NDArray[np.uint8],
        rows: int,
        columns: int,
        mapped: bool = False,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...

Fields = Sequence[tuple[int, int, int]]
"""(offset, bytes, exponent bits) of each floating-point field of a block."""

def finite_scales(pool: Pool, source: SourceRows, fields: Fields) -> bool: ...
def pack(pool: Pool, arena: Arena, source: SourceRows, fields: Fields, isa: str) -> Matrix | None:
    """Repack; None when a scale is not finite."""

def pack_pair(
    pool: Pool,
    arena: Arena,
    first: SourceRows,
    first_fields: Fields,
    second: SourceRows,
    second_fields: Fields,
    isa: str,
) -> tuple[Matrix | None, Matrix | None]:
    """Repack two matrices of one shape with alternating strips; None as in ``pack``."""

class Activation(enum.Enum):
    silu = 0
    gelu_tanh = 1

class KvType(enum.Enum):
    f16 = 0
    q8_0 = 1

Member = tuple[int, Matrix, NDArray[np.float32] | None, int | None]
"""(out, weight, bias, residual value)."""

class ProgramBuilder:
    """One method per op of ``slipstream.graph``, in execution order; values are numbers.

    ``precision`` is ``a8`` or ``a16``, for every product of the program.
    """

    def __init__(self, isa: str, precision: str = "a8") -> None: ...
    def value(self, width: int, all_rows: bool) -> int: ...
    def group(self, keys: NDArray[np.uint16], values: NDArray[np.uint16], kv_type: KvType) -> None:
        """A layer group: ``[layers, pages, kv_heads, 64, row_halves]``, kept alive."""

    def embed_packed(self, out: int, matrix: Matrix, scale: float) -> None: ...
    def embed_source(self, out: int, source: SourceRows, scale: float) -> None: ...
    def input(self, out: int, name: str) -> None: ...
    def rms_norm(
        self,
        out: int,
        x: int,
        weight: NDArray[np.float32] | None,
        epsilon: float,
        group_width: int,
    ) -> None: ...
    def linear_group(self, x: int, members: Sequence[Member]) -> None: ...
    def gated_linear(
        self, out: int, x: int, gate: Matrix, up: Matrix, activation: Activation
    ) -> None: ...
    def rope(
        self,
        out: int,
        x: int,
        heads: int,
        head_dim: int,
        neox: bool,
        rotary_width: int,
        frequencies: Sequence[float],
        magnitude: float,
    ) -> None: ...
    def attention(
        self,
        out: int,
        query: int,
        key: int,
        value: int,
        group: int,
        layer: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        window: int,
    ) -> None:
        """``layer`` counts within the group; a ``window`` of 0 means none."""

    def add(self, out: int, a: int, b: int) -> None: ...
    def scale(self, out: int, x: int, factor: float) -> None: ...
    def softcap(self, out: int, x: int, cap: float) -> None: ...
    def gated(self, out: int, gate: int, up: int, activation: Activation) -> None: ...
    def gather(self, out: int, x: int) -> None: ...
    def output(self, name: str, x: int) -> None: ...

class Program:
    """Takes the builder's program; the builder cannot be used afterwards."""

    def __init__(self, pool: Pool, builder: ProgramBuilder) -> None: ...
    def run(
        self,
        tokens: NDArray[np.int32] | None,
        positions: NDArray[np.int32],
        slots: NDArray[np.int32],
        table: NDArray[np.int32],
        identity: NDArray[np.int32],
        tail_start: NDArray[np.int32],
        tail_count: NDArray[np.int32],
        tail: NDArray[np.int32],
        tables: Sequence[NDArray[np.int32]],
        logit_rows: NDArray[np.int32],
        vectors: Sequence[NDArray[np.float32]],
        outputs: Sequence[NDArray[np.float32] | None],
    ) -> None:
        """One step (``backends.base.Step``, ``memory.base.KeyLayout``).

        ``vectors`` and ``outputs`` follow the builder's calls of ``input`` and ``output``; an
        output of None is not computed. Nothing is written when this raises ValueError.
        """

    def counts(self) -> dict[str, int]:
        """Kernel path with row class -> sub-batches of rows in which it ran."""

    @property
    def workspace_bytes(self) -> int: ...
    def profile(self, on: bool) -> None:
        """Time every phase from the next run on, or stop doing so."""

    def phase_seconds(self) -> list[float]:
        """Wall time of each phase of the last run, with its barrier. Raises ValueError when off."""

    def phases(self) -> list[tuple[str, list[str], list[tuple[int, int, int]]]]:
        """Per phase: its kind; kernel paths; (type, rows, columns) of its matrices."""
