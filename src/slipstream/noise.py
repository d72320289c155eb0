"""Counter-based noise: Philox4x32-10 and the Gumbel variable of a token.

Philox: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Any process that
knows seed, index and token id computes the same value, in any order: drafts cannot disturb it.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)

# u lies in [2^-33, 1 - 2^-33], so g lies in [-3.13, 22.88]
GUMBEL_SPREAD = 26.1


def philox(
    counter: tuple[NDArray[np.uint64], int, int, int], key: tuple[int, int]
) -> tuple[NDArray[np.uint64], ...]:
    """Four 32-bit words per element of the first counter word, each in a uint64.

    Args:
        counter: four words; the first is an array, the others are shared.
        key: two words.
    """
    x0 = counter[0] & LOW
    x1, x2, x3 = (np.full_like(x0, word) for word in counter[1:])
    for step in range(ROUNDS):
        k0, k1 = (np.uint64((key[i] + step * WEYL[i]) & 0xFFFFFFFF) for i in range(2))
        low, high = x0 * MULTIPLIERS[0], x2 * MULTIPLIERS[1]
        x0, x1, x2, x3 = (high >> HALF) ^ x1 ^ k0, high & LOW, (low >> HALF) ^ x3 ^ k1, low & LOW
    return x0, x1, x2, x3


def gumbel(seed: int, index: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """g = -log(-log(u)) per token id, with u = (first Philox word + 1/2) / 2^32.

    Args:
        seed: key, 64 bits.
        index: of the emitted token, 64 bits.
        ids: token ids.
    """
    words = (ids.astype(np.uint64), index & 0xFFFFFFFF, index >> 32, 0)
    first = philox(words, (seed & 0xFFFFFFFF, seed >> 32))[0]
    uniform = (first.astype(np.float64) + 0.5) * 2.0**-32
    return -np.log(-np.log(uniform))


def draw_seed() -> int:
    """A seed for a request that gave none: 32 bits, so that it survives JSON readers."""
    return secrets.randbits(32)
