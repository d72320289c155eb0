"""Acceptance rates that a benchmark pretends: given one by one, or by the mean length they yield.

Rate i is the probability that the first i + 1 draft tokens of a chain are all accepted. The names
and the bisection are llama.cpp's (``--spec-synth-rates``, ``--spec-synth-len``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from slipstream.errors import OptionError

BISECTIONS = 32


def rates_given(text: str, count: int) -> tuple[float, ...]:
    """The rates of ``P0,P1,..``.

    Args:
        count: most tokens of a draft: there must be one rate for each.

    Raises:
        OptionError: not numbers, another number of them, out of [0, 1], or increasing.
    """
    remedy = "Write `synth_rates` as P0,P1,..: P(first i + 1 draft tokens accepted), for each i."
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise OptionError(
            "`synth_rates` to be numbers with commas", f"{text!r:.80}", remedy
        ) from None
    if len(rates) != count:
        expected = f"{count} `synth_rates`, one per token of the longest draft"
        raise OptionError(expected, f"{len(rates)}", remedy)
    for rate in rates:
        if not (isfinite(rate) and 0.0 <= rate <= 1.0):
            raise OptionError("`synth_rates` from 0 to 1", f"{rate}", remedy)
    for before, after in pairwise(rates):
        if after > before:
            found = f"{after} after {before}"
            raise OptionError("`synth_rates` that never rise", found, remedy)
    return rates


def rates_of_length(length: float, count: int) -> tuple[float, ...]:
    """Rates p, p^2, .. whose sum is ``length`` - 1, by bisection.

    Args:
        length: mean acceptance length, the bonus token included.
        count: most tokens of a draft.

    Raises:
        OptionError: no draft of ``count`` tokens has that mean.
    """
    if not 1.0 <= length <= count + 1:
        expected = f"`synth_len` from 1 to {count + 1}, the longest draft and the token after it"
        raise OptionError(expected, f"{length}", "Lower `synth_len`, or allow longer drafts.")
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if sum(middle**depth for depth in range(1, count + 1)) < length - 1:
            low = middle
        else:
            high = middle
    p = {1.0: 0.0, float(count + 1): 1.0}.get(length, (low + high) / 2)
    return tuple(p**depth for depth in range(1, count + 1))


def conditional(rates: Sequence[float]) -> tuple[float, ...]:
    """Rate i given that the first i were accepted; 0 after a rate of 0."""
    before = (1.0, *rates)
    return tuple(
        rate / prior if prior > 0.0 else 0.0 for prior, rate in zip(before, rates, strict=False)
    )


def pretended(rates: str | None, length: float | None, count: int) -> tuple[float, ...] | None:
    """The rates of the two options; None where neither is given.

    Args:
        count: most tokens of a draft.

    Raises:
        OptionError: both are given, or as above.
    """
    if rates is not None and length is not None:
        raise OptionError(
            "`synth_rates` or `synth_len`", f"`{rates}` and `{length}`", "Leave out one of them."
        )
    if rates is not None:
        return rates_given(rates, count)
    return None if length is None else rates_of_length(length, count)
