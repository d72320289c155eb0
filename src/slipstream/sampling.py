"""Logits to a token, with randomness that depends only on seed, index and token id.

The chain, in order: logit bias, repetition / frequency / presence penalties, the mask of a grammar,
top-k, top-p, min-p, temperature, Gumbel-argmax. The three filters look at the distribution of the
allowed ids at temperature 1. Where a grammar allows one id alone, it is taken undrawn. Token
``i`` of an output is ``argmax(logit / T + g(seed, i, token id))`` over the candidates they leave,
ties to the lowest id, so a row is sampled alike whether it was drafted or not. Temperature 0 is
the argmax of the allowed logits after bias and penalties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from slipstream.constraint import Constraint, masked, quick_token
from slipstream.dispatch.select import backed_level
from slipstream.errors import BackendError
from slipstream.filters import kept
from slipstream.noise import GUMBEL_SPREAD, TOKENS, gumbel, in_stream
from slipstream.options import SamplingOptions

Row = NDArray[np.float32]
LEAST: Final = float(np.finfo(np.float32).tiny)
LARGEST: Final = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token drawn from a row.

    Attributes:
        token: its id.
        logprob: natural log-probability under the raw logits: before bias, penalties, filters and
            temperature. None unless log-probabilities were asked for.
        top: the most likely (id, logprob) of the raw logits, best first, ties to the lowest id.
    """

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Primitives(Protocol):
    """What is computed over a whole row; the native core and NumPy both provide it."""

    name: str

    def argmax(self, row: Row) -> int:
        """Index of the largest logit, ties to the lowest."""

    def log_sum_exp(self, row: Row) -> float: ...

    def sample(
        self,
        row: Row,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        seed: int,
        index: int,
    ) -> int:
        """Filter, then Gumbel-argmax; ``temperature`` > 0."""


def candidates(row: Row, top_k: int, top_p: float, min_p: float) -> NDArray[np.int64]:
    """Ids that the filters leave, ordered by (logit descending, id ascending).

    The slow twin of ``filters.kept``.

    Args:
        row: float32 [vocabulary].
        top_k: keep the first k; 0 = all.
        top_p: keep the shortest prefix whose renormalised sum is >= top_p; >= 1 = all.
        min_p: keep p >= min_p * p_max; 0 = all.
    """
    logits = row.astype(np.float64)
    order = np.argsort(-logits, kind="stable")
    if 0 < top_k < order.size:
        order = order[:top_k]
    weight = np.exp(logits[order] - logits[order[0]])
    if top_p < 1.0:
        cumulative = np.cumsum(weight)
        count = int(np.searchsorted(cumulative, top_p * cumulative[-1])) + 1
        order, weight = order[:count], weight[:count]
    return order[weight >= min_p] if min_p > 0.0 else order


class NumpyPrimitives:
    """The slow twin of the native primitives."""

    name = "numpy"

    def argmax(self, row: Row) -> int:
        return int(np.argmax(row))

    def log_sum_exp(self, row: Row) -> float:
        peak = float(np.max(row))
        return peak + float(np.log(np.sum(np.exp(row.astype(np.float64) - peak))))

    def sample(
        self,
        row: Row,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        seed: int,
        index: int,
    ) -> int:
        if 0 < top_k < row.size or top_p < 1.0 or min_p > 0.0:
            ids = np.sort(candidates(row, top_k, top_p, min_p))
        else:
            ids = np.arange(row.size)
        scaled = row[ids].astype(np.float64) / temperature
        # the noise spans GUMBEL_SPREAD, so a logit further below the best one cannot win
        able = ~(scaled < scaled.max() - GUMBEL_SPREAD)
        ids, scaled = ids[able], scaled[able]
        return int(ids[np.argmax(scaled + gumbel(seed, index, ids))])


@cache
def default_primitives(isa: str | None = None) -> Primitives:
    """The native primitives where the core is installed, else NumPy's; ``name`` says which.

    Args:
        isa: the backend's level; None = the best one that evidence backs, whatever the
            environment says (every level gives the same bits).
    """
    try:
        from slipstream import _native
        from slipstream.native_sampling import NativePrimitives
    except ImportError:
        if find_spec("slipstream._native") is not None:
            raise
        return NumpyPrimitives()
    return NativePrimitives(isa or backed_level(_native.isa_levels()))


def penalise(row: Row, counts: Mapping[int, int], options: SamplingOptions) -> None:
    """Apply the penalties in place, as llama.cpp does.

    For a token seen n > 0 times in the window: a positive logit is divided by the repetition
    penalty, another multiplied by it; then ``n * frequency + presence`` is subtracted.
    """
    ids = np.fromiter(counts.keys(), np.int64, len(counts))
    seen = np.fromiter(counts.values(), np.float64, len(counts))
    logits = row[ids].astype(np.float64)
    factor = options.repetition_penalty
    logits = np.where(logits > 0.0, logits / factor, logits * factor)
    logits = logits - seen * options.frequency_penalty - options.presence_penalty
    row[ids] = np.clip(logits, -LARGEST, LARGEST)


