"""What a server counts: of all requests together, and of each while it runs.

Everything happens on the event loop. Label values are few whatever requests say: more than
``MOST_LABELS`` of one name become ``other``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from slipstream.server.order import Order, Timing
from slipstream.server.timings import PHASES, observe
from slipstream.server.wire import Load, Slot, WireEvent

MOST_LABELS: Final = 48
MOST_POSITIONS: Final = 64
"""Draft positions counted apart; deeper ones are counted together."""
MOST_ROWS: Final = 64
"""Rows of a verifying pass counted apart; more of them are counted together."""

SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
STEP_SECONDS: Final = (
    0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
TOKENS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)


class Histogram:
    """
    Args:
        bounds: upper bounds of the buckets, ascending; a last one without bound is added.

    Attributes:
        counts: observations per bucket, not cumulative.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it), the last bound ``+Inf``."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, number in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += number
            found.append((bound, total))
        return found


@dataclass
class MeteredRequest:
    """One output that waits or runs.

    Attributes:
        endpoint, method: its labels.
        prompt_tokens: length of its prompt; ``reused`` of them came from the prefix cache.
        most_tokens: its limit; -1 = the context's.
        timing: so far.
        place: number of its slot; None while it waits.
    """

    endpoint: str
    method: str
    prompt_tokens: int
    most_tokens: int
    timing: Timing
    place: int | None = None
    reused: int = 0
    queue_s: float = 0.0

    @property
    def drafts(self) -> bool:
        """Whether drafters are open for it."""
        return self.method != "none"


@dataclass
class MethodCounts:
    """Tokens of the requests that had the same drafters open."""

    prompt: int = 0
    reused: int = 0
    generated: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    discarded: int = 0
    verification_steps: int = 0


