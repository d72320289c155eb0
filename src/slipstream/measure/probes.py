"""What the machine gives: read bandwidth and multiply rates, measured beside a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.dispatch.structure import activation_planes, matrices
from slipstream.graph import Graph, Weight
from slipstream.quants import type_name

_READ_BYTES = 1 << 29
_STREAMS = (1, 8)
_GIGA = 1e9
_FLOAT_TYPES = frozenset({"f32", "f16", "bf16"})
# Their values need all eight bits of a signed byte; other codes are unsigned and at most six bits.
_SIGNED_TYPES = frozenset({"q8_0", "iq4_nl", "iq4_xs"})


def multiply_mix(type_id: int) -> str:
    """Which instructions multiply weights of a type: a name of ``_native.multiply_mixes``."""
    name = type_name(type_id)
    if name in _FLOAT_TYPES:
        return "float32"
    return "signed_int8" if name in _SIGNED_TYPES else "unsigned_int8"


def mix_weights(
    graph: Graph, stored: Mapping[Weight, int], precision: str = "a8"
) -> dict[str, int]:
    """Weights that one row of a step is multiplied by, per mix; twice those that meet two planes.

    Args:
        stored: GGML id in memory of a matrix; one that it lacks is stored as in the file.
    """
    counts: Counter[str] = Counter()
    for op in graph.ops:
        for weight in matrices(op):
            type_id = stored.get(weight, weight.type_id)
            planes = activation_planes(type_id, precision)
            counts[multiply_mix(type_id)] += weight.rows * weight.columns * planes
    return dict(counts)


@dataclass(frozen=True)
class MachineProbe:
    """The best of several runs each, all threads.

    Attributes:
        isa: the level whose instructions multiplied.
        read_gb_s: read of a huge-page buffer far larger than the caches, the better of the
            numbers of streams.
        streams_gb_s: the same per number of streams of a thread.
        peak_gmac_s: mix -> multiply-accumulates per second in registers, without loads.
    """

    isa: str
    read_gb_s: float
    streams_gb_s: Mapping[int, float]
    peak_gmac_s: Mapping[str, float]

    def limit_ms(self, rows: int, step_bytes: int, weights: Mapping[str, int]) -> float:
        """max(bytes / bandwidth, sum of rows x weights / peak), milliseconds (kernels.md 1).

        Args:
            weights: mix -> weights that a row is multiplied by.
        """
        read = step_bytes / (self.read_gb_s * _GIGA)
        multiply = sum(rows * n / (self.peak_gmac_s[mix] * _GIGA) for mix, n in weights.items())
        return 1e3 * max(read, multiply)

    def better(self, other: MachineProbe) -> MachineProbe:
        """The better of both in each respect: a limit is the best that was seen."""
        streams = {n: max(v, other.streams_gb_s[n]) for n, v in self.streams_gb_s.items()}
        peaks = {mix: max(v, other.peak_gmac_s[mix]) for mix, v in self.peak_gmac_s.items()}
        return MachineProbe(self.isa, max(streams.values()), streams, peaks)


def probe(isa: str, threads: int) -> MachineProbe:
    """Measure with ``threads`` threads; takes about a second.

    Raises:
        ValueError: there is no such level here, or no such number of threads.
    """
    from slipstream import _native

    streams = {n: _native.read_bandwidth(_READ_BYTES, threads, 3, n) / _GIGA for n in _STREAMS}
    peaks = {
        mix: _native.multiply_peak(isa, mix, threads) / _GIGA for mix in _native.multiply_mixes()
    }
    return MachineProbe(isa, max(streams.values()), streams, peaks)
