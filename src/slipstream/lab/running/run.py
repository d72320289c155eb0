"""A run: the manifest's blocks in their order, as far as the ladder, the plan and the user let it.

A folder that a run left, however it ended, is gone on with by the same call.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from slipstream.errors import SlipstreamError
from slipstream.lab.contract.manifest import UNKNOWN, Manifest
from slipstream.lab.contract.records import BlockRecord, FindingRecord, ObservedRecord
from slipstream.lab.contract.runtimes import Runtime
from slipstream.lab.evidence.store import Store
from slipstream.lab.observation.disturbance import disturbance
from slipstream.lab.observation.probe import Reading
from slipstream.lab.running import isolation
from slipstream.lab.running.bench import LOGS, Bench
from slipstream.lab.running.block_run import announce, run_block
from slipstream.lab.running.kept_run import frozen_digest, tied
from slipstream.lab.running.outcome import Ended, Outcome, outcome_of
from slipstream.lab.running.progress import Progress, Silent, time_left_s
from slipstream.lab.running.runnable import require_runnable, require_texts
from slipstream.lab.running.tools import Tools, real_tools
from slipstream.lab.runtimes.server_process import end_left_over
from slipstream.lab.scheduling.conditions import Ladder
from slipstream.lab.scheduling.schedule import Block, blocks

ROLLBACK: Final = "rollback"
"""Condition of the observed record that holds the digests found at the rollback."""


def run(
    folder: Path,
    manifest: Manifest,
    runtimes: Mapping[str, Runtime],
    *,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.perf_counter,
    tools: Tools | None = None,
) -> Outcome:
    """Run, or go on with, a frozen manifest; Ctrl-C and SIGTERM end it between two records.

    Args:
        folder: of the run; holds ``manifest.json``, gets records, outputs and logs.
        runtimes: by the plan's names.
        clock: of requests' times: seconds, monotonic, that of the client.
        tools: None = the real ones.

    Raises:
        InputError: the manifest asks for what cannot be run, or the records are not its own, or
            were changed.
        OperationError: another run holds the folder, or the disk is full.
    """
    require_runnable(manifest, runtimes)
    with contextlib.ExitStack() as opened:
        found = tools or real_tools(manifest, runtimes, folder)
        opened.callback(found.close)
        require_texts(manifest, found.prompts)
        store = opened.enter_context(Store(folder))
        shown = progress or Silent()
        if note := tied(store, manifest, frozen_digest(folder, manifest)):
            shown.note(note)
        for pid in end_left_over(folder / LOGS):
            shown.note(f"a server that a killed call left behind was ended: {pid}")
        if store.cut_bytes:
            shown.note(f"a torn last record of {store.cut_bytes} bytes was cut off")
        return _Run(Bench(folder, manifest, runtimes, found, store, shown, clock)).go()


class _Run:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._manifest = bench.manifest
        self._store = bench.store
        self._blocks = blocks(bench.manifest)
        self._warned = False

    def go(self) -> Outcome:
        try:
            with _terminating():
                return self._outcome(*self._all())
        except KeyboardInterrupt:
            self._bench.progress.note("interrupted; what has ended is kept")
            return self._outcome("interrupted")

    def _all(self) -> tuple[Ended, str]:
        reading: Reading | None = None
        announce(self._bench)
        for block in self._blocks:
            while not self._has_ended(block):
                if reason := self._stopped():
                    return "stopped", reason
                if Ladder(self._manifest, self._store.lines).lock(block):
                    break
                if self._over_budget():
                    return "budget", ""
                self._tell(block)
                reading = run_block(self._bench, block, reading or self._bench.tools.probe())
                self._warn()
            if self._has_ended(block):
                self._after(block)
        reason = self._stopped()
        return ("stopped", reason) if reason else ("complete", "")

    def _ended(self) -> set[int]:
        """Numbers of the blocks that need not run again."""
        records = (x for x in self._store.lines if isinstance(x, BlockRecord))
        return {x.block for x in records if x.outcome != "repeated"}

    def _has_ended(self, block: Block) -> bool:
        return block.number in self._ended()

    def _spent_s(self) -> float:
        return sum(x.elapsed_s for x in self._store.lines if isinstance(x, BlockRecord))

    def _over_budget(self) -> bool:
        budget = self._manifest.plan.rules.budget_s
        return budget > 0 and self._spent_s() >= budget

    def _ahead(self) -> list[Block]:
        """Blocks that would run, as far as the records tell now."""
        ladder = Ladder(self._manifest, self._store.lines)
        ended = self._ended()
        left = [b for b in self._blocks if b.number not in ended]
        locks = [(b, ladder.lock(b)) for b in left]
        return [b for b, lock in locks if lock is None or lock.waiting]

    def _tell(self, block: Block) -> None:
        ahead = self._ahead()
        ended = len(self._ended())
        label = f"{block.runtime} {block.condition}, {block.stratum}"
        label += f", {block.slots} slots" if block.slots > 1 else ""
        label += f", {block.record_stage}" if block.record_stage != "greedy" else ""
        left_s = time_left_s(ahead, self._store.lines)
        self._bench.progress.block(label, ended, ended + len(ahead), left_s)

    def _stopped(self) -> str:
        """Why nothing more may run: a finding without a scope, recorded or made just now."""
        for x in self._store.lines:
            if isinstance(x, FindingRecord) and x.stops and not (x.runtime or x.condition):
                return f"{x.name}: {x.text}"
        made = self._bench.tools.boundary(self._manifest, self._store.lines)
        if made is None:
            return ""
        whole = {"runtime": "", "condition": "", "stratum": "", "slots": 0, "stops": True}
        self._find(msgspec.structs.replace(made, run=self._manifest.run, **whole))
        return f"{made.name}: {made.text}"

    def _after(self, block: Block) -> None:
        """What follows from a block that ended, beside its own records; once, whenever killed."""
        if block.kind == "rollback":
            self._identify(block.runtime)
        if block.kind == "isolation" and block.repeat:
            self._isolate(block)

    def _identify(self, runtime: str) -> None:
        """The digests of the program and the files that the rollback was started from."""
        told = [
            x
            for x in self._store.lines
            if isinstance(x, ObservedRecord) and (x.runtime, x.condition) == (runtime, ROLLBACK)
        ]
        digests = _told_digests(told[0]) if told else self._digests(runtime)
        if not told:
            self._store.append_new(
                ObservedRecord(
                    run=self._manifest.run,
                    runtime=runtime,
                    condition=ROLLBACK,
                    at=self._bench.tools.now(),
                    effective={f"sha256:{role}": value for role, value in sorted(digests.items())},
                )
            )
        for role, before in self._pinned(runtime).items():
            now = digests.get(role, UNKNOWN)
            if UNKNOWN not in (before, now) and before != now:
                text = f"{role} had SHA-256 {before} before and has {now} now"
                self._note("identity-changed", text, runtime)

    def _digests(self, runtime: str) -> dict[str, str]:
        try:
            return dict(self._bench.tools.digests(runtime))
        except SlipstreamError as problem:
            self._bench.progress.note(f"the rollback's digests: {problem}")
            return {}

    def _pinned(self, runtime: str) -> dict[str, str]:
        """Role -> SHA-256 of the manifest."""
        found = {a.role: a.sha256 for a in self._manifest.artifacts}
        programs = {r.name: r.binary_sha256 for r in self._manifest.runtimes}
        return {"runtime": programs.get(runtime, UNKNOWN), **found}

    def _isolate(self, block: Block) -> None:
        found = isolation.probed(self._manifest, self._store.lines, block.runtime, block.condition)
        if found.shared:
            text = (
                f"of {found.tokens} tokens of the last tenant {found.after} were drafted right "
                f"after another tenant asked the same, {found.alone} without"
            )
            self._note("shared-pool", text, block.runtime, block.condition)

    def _note(self, name: str, text: str, runtime: str, condition: str = "") -> None:
        self._find(
            FindingRecord(
                run=self._manifest.run, name=name, text=text, runtime=runtime, condition=condition
            )
        )

    def _find(self, finding: FindingRecord) -> None:
        if self._store.append_new(finding):
            self._bench.progress.note(f"{finding.name}: {finding.text}")

    def _outcome(self, ended: Ended, reason: str = "") -> Outcome:
        lines = self._store.lines
        return outcome_of(
            self._manifest,
            lines,
            ended,
            blocks=len(self._ended()),
            left=0 if ended in ("complete", "stopped") else len(self._ahead()),
            elapsed_s=self._spent_s(),
            reason=reason,
        )

    def _warn(self) -> None:
        """Once, where the machine costs many blocks."""
        lost = disturbance(self._store.lines)
        if lost.many and not self._warned:
            self._warned = True
            advice = lost.advice(self._manifest.plan.rules.drift_limit)
            self._bench.progress.note(f"{lost.text()}. {advice}")


def _told_digests(record: ObservedRecord) -> dict[str, str]:
    return {
        key.removeprefix("sha256:"): str(value)
        for key, value in record.effective.items()
        if key.startswith("sha256:")
    }


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does, where this thread may handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