class Meters:
    """
    Args:
        methods: drafters of a request that names none.
        places: sequences that run at the same time.

    Attributes:
        requests: those that wait or run, by number.
        ended: (endpoint, finish reason) -> requests; ``refused`` where none was made.
        methods: label (drafters open for a request, joined by commas) -> tokens. Everything in it
            was emitted, or examined in a step that emitted; discarded tokens stand apart.
        accepted_at: place in a draft -> accepted tokens that were emitted.
        verified_rows: rows of a pass that verified drafts -> passes.
        prompt_s, output_s: seconds from a place to the first token, and from that to the last.
        later_tokens: tokens after the first.
        longest: most positions that a sequence had.
        busy_passes: requests that ran, summed over target passes.
        phases: of ``PHASES`` -> seconds, of requests that ended.
    """

    def __init__(self, methods: Iterable[str] = (), places: int = 1) -> None:
        self.places = places
        self.requests: dict[int, MeteredRequest] = {}
        self.ended: Counter[tuple[str, str]] = Counter()
        self.methods: dict[str, MethodCounts] = {}
        self.accepted_at: Counter[int] = Counter()
        self.verified_rows: Counter[int] = Counter()
        self.queue = Histogram(SECONDS)
        self.first_token = Histogram(SECONDS)
        self.between_tokens = Histogram(STEP_SECONDS)
        self.tokens_per_pass = Histogram(TOKENS)
        self.prompt_s = 0.0
        self.output_s = 0.0
        self.later_tokens = 0
        self.longest = 0
        self.busy_passes = 0
        self.phases: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self.load = Load()
        self._default = _method(methods)
        self._endpoints: set[str] = set()

    def arrived(self, request: int, order: Order, now_s: float) -> None:
        """A request is on its way to the engine; ``order.endpoint`` is its path.

        Args:
            now_s: clock reading; of the same clock in every call.
        """
        asked = None if order.speculation is None else order.speculation.methods
        method = self._default if asked is None else _method(asked)
        if method not in self.methods and len(self.methods) >= MOST_LABELS:
            method = "other"
        self.methods.setdefault(method, MethodCounts())
        self.requests[request] = MeteredRequest(
            self._endpoint(order.endpoint),
            method,
            len(order.prompt),
            order.sampling.max_tokens,
            Timing(now_s),
        )

    def refused(self, endpoint: str) -> None:
        """A request that reached no engine: it was at fault, or the queue full."""
        self.ended[self._endpoint(endpoint), "refused"] += 1

    def started(self, slot: Slot) -> None:
        """A request has a place. Unknown numbers are ignored."""
        metered = self.requests.get(slot.request)
        if metered is None or metered.place is not None:
            return
        taken = {other.place for other in self.requests.values()}
        metered.place = next(place for place in count() if place not in taken)
        metered.reused, metered.queue_s = slot.reused, slot.queue_s
        self.queue.observe(slot.queue_s)

    def event(self, event: WireEvent, now_s: float) -> None:
        """What a step did for a request; its last event ends it. Unknown numbers are ignored."""
        metered = self.requests.get(event.request)
        if metered is None:
            return
        if event.tokens:
            self._emitted(metered, event, now_s)
        observe(metered.timing, event, now_s)
        self.longest = max(self.longest, metered.prompt_tokens + metered.timing.tokens)
        if event.summary is not None:
            self._summed(metered, event)
        if event.error is not None:
            self.finished(event.request, _failure(event.error.kind))
        elif event.finish_reason is not None:
            self.finished(event.request, event.finish_reason)

    def finished(self, request: int, reason: str) -> None:
        """A request is over; a second call for it changes nothing."""
        metered = self.requests.pop(request, None)
        if metered is not None:
            self.ended[metered.endpoint, reason] += 1

    def loaded(self, load: Load) -> None:
        """The newest state of the engine."""
        passes = max(load.steps - self.load.steps, 0)
        self.busy_passes += passes * max(load.running, self.load.running)
        self.verified_rows.update(min(rows, MOST_ROWS) for rows in load.verified_rows)
        self.load = load

    @property
    def drafts(self) -> bool:
        """Whether a request that asks for nothing else is drafted for."""
        return self._default != "none"

    def total(self, name: str) -> int:
        """Sum of one of ``MethodCounts``' fields over all methods."""
        found: int = sum(getattr(counts, name) for counts in self.methods.values())
        return found

    def _emitted(self, metered: MeteredRequest, event: WireEvent, now_s: float) -> None:
        counts, tokens = self.methods[metered.method], len(event.tokens)
        accepted = sum(token.from_draft for token in event.tokens)
        counts.generated += tokens
        counts.drafted += event.drafted
        counts.tested += event.tested
        counts.accepted += accepted
        counts.verification_steps += event.drafted > 0
        self.accepted_at.update(min(place, MOST_POSITIONS) for place in range(accepted))
        self.tokens_per_pass.observe(tokens)
        if metered.timing.last_s is None:
            self._began(metered, now_s)
            return
        elapsed = now_s - metered.timing.last_s
        self.between_tokens.observe(elapsed / tokens, tokens)
        self.output_s += elapsed
        self.later_tokens += tokens

    def _began(self, metered: MeteredRequest, now_s: float) -> None:
        """A first token came, and with it a prompt was computed."""
        counts, elapsed = self.methods[metered.method], now_s - metered.timing.arrived_s
        counts.prompt += metered.prompt_tokens - metered.reused
        counts.reused += metered.reused
        self.first_token.observe(elapsed)
        self.prompt_s += max(elapsed - metered.queue_s, 0.0)

    def _summed(self, metered: MeteredRequest, event: WireEvent) -> None:
        summary = event.summary or {}
        self.methods[metered.method].discarded += summary.get("discarded", 0)
        times = summary.get("times", {})
        for phase in PHASES:
            self.phases[phase] += times.get(f"{phase}_s", 0.0)

    def _endpoint(self, path: str) -> str:
        if path not in self._endpoints and len(self._endpoints) >= MOST_LABELS:
            return "other"
        self._endpoints.add(path)
        return path


def _method(names: Iterable[str]) -> str:
    return ",".join(sorted(set(names) - {"none"})) or "none"


def _failure(kind: str) -> str:
    return "deadline" if kind == "DeadlineError" else "error"
