"""The processes of one block: start, observation, warm-up, pass and end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from slipstream.errors import InputError, SlipstreamError
from slipstream.lab.contract.manifest import MethodIdentity
from slipstream.lab.contract.records import Counts, ObservedRecord
from slipstream.lab.contract.runtimes import Endpoint, Metrics, ready_limit_s
from slipstream.lab.evidence.refusals import REFUSED
from slipstream.lab.observation import counters
from slipstream.lab.running.bench import FIGURES, LOGS, Bench, Seen
from slipstream.lab.running.block_requests import RequestKeeper, items_of, warm_up_items
from slipstream.lab.running.passes import Item, Pass, run_pass
from slipstream.lab.running.progress import duration, told_if_long
from slipstream.lab.running.row_probe import row_probe_items
from slipstream.lab.scheduling.schedule import PATHS, Block, method_of

MOST_RAW: Final = 256 << 10
"""Characters of ``/metrics`` that a record keeps."""
LATE_S: Final = 0.05
_FLUSH_S: Final = 0.02
_SETTLE_S: Final = (0.01, 0.04, 0.15, 0.3)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class BlockProcess:
    """Runs a block and notes in ``seen`` what it came to, a program's faults included."""

    def __init__(self, bench: Bench, block: Block, attempt: int, seen: Seen) -> None:
        self._bench, self._block, self._number, self._seen = bench, block, attempt, seen
        self._runtime = bench.runtimes[block.runtime]
        method = method_of(bench.manifest, block.runtime, block.condition)
        assert method is not None, "the ladder lets no block of an unknown method run"
        self._method: MethodIdentity = method

    def run(self) -> None:
        try:
            self._untimed_probe()
            if self._bench.manifest.observation.cold and self._block.kind in FIGURES:
                self._cold()
            else:
                self._process(self._items(), warm_ups=True)
        except SlipstreamError as problem:
            self._fail(problem)

    def _items(self) -> list[Item]:
        bench = self._bench
        if self._block.kind == PATHS:
            return row_probe_items(
                bench.folder, bench.manifest, bench.tools.prompts, bench.store.lines, self._block
            )
        return items_of(bench.manifest, bench.tools.prompts, self._block)

    def _cold(self) -> None:
        """A process of its own for every prompt; its first request is the measured one."""
        for item in self._items():
            self._process([item], warm_ups=False)
            if self._seen.failed:
                return

    def _untimed_probe(self) -> None:
        """Kernel paths of this program under this condition, shown by a start that is not timed."""
        block, bench = self._block, self._bench
        known = any(
            isinstance(x, ObservedRecord)
            and (x.runtime, x.condition) == (block.runtime, block.condition)
            for x in bench.store.lines
        )
        if known:
            return
        log = self._log("probe")
        try:
            with self._waiting("its untimed probe, which is asked once it is ready"):
                record = self._runtime.probe(self._method, bench.manifest, block.slots, log)
        except SlipstreamError as problem:
            self._seen.findings.append(f"path-unknown: the untimed probe failed: {problem}")
            return
        self._keep(record)

    def _process(self, items: Sequence[Item], *, warm_ups: bool) -> None:
        """One life of the program."""
        bench, block, seen = self._bench, self._block, self._seen
        suffix = "" if warm_ups else str(items[0].index)
        log = self._log(suffix)
        seen.log = seen.log or log.relative_to(bench.folder).as_posix()
        try:
            with self._waiting("it to be ready"):
                endpoint = self._runtime.start(self._method, bench.manifest, block.slots, log)
            self._observe()
            if not seen.failed and warm_ups:
                self._warm_up(endpoint)
            if not seen.failed:
                self._observe_again(*self._pass(endpoint, items, cold=not warm_ups))
        finally:
            self._end()

    def _waiting(self, what: str) -> AbstractContextManager[None]:
        """Tells of a program that takes long to start, or never will be ready."""
        plan, block = self._bench.manifest.plan, self._block
        limit_s = ready_limit_s(plan.runtimes[block.runtime].kind, plan.rules.timeout_s)
        if not limit_s:
            return contextlib.nullcontext()
        most = duration(limit_s)
        text = f"{block.runtime} {block.condition}: waiting for {what}, at most {most}"
        return told_if_long(self._bench.progress, text)

    def _end(self) -> None:
        """What its log holds is told; that it would not stop must not hide why it was stopped."""
        try:
            self._seen.findings += self._runtime.stop()
        except SlipstreamError as problem:
            self._seen.findings.append(f"crashed: it did not stop: {problem}")

    def _log(self, suffix: str) -> Path:
        parts = (self._block.runtime, self._block.condition, suffix)
        name = "-".join(_UNSAFE.sub("_", part) for part in parts if part)
        path = self._bench.folder / LOGS / f"{self._block.number:04d}-{self._number}-{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _keep(self, record: ObservedRecord) -> ObservedRecord:
        """Once per run; rows are no block's before its pass, nor are those of a probe."""
        record = msgspec.structs.replace(self._own(record), rows_histogram={})
        self._bench.store.append_new(record)
        return record

    def _own(self, record: ObservedRecord) -> ObservedRecord:
        return msgspec.structs.replace(
            record,
            run=self._bench.manifest.run,
            runtime=self._block.runtime,
            condition=self._block.condition,
        )

    def _observe(self) -> None:
        """Settings in effect that are not those asked for end the condition: it is another one."""
        record = self._keep(self._runtime.observed(self._method))
        if record.differs:
            pairs = sorted(record.differs.items())
            told = "; ".join(f"{name}: asked {a}, in effect {b}" for name, (a, b) in pairs)
            self._stop("flag-ignored", told)

    def _observe_again(self, first: Metrics, last: Metrics) -> None:
        """Rows and kernel paths show only when something ran; rows are of this process alone."""
        try:
            record = self._runtime.observed(self._method)
        except SlipstreamError as problem:
            self._seen.findings.append(f"after the pass it told nothing of itself: {problem}")
            return
        before = None if first.rows is None else dict(first.rows)
        rows = record.rows_histogram if last.rows is None else dict(last.rows)
        if last.rows is None and not rows:
            self._keep(record)
            return
        placed = {"block": self._block.number, "attempt": self._number}
        record = msgspec.structs.replace(
            self._own(record), rows_histogram=rows, rows_before=before, **placed
        )
        self._bench.store.append(record)

    def _warm_up(self, endpoint: Endpoint) -> None:
        items = warm_up_items(self._bench.manifest, self._bench.tools.prompts, self._block)
        if not items:
            return
        keeper = self._keeper(len(items), warm_up=True)
        ended = run_pass(self._bench.tools.send, endpoint, items, 1, keeper.heard)
        if keeper.answered < len(items):
            self._gave_up(keeper, ended, "its warm-up")

    def _pass(
        self, endpoint: Endpoint, items: Sequence[Item], *, cold: bool
    ) -> tuple[Metrics, Metrics]:
        """The counters before it and after."""
        bench, block, seen = self._bench, self._block, self._seen
        first, joules = self._metrics(), bench.tools.energy()
        seen.before = seen.before or first.raw[:MOST_RAW]
        keeper = self._keeper(len(items), cold=cold)
        one_by_one = block.slots == 1 or block.kind != "measured"
        if one_by_one:
            keeper.window = counters.Window(self._settled, first)
        clients = 1 if one_by_one else block.slots
        ended = run_pass(bench.tools.send, endpoint, items, clients, keeper.heard)
        if ended.late_s > LATE_S:
            seen.findings.append(f"late-arrivals: up to {ended.late_s:.3f} s after their time")
        last = self._settled(first, keeper.told)
        seen.after = last.raw[:MOST_RAW]
        self._count(first, last)
        if (end := bench.tools.energy()) is not None and joules is not None and end >= joules:
            seen.energy_j = (seen.energy_j or 0.0) + end - joules
        peak = self._runtime.peak_rss_bytes()
        seen.peak_rss_bytes = max((p for p in (seen.peak_rss_bytes, peak) if p), default=None)
        if ended.given_up or not keeper.answered:
            self._gave_up(keeper, ended, "its pass")
        return first, last

    def _keeper(self, requests: int, *, warm_up: bool = False, cold: bool = False) -> RequestKeeper:
        bench = self._bench
        return RequestKeeper(
            bench.folder,
            bench.manifest,
            bench.tools,
            bench.store,
            self._block,
            attempt=self._number,
            origin_s=self._seen.start_s,
            peak=self._runtime.peak_rss_bytes,
            progress=bench.progress,
            requests=requests,
            warm_up=warm_up,
            cold=cold,
        )

    def _count(self, first: Metrics, last: Metrics) -> None:
        counts, wrong = counters.between(first, last)
        self._seen.findings += wrong
        before = self._seen.counts
        self._seen.counts = counts if before is None else counters.added(before, counts)

    def _metrics(self) -> Metrics:
        try:
            return self._runtime.metrics()
        except SlipstreamError:
            return Metrics("", Counts())

    def _settled(self, first: Metrics, told: Sequence[Counts]) -> Metrics:
        """Counters that hold what was answered: a server may write them after its reply."""
        if first.raw and all(counts.drafted is None for counts in told):
            self._bench.tools.pause(_FLUSH_S)
        last = self._metrics()
        for wait_s in _SETTLE_S:
            window, _ = counters.between(first, last)
            if counters.caught_up(told, window):
                break
            self._bench.tools.pause(wait_s)
            last = self._metrics()
        return last

    def _gave_up(self, keeper: RequestKeeper, ended: Pass, what: str) -> None:
        names = {keeper.timeouts: "stalled", keeper.refused: REFUSED}
        name = names.get(keeper.errors, "crashed") if keeper.errors else "crashed"
        rest = f", {ended.given_up} requests were not sent" if ended.given_up else ""
        self._stop(name, f"{what} in block {self._block.number}: {keeper.last_error}{rest}")

    def _fail(self, problem: SlipstreamError) -> None:
        """A program that could not be started or asked; ``runtimes.faults`` name their finding."""
        otherwise = REFUSED if isinstance(problem, InputError) else "crashed"
        self._stop(getattr(problem, "finding", otherwise), f"{problem}")

    def _stop(self, name: str, text: str) -> None:
        """The block failed; ``failure_finding`` says how far that reaches."""
        self._seen.failed = f"{name}: {text}"