def check_finite(row: Row) -> None:
    """
    Raises:
        BackendError: the row is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(np.sum(row))  # a sum of large numbers may overflow
    if suspicious and not np.isfinite(row).all():
        bad = int(np.argmin(np.isfinite(row)))
        found = f"{row[bad]} for token {bad}"
        raise BackendError("finite logits", found, "The model file may be damaged.")


class SamplerState:
    """The sampler of one sequence; it moves forward only by ``advance``.

    Args:
        options: the chain's settings.
        prompt: token ids before the first emitted one (the penalty window reaches into them).
        seed: noise key, 0 <= seed < 2^64.
        primitives: those of the backend's level; default: ``default_primitives()``.
        constraint: the grammar of the output; moved along with the state.

    Attributes:
        shortcuts: find a token under a grammar without masking where possible; tests forbid it.
    """

    def __init__(
        self,
        options: SamplingOptions,
        prompt: Sequence[int],
        seed: int,
        primitives: Primitives | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        self.options = options
        self.seed = seed
        self.index = 0
        self.primitives = primitives or default_primitives()
        self.constraint = constraint
        self.shortcuts = True
        self._window = self._recent(prompt)
        self._bias_ids = np.array(list(options.logit_bias), np.int64)
        self._bias = np.array(list(options.logit_bias.values()), np.float32)

    def _recent(self, tokens: Sequence[int]) -> list[int]:
        size = self.options.penalty_window
        return list(tokens if size < 0 else tokens[len(tokens) - min(size, len(tokens)) :])

    def _penalised(self) -> bool:
        options = self.options
        neutral = options.repetition_penalty == 1.0
        return not neutral or options.frequency_penalty != 0.0 or options.presence_penalty != 0.0

    def _adjusted(self, row: Row) -> Row:
        """The row after bias, penalties and mask: a copy, or the row itself where none applies."""
        row = self._biased(row)
        return row if self.constraint is None else masked(row, self.constraint.mask())

    def _biased(self, row: Row) -> Row:
        penalised = bool(self._window) and self._penalised()
        if not penalised and not self._bias_ids.size:
            return row
        row = row.copy()
        row[self._bias_ids] += self._bias
        if penalised:
            penalise(row, Counter(self._window), self.options)
        return row

    def distribution(self, row: Row) -> NDArray[np.float64]:
        """Probabilities [vocabulary] of the full chain at this index; changes nothing.

        An id that the noise cannot lift above the best one has probability 0, as in ``sample``.
        """
        row = self._adjusted(row)
        options = self.options
        result = np.zeros(row.size)
        if options.temperature == 0.0:
            result[self.primitives.argmax(row)] = 1.0
            return result
        temperature = max(options.temperature, LEAST)
        ids = kept(row, options.top_k, options.top_p, options.min_p)
        if ids is None:
            ids = np.flatnonzero(row >= float(row.max()) - GUMBEL_SPREAD * temperature)
        weight = row[ids].astype(np.float64)
        weight -= weight.max()
        weight /= temperature
        np.exp(weight, out=weight)
        result[ids] = weight / weight.sum()
        return result

    def sample(self, row: Row, stream: int = TOKENS) -> Sampled:
        """The token of this index; does not advance.

        Args:
            stream: of the noise.

        Raises:
            BackendError: the row is not finite.
            GrammarError: see ``Constraint.mask``.
        """
        check_finite(row)
        token = self._quick(row, stream)
        if token is None:
            token = self._choose(self._adjusted(row), stream)
        return self.described(row, token)

    def described(self, row: Row, token: int) -> Sampled:
        """A token of a row, however chosen, with the log-probabilities that were asked for."""
        if self.options.logprobs is None:
            return Sampled(token)
        total = self.primitives.log_sum_exp(row)
        top = self._top(row, self.options.logprobs, total)
        return Sampled(token, float(row[token]) - total, top)

    def _quick(self, row: Row, stream: int) -> int | None:
        options = self.options
        if self.constraint is None or not self.shortcuts:
            return None
        filtered = options.top_k > 0 or options.top_p < 1.0 or options.min_p > 0.0
        filtered = filtered and options.temperature > 0.0
        return quick_token(
            self.constraint, None if filtered else lambda: self._choose(self._biased(row), stream)
        )

    def _choose(self, row: Row, stream: int) -> int:
        options = self.options
        if options.temperature == 0.0:
            return self.primitives.argmax(row)
        return self.primitives.sample(
            row,
            max(options.temperature, LEAST),
            min(options.top_k, row.size),
            max(options.top_p, LEAST),
            options.min_p,
            self.seed,
            in_stream(self.index, stream),
        )

    @staticmethod
    def _top(row: Row, count: int, total: float) -> tuple[tuple[int, float], ...]:
        count = min(count, row.size)
        if count == 0:
            return ()
        floor = np.partition(row, row.size - count)[row.size - count]
        ids = np.flatnonzero(row >= floor)
        order = ids[np.argsort(-row[ids], kind="stable")][:count]
        return tuple((int(i), float(row[i]) - total) for i in order)

    def advance(self, token: int) -> None:
        """``token`` was emitted: the next index; penalty window and grammar move.

        Raises:
            GrammarError: the grammar forbids it.
        """
        self.index += 1
        if self.constraint is not None:
            self.constraint.advance(token)
        if self.options.penalty_window != 0:
            self._window.append(token)
            if 0 < self.options.penalty_window < len(self._window):
                del self._window[0]

    def fork(self) -> SamplerState:
        """An independent state with the same future."""
        constraint = None if self.constraint is None else self.constraint.fork()
        twin = SamplerState(self.options, (), self.seed, self.primitives, constraint)
        twin.index = self.index
        twin.shortcuts = self.shortcuts
        twin._window = list(self._window)
        return twin
