"""How often a continuation comes true, by how it was found: learned while it is used.

A bucket is (kind of match, class of its length, class of its count). Its estimate is

    a = (hits + S p) / (tries + S),      p / (1 - p) = (m / C)^E

with m the length of the match, S = ``PRIOR_STRENGTH``, C = ``HALF_LENGTH``, E = ``EXPONENT``.
``tries`` sums the shares that were claimed and ``hits`` counts the claims that came true; both
decay by ``DECAY`` per observation, so about 1 / (1 - DECAY) of them count. Several occurrences that
agree multiply the prior odds by ``COUNT_ODDS``. The prior is fitted by eye to some 1,900 claims on
outputs of qwen2.5-coder-0.5b (2026-11-30): 2 tokens 0.5, 4 0.7, 8 0.85, 16 0.9, 32 0.95, 64 1.
"""

from __future__ import annotations

from slipstream.drafters.suffix_index import MATCH_MAX

OWN, SCOPE, COPY, RESUMED = KINDS = range(4)
"""Elsewhere in the same sequence; in a text of its scope; at a copy pointer; behind a departure."""

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 11, 16, 24, 32, 48, 64)  # first length of each class but the lowest
COUNTS = (2, 4)
HALF_LENGTH, EXPONENT = 2.5, 1.5
COUNT_ODDS = (1.0, 1.25, 1.5)
PRIOR_STRENGTH = 6.0
DECAY = 0.98
LEAST, MOST = 0.01, 0.99

LENGTH_CLASSES = tuple(sum(m >= first for first in LENGTHS) for m in range(MATCH_MAX + 1))
COUNT_CLASSES = len(COUNTS) + 1


def bucket_of(kind: int, length: int, count: int) -> int:
    """
    Args:
        length: of the longest match, in tokens.
        count: occurrences that agree.
    """
    count_class = 0 if count < COUNTS[0] else 1 if count < COUNTS[1] else 2
    length_class = LENGTH_CLASSES[length if length < MATCH_MAX else MATCH_MAX]
    return (kind * (len(LENGTHS) + 1) + length_class) * COUNT_CLASSES + count_class


BUCKETS = bucket_of(RESUMED, MATCH_MAX, COUNTS[-1]) + 1
SINGLE = tuple(
    tuple(bucket_of(kind, length, 1) for length in range(MATCH_MAX + 1)) for kind in KINDS
)
"""Kind -> length -> bucket of one occurrence."""


def _prior(bucket: int) -> float:
    kind_and_length, count_class = divmod(bucket, COUNT_CLASSES)
    length_class = kind_and_length % (len(LENGTHS) + 1)
    length = LENGTHS[length_class - 1] if length_class else 0
    odds: float = COUNT_ODDS[count_class] * (length / HALF_LENGTH) ** EXPONENT
    return odds / (1.0 + odds)


PRIORS = tuple(min(max(_prior(bucket), LEAST), MOST) for bucket in range(BUCKETS))


class Calibration:
    """
    Attributes:
        estimates: bucket -> probability that its continuation comes true.
        odds: the same as p / (1 - p), the weight of an occurrence beside others.
    """

    def __init__(self) -> None:
        self._hits = [0.0] * BUCKETS
        self._tries = [0.0] * BUCKETS
        self.estimates = list(PRIORS)
        self.odds = [prior / (1.0 - prior) for prior in PRIORS]

    def learn(self, bucket: int, share: float, *, hit: bool) -> None:
        """
        Args:
            share: of the occurrences at a node, by weight, that agreed on the claim.
            hit: whether the claim came true.
        """
        tries = self._tries[bucket] = self._tries[bucket] * DECAY + share
        hits = self._hits[bucket] = self._hits[bucket] * DECAY + hit
        found = (hits + PRIOR_STRENGTH * PRIORS[bucket]) / (tries + PRIOR_STRENGTH)
        found = LEAST if found < LEAST else MOST if found > MOST else found
        self.estimates[bucket] = found
        self.odds[bucket] = found / (1.0 - found)
