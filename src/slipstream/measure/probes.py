"""What the machine gives: read bandwidth and integer multiply rate, measured beside a figure."""

from __future__ import annotations

from dataclasses import dataclass

_READ_BYTES = 1 << 30
# kernels.md section 1: a pass is bound by the weights it reads and the products it forms.
_GIGA = 1e9


@dataclass(frozen=True)
class MachineProbe:
    """Best of three runs each.

    Attributes:
        read_gb_s: plain read of a 1 GiB buffer by all threads.
        peak_gmac_s: int8 multiply-accumulates of the level's own dot instruction, all threads.
    """

    read_gb_s: float
    peak_gmac_s: float

    def limit_ms(self, rows: int, step_bytes: int, step_weights: int) -> float:
        """max(bytes / bandwidth, rows x weights / peak), in milliseconds."""
        read = step_bytes / (self.read_gb_s * _GIGA)
        multiply = rows * step_weights / (self.peak_gmac_s * _GIGA)
        return 1e3 * max(read, multiply)


def probe(isa: str, threads: int) -> MachineProbe:
    """Measure both with ``threads`` threads; takes about a second."""
    from slipstream import _native

    read = _native.read_bandwidth(_READ_BYTES, threads)
    peak = _native.integer_peak(isa, threads)
    return MachineProbe(read / _GIGA, peak / _GIGA)
