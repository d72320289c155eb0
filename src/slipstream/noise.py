"""Counter-based noise: Philox4x32-10, the Gumbel variable of a token, and uniform numbers.

Philox: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Any process that
knows seed, index and token id computes the same value, in any order: drafts cannot disturb it.
Uses of one index that must be independent of each other take different streams.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_FIRST, _SECOND = map(int, MULTIPLIERS)
WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF
LOW = np.uint64(MASK)
HALF = np.uint64(32)

# The top byte of the 64-bit index names the stream: no output is long enough to reach it, and
# whatever takes an index can draw in any stream.
STREAM_SHIFT = 56
TOKENS = 0  # plain sampling and matching
ACCEPTANCE = 1  # uniform numbers of rejection sampling
REMAINDER = 2  # draws of rejection sampling: what is left after the rejected candidates
PRETENCE = 3  # uniform numbers of synthetic acceptance

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
        index: of the emitted token, 64 bits, perhaps in a stream.
        ids: token ids.
    """
    words = (ids.astype(np.uint64), index & MASK, index >> 32, 0)
    first = philox(words, (seed & MASK, seed >> 32))[0]
    u = (first.astype(np.float64) + 0.5) * 2.0**-32
    return -np.log(-np.log(u))


def in_stream(index: int, stream: int) -> int:
    """The index by which a stream draws for an emitted token.

    Args:
        index: of the emitted token, below 2^56.
        stream: below 256.
    """
    return index | stream << STREAM_SHIFT


def uniform(seed: int, index: int, number: int = 0) -> float:
    """A number in [0, 1) from the first 53 bits of Philox's block.

    Args:
        seed: key, 64 bits.
        index: of the emitted token, perhaps in a stream.
        number: of the draw at this index, 32 bits.
    """
    counter = (number, index & MASK, index >> 32, 0)
    high, low = _first_words(counter, (seed & MASK, seed >> 32))
    return (high << 21 | low >> 11) * 2.0**-53


def _first_words(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int]:
    """The first two words of ``philox``: for one block, plain integers beat arrays 10 times."""
    (x0, x1, x2, x3), (k0, k1) = counter, key
    for _ in range(ROUNDS):
        low, high = x0 * _FIRST, x2 * _SECOND
        x0, x1, x2, x3 = (high >> 32) ^ x1 ^ k0, high & MASK, (low >> 32) ^ x3 ^ k1, low & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return x0, x1


def draw_seed() -> int:
    """A seed for a request that gave none: 32 bits, so that it survives JSON readers."""
    return secrets.randbits(32)
