"""Rotary position embedding: frequencies for plain, linear, YaRN and llama3 scaling.

Sources: rotation by ``base ** (-2i / width)`` per pair, Su et al. 2021 (arXiv:2104.09864) section
3.2.2; linear interpolation, Chen et al. 2023 (arXiv:2306.15595) section 3.1; YaRN, Peng et al. 2023
(arXiv:2309.00071) sections 3.2 and 3.4, with the ramp over pair indices as in the authors' code.
llama3 scaling arrives as divisors that the converter wrote to ``rope_freqs.weight``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import ModelFileError, UnsupportedError
from slipstream.gguf import GGUFFile
from slipstream.graph import GraphBuilder, RopeKind, RopeTable
from slipstream.models.base import ModelShape, key, positive_float, weight_data
from slipstream.quants import quant_type

DEFAULT_BASE: Final = 10000.0
YARN_BETA_FAST: Final = 32.0
YARN_BETA_SLOW: Final = 1.0
KINDS: Final = ("none", "linear", "yarn")
MOST_FREQUENCY: Final = 64.0
"""Radians per position; no model turns that fast, and kernels are exact up to 2^30 radians."""
YARN_REFUSED: Final = {
    "rope.scaling.yarn_log_multiplier": 0.0,
    "rope.scaling.yarn_attn_factor": 1.0,
}
"""Keys of YaRN variants that are not run, with the value that leaves YaRN as it is."""


@dataclass(frozen=True)
class Scaling:
    """``rope.scaling.*`` of a file.

    Attributes:
        factor: context extension; frequencies are divided by it.
        magnitude: factor on cosine and sine.
        extrapolation: share of YaRN's ramp that applies; 0 = plain interpolation, unscaled
            magnitude.
        original_context: positions before the extension.
        beta_fast, beta_slow: rotations within the original context above which a pair is left
            alone, and below which it is interpolated.
    """

    factor: float = 1.0
    magnitude: float = 1.0
    extrapolation: float = 0.0
    original_context: int = 0
    beta_fast: float = YARN_BETA_FAST
    beta_slow: float = YARN_BETA_SLOW


UNSCALED: Final = Scaling()


def read_scaling(file: GGUFFile, shape: ModelShape) -> Scaling:
    """The scaling a file asks for; ``linear`` when it names none, as in llama.cpp.

    Raises:
        UnsupportedError: another scaling type, or a YaRN variant of another architecture.
        ModelFileError: a value is out of range.
    """
    kind = file.get_string(key(file, "rope.scaling.type"), "linear")
    if kind not in KINDS:
        raise UnsupportedError(
            expected=f"RoPE scaling among {', '.join(KINDS)}",
            found=f"{key(file, 'rope.scaling.type')} = {kind[:64]!r}",
            remedy="Use a conversion of the model with one of these.",
        )
    magnitude = attention_factor(file)
    if kind == "none":
        return Scaling(magnitude=magnitude)
    factor = _factor(file)
    return Scaling(factor, magnitude) if kind == "linear" else _yarn(file, shape, factor, magnitude)


def attention_factor(file: GGUFFile) -> float:
    """Factor on cosine and sine in every layer, whatever its scaling."""
    return positive_float(file, "rope.scaling.attn_factor", 1.0)


def _factor(file: GGUFFile) -> float:
    """``rope.scaling.factor``, or its older name; 0 means unscaled."""
    legacy = file.get_float(key(file, "rope.scale_linear"), 0.0)
    factor = file.get_float(key(file, "rope.scaling.factor"), legacy)
    if factor < 0:
        raise _out_of_range(file, "rope.scaling.factor", factor)
    return factor or 1.0


def _yarn(file: GGUFFile, shape: ModelShape, factor: float, magnitude: float) -> Scaling:
    for name, plain in YARN_REFUSED.items():
        if file.get_float(key(file, name), plain) != plain:
            raise UnsupportedError(
                expected=f"YaRN with {key(file, name)} absent or {plain}",
                found=f"{file.metadata[key(file, name)]}",
                remedy="This variant of YaRN belongs to other architectures.",
            )
    original = file.get_int(key(file, "rope.scaling.original_context_length"), shape.context)
    if original <= 0:
        raise _out_of_range(file, "rope.scaling.original_context_length", original)
    extrapolation = file.get_float(key(file, "rope.scaling.yarn_ext_factor"), 1.0)
    if extrapolation:
        magnitude *= yarn_magnitude(factor)
    return Scaling(
        factor,
        magnitude,
        extrapolation,
        original,
        positive_float(file, "rope.scaling.yarn_beta_fast", YARN_BETA_FAST),
        positive_float(file, "rope.scaling.yarn_beta_slow", YARN_BETA_SLOW),
    )


def _out_of_range(file: GGUFFile, name: str, value: float) -> ModelFileError:
    return ModelFileError(
        f"metadata key {key(file, name)!r} to be above 0",
        f"{value}",
        "The file's metadata is wrong; convert it again.",
    )


def yarn_magnitude(factor: float) -> float:
    """0.1 ln(factor) + 1 on queries and on keys (YaRN equation 22)."""
    return 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0


def rope_base(file: GGUFFile) -> float:
    """``rope.freq_base`` of a file."""
    return positive_float(file, "rope.freq_base", DEFAULT_BASE)


def rope_divisors(
    file: GGUFFile, graph: GraphBuilder, shape: ModelShape
) -> NDArray[np.float64] | None:
    """llama3's divisor of each pair's frequency, float64 ``[rotary_width / 2]``, if present.

    Raises:
        ModelFileError: a divisor is not finite and positive.
    """
    weight = graph.optional("rope_freqs.weight", columns=shape.rotary_width // 2)
    if weight is None:
        return None
    kind = quant_type(weight.type_id, weight.name)
    stored = kind.dequantize_rows(weight_data(file, weight), 1, weight.columns)[0]
    divisors: NDArray[np.float64] = stored.astype(np.float64)
    refused = divisors[~(np.isfinite(divisors) & (divisors > 0))]
    if len(refused):
        raise ModelFileError(
            "finite positive divisors in 'rope_freqs.weight'",
            f"{refused[0]}",
            "The file is damaged; fetch it again.",
        )
    return divisors


def rope_table(
    kind: RopeKind,
    rotary_width: int,
    base: float,
    scaling: Scaling = UNSCALED,
    divisors: NDArray[np.float64] | None = None,
) -> RopeTable:
    """The table of a scaling, computed in float64.

    Raises:
        ModelFileError: a frequency is not a number or above ``MOST_FREQUENCY``.
    """
    pairs = np.arange(rotary_width // 2, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        plain = base ** (-2.0 * pairs / rotary_width)
        if divisors is not None:
            plain = plain / divisors
        kept = scaling.extrapolation * _kept_share(pairs, rotary_width, base, scaling)
        mixed = plain / scaling.factor * (1.0 - kept) + plain * kept
    refused = mixed[~(np.abs(mixed) <= MOST_FREQUENCY)]
    if len(refused):
        raise ModelFileError(
            f"RoPE frequencies of at most {MOST_FREQUENCY:g} radians per position",
            f"{refused[0]:g}",
            "The base, scaling or divisors in the file are wrong; convert it again.",
        )
    frequencies = tuple(float(frequency) for frequency in mixed)
    return RopeTable(kind, rotary_width, frequencies, scaling.magnitude)


def _kept_share(
    pairs: NDArray[np.float64], rotary_width: int, base: float, scaling: Scaling
) -> NDArray[np.float64]:
    """YaRN's ramp over pairs: 1 = frequency left alone, 0 = interpolated."""
    if not scaling.extrapolation or base == 1.0:
        return np.zeros_like(pairs)

    def pair_with(rotations: float) -> float:
        """The pair that turns ``rotations`` times within the original context."""
        ratio = scaling.original_context / (rotations * 2.0 * math.pi)
        ratio = min(max(ratio, sys.float_info.min), sys.float_info.max)
        return rotary_width * math.log(ratio) / (2.0 * math.log(base))

    low = max(0.0, math.floor(pair_with(scaling.beta_fast)))
    high = min(rotary_width - 1.0, math.ceil(pair_with(scaling.beta_slow)))
    ramp = (pairs - low) / max(0.001, high - low)
    return 1.0 - np.clip(ramp, 0.0, 1.0)
