"""Every derived figure of the lab, in one place: what it is made of, and when there is none.

A figure that cannot be had is None, shown as ``not measurable``; it is never 0, and nothing stands
in for it. What a runtime tells may be nonsense: times and counts below 0, infinite or not a number
give None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from slipstream.lab.contract.records import Counts, RequestRecord
from slipstream.lab.evidence.noise import FEWEST_PAIRS

NOT_MEASURABLE: Final = "not measurable"
FEWEST_FOR_P95: Final = 20
_RESAMPLES: Final = 4000


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A median with its interquartile range (quartiles by linear interpolation), extremes and n."""

    median: float
    q1: float
    q3: float
    least: float
    most: float
    n: int


class PairedRatio(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio over pairs of blocks; above 1 = the condition is better than ``none``.

    Attributes:
        figure: of the ratios of the pairs.
        low, high: percentile bootstrap interval of their median (Efron 1979), over pairs of blocks;
            None of fewer than five pairs, whose interval would be but their extremes.
        faster, slower: pairs above and below 1.
        p: of the one-sided sign test of "the condition is not faster".
    """

    figure: Figure
    low: float | None
    high: float | None
    confidence: float
    faster: int
    slower: int
    p: float


def figure(values: Iterable[float | None]) -> Figure | None:
    """Of the values that are there; None of none."""
    found = np.asarray([v for v in values if v is not None and math.isfinite(v)], dtype=np.float64)
    if not found.size:
        return None
    least, q1, median, q3, most = (float(v) for v in np.percentile(found, [0, 25, 50, 75, 100]))
    return Figure(median=median, q1=q1, q3=q3, least=least, most=most, n=int(found.size))


def p95(values: Iterable[float | None]) -> float | None:
    """95th percentile by linear interpolation; None under 20 values."""
    found = [v for v in values if v is not None and math.isfinite(v)]
    return float(np.percentile(found, 95)) if len(found) >= FEWEST_FOR_P95 else None


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """None where a part is unknown, not finite or not above 0."""
    if numerator is None or denominator is None:
        return None
    both = math.isfinite(numerator) and math.isfinite(denominator)
    return numerator / denominator if both and numerator > 0 and denominator > 0 else None


def total_s(record: RequestRecord) -> float | None:
    """From sending a request to its end; None of an error or of a time that cannot be."""
    value = record.total_s
    sound = not record.error and value is not None and math.isfinite(value) and value > 0
    return value if sound else None


def ttft_s(record: RequestRecord) -> float | None:
    """From sending a request to its first token, by the client's clock: ``first_s - sent_s``."""
    if record.error or record.first_s is None:
        return None
    value = record.first_s - record.sent_s
    return value if math.isfinite(value) and value >= 0 else None


def decode_s(record: RequestRecord) -> float | None:
    """From the first token to the last streamed piece; without pieces ``total_s - ttft_s``."""
    if record.error:
        return None
    if len(record.token_times_s) > 1:
        value = record.token_times_s[-1] - record.token_times_s[0]
    else:
        whole, first = total_s(record), ttft_s(record)
        value = whole - first if whole is not None and first is not None else math.nan
    return value if math.isfinite(value) and value > 0 else None


def decode_rate(record: RequestRecord) -> float | None:
    """``(output_tokens - 1) / decode_s`` in tokens per second; the first token does not count."""
    tokens = record.output_tokens
    return ratio(None if tokens is None else tokens - 1, decode_s(record))


def end_to_end_speedup(
    none: RequestRecord, other: RequestRecord, *, equal: bool | None
) -> float | None:
    """``total_s`` of ``none`` / ``total_s`` of the condition; None unless the outputs are equal."""
    return ratio(total_s(none), total_s(other)) if equal else None


def rate_ratio(none: RequestRecord, other: RequestRecord) -> float | None:
    """``decode_rate`` of the condition / that of ``none``: what can be said of unequal outputs."""
    return ratio(decode_rate(other), decode_rate(none))


def length_ratio(none: RequestRecord, other: RequestRecord) -> float | None:
    """Output tokens of the condition / those of ``none``."""
    return ratio(other.output_tokens, none.output_tokens)


def span_s(records: Sequence[RequestRecord]) -> float | None:
    """Total time of a block's requests: from the first one sent to the last one's end."""
    ends = [r.sent_s + r.total_s for r in records if r.total_s is not None]
    value = max(ends) - min(r.sent_s for r in records) if ends else math.nan
    return value if math.isfinite(value) and value > 0 else None


def throughput_tok_s(blocks: Iterable[Sequence[RequestRecord]]) -> float | None:
    """Total observed tokens / total time, over blocks; never a mean of rates.

    Tokens are those that the runtime counted, never the limit; a request that failed adds its time
    and no tokens. None where a count or a time is unknown.
    """
    tokens, seconds = 0, 0.0
    for records in blocks:
        span = span_s(records)
        counted = [r.output_tokens for r in records if not r.error]
        if span is None or not counted or any(n is None for n in counted):
            return None
        tokens += sum(n for n in counted if n is not None)
        seconds += span
    return ratio(tokens, seconds)


def acceptance_rate(counts: Counts) -> float | None:
    """``accepted / drafted``; undefined (None, not 0) where nothing was drafted."""
    if not counts.drafted or counts.drafted < 0 or counts.accepted is None or counts.accepted < 0:
        return None
    return counts.accepted / counts.drafted


def acceptance_at(counts: Counts) -> tuple[float | None, ...]:
    """Accepted at position i / ``reached_at[i]``; see ``Counts.denominator`` for what that is."""
    pairs = zip(counts.accepted_at, counts.reached_at, strict=False)
    return tuple(accepted / reached if reached > 0 else None for accepted, reached in pairs)


def mean_acceptance_length(counts: Counts) -> float | None:
    """``1 + accepted / steps``: tokens of a verification step, the bonus token counted."""
    if not counts.steps or counts.steps < 0 or counts.accepted is None or counts.accepted < 0:
        return None
    return 1 + counts.accepted / counts.steps


def rows_per_step(counts: Counts) -> float | None:
    """``drafted / steps + 1``: a mean, of the steps that verified something."""
    if not counts.steps or counts.steps < 0 or counts.drafted is None or counts.drafted < 0:
        return None
    return counts.drafted / counts.steps + 1


def tokens_per_pass(records: Iterable[RequestRecord]) -> float | None:
    """Output tokens / target passes, with passes = output tokens - accepted tokens.

    The law is ``accepted + passes = emitted + discarded``; tokens that a limit cut off after they
    were verified are not told by most runtimes and count as none.
    """
    given = [r for r in records if not r.error]
    tokens, accepted = [r.output_tokens for r in given], [r.counts.accepted for r in given]
    if not given or None in tokens or None in accepted:
        return None
    emitted = sum(n for n in tokens if n is not None)
    return ratio(emitted, emitted - sum(n for n in accepted if n is not None))


def step_efficiency(speedup: float | None, per_pass: float | None) -> float | None:
    """``speed-up / tokens_per_pass``: the share of the saved passes that became time."""
    return ratio(speedup, per_pass)


def memory_added_bytes(none: Iterable[int | None], other: Iterable[int | None]) -> int | None:
    """Highest peak of the condition - highest peak of ``none``; None where either is unknown."""
    before, after = ([v for v in given if v is not None and v > 0] for given in (none, other))
    return max(after) - max(before) if before and after else None


def energy_per_token_j(records: Iterable[RequestRecord]) -> float | None:
    """Joules / output tokens, where the machine tells energy; never derived from time."""
    given = [r for r in records if not r.error]
    joules, tokens = [r.energy_j for r in given], [r.output_tokens for r in given]
    if None in joules or None in tokens:
        return None
    return ratio(sum(j for j in joules if j is not None), sum(n for n in tokens if n is not None))


def phase_shares(records: Iterable[RequestRecord]) -> dict[str, float]:
    """Phase -> its share of the total time, over the requests that tell phases."""
    told = [(r.phases, total_s(r)) for r in records if r.phases and not r.error]
    whole = sum(total for _, total in told if total is not None)
    names = dict.fromkeys(name for phases, _ in told for name in phases)
    if whole <= 0:
        return {}
    return {
        name: sum(phases.get(name, 0.0) for phases, total in told if total is not None) / whole
        for name in names
    }


def sign_test(faster: int, slower: int) -> float:
    """One-sided exact sign test: P(at least so many faster) where both are equally likely."""
    n = faster + slower
    return float(sum(math.comb(n, i) for i in range(faster, n + 1)) / 2**n)


def bootstrap_median(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Percentile bootstrap interval of the median (Efron 1979), reproducible.

    Raises:
        ValueError: there are no values.
    """
    samples = np.asarray(values, dtype=np.float64)
    if not samples.size:
        raise ValueError("an interval needs a value")
    draws = np.random.default_rng(0).integers(0, samples.size, (_RESAMPLES, samples.size))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(np.median(samples[draws], axis=1), [tail, 100 - tail])
    return float(low), float(high)


def paired_ratio(ratios: Sequence[float], confidence: float) -> PairedRatio | None:
    """Of one ratio per pair of blocks; None of none."""
    made = figure(ratios)
    if made is None:
        return None
    enough = len(ratios) >= FEWEST_PAIRS
    low, high = bootstrap_median(ratios, confidence) if enough else (None, None)
    faster, slower = sum(r > 1 for r in ratios), sum(r < 1 for r in ratios)
    p = sign_test(faster, slower)
    return PairedRatio(
        figure=made,
        low=low,
        high=high,
        confidence=confidence,
        faster=faster,
        slower=slower,
        p=p,
    )
