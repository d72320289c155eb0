"""Ids that top-k, top-p and min-p leave, found without sorting the vocabulary."""

from __future__ import annotations

from math import inf, log
from typing import Final

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
Weights = NDArray[np.float64]

MARGINS: Final = (3.0, 6.0, 9.0, 12.0, 16.0, inf)
"""Logits below the best one; the first range that holds what top-p leaves is sorted."""


def kept(row: Row, top_k: int, top_p: float, min_p: float) -> NDArray[np.int64] | None:
    """The ids of ``sampling.candidates`` in ascending order; None where no filter is on.

    Args:
        row: float32 [vocabulary].
        top_k, top_p, min_p: as ``sampling.candidates``.
    """
    limited = 0 < top_k < row.size
    if not limited and top_p >= 1.0 and min_p <= 0.0:
        return None
    peak = float(row.max())
    if not limited and top_p >= 1.0:
        return _likely(row, peak, min_p)
    ids, weight = _best(row, peak, top_k if limited else 0, top_p)
    return np.sort(ids[weight >= min_p] if min_p > 0.0 else ids)


def _likely(row: Row, peak: float, min_p: float) -> NDArray[np.int64]:
    """What min-p alone leaves; a float32 comparison with some slack goes first."""
    ids = np.flatnonzero(row >= peak + log(min_p) - 0.01 * (1.0 - log(min_p)))
    return ids[_weights(row[ids], peak) >= min_p]


def _best(row: Row, peak: float, top_k: int, top_p: float) -> tuple[NDArray[np.int64], Weights]:
    """What top-k and then top-p leave, best first, with weights relative to the best."""
    if top_k:
        floor = np.partition(row, row.size - top_k)[row.size - top_k]
        order, weight = _ranked(row, np.flatnonzero(row >= floor), peak)
        order, weight = order[:top_k], weight[:top_k]
        needed = top_p * float(np.cumsum(weight)[-1])
    else:
        needed = top_p * float(_weights(row, peak).sum())
        order, weight = _ranked(row, _heavy(row, peak, needed), peak)
    if top_p >= 1.0:
        return order, weight
    count = int(np.searchsorted(np.cumsum(weight), needed)) + 1
    return order[:count], weight[:count]


def _heavy(row: Row, peak: float, needed: float) -> NDArray[np.int64]:
    """Ids above some logit whose weights sum up to what is needed."""
    for margin in MARGINS:
        ids = np.flatnonzero(row >= peak - margin)
        if float(_weights(row[ids], peak).sum()) >= needed:
            break
    return ids


def _ranked(row: Row, ids: NDArray[np.int64], peak: float) -> tuple[NDArray[np.int64], Weights]:
    """Ascending ids by (logit descending, id ascending)."""
    order = ids[np.argsort(-row[ids], kind="stable")]
    return order, _weights(row[order], peak)


def _weights(row: Row, peak: float) -> Weights:
    weight = row.astype(np.float64)
    weight -= peak
    return np.exp(weight, out=weight)
