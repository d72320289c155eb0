"""A server that the lab starts and ends itself: what every program of that kind has in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.contract.manifest import Manifest, MethodIdentity
from slipstream.lab.contract.plan import RuntimePlan
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.runtimes.kept_log import KeptLog, heard_nothing
from slipstream.lab.runtimes.server_process import ServerProcess


class OwnServer:
    """One process at a time, from its start to what its log holds after its end.

    Args:
        name: of the runtime in the plan.
    """

    def __init__(self, name: str, plan: RuntimePlan) -> None:
        self.name, self.plan = name, plan
        self._process: ServerProcess | None = None
        self._log: KeptLog | None = None
        self._endpoint: Endpoint | None = None
        self._manifest: Manifest | None = None
        self._slots = 1
        self._peak: int | None = None
        self._found: tuple[str, ...] = ()

    def _begin(self, method: MethodIdentity, manifest: Manifest, slots: int) -> None:
        """Before a start: what ran has ended.

        Raises:
            OptionError: the condition cannot run here.
        """
        if method.not_run:
            raise OptionError(f"a condition that {self.name} can run", method.not_run, "Skip it.")
        self.stop()
        self._manifest, self._slots, self._found = manifest, slots, ()

    @contextlib.contextmanager
    def _started(
        self,
        command: Sequence[str],
        log: Path,
        *,
        heard: Callable[[bytes], None] = heard_nothing,
        stdout: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[ServerProcess]:
        """A fresh process; ended again where it does not get ready, or serves something else."""
        process = ServerProcess(
            self.name, command, log, heard=heard, stdout=stdout, environment=environment
        )
        self._process, self._log = process, process.kept
        try:
            yield process
        except BaseException:
            self.stop()
            raise

    def _running(self) -> Endpoint:
        if self._endpoint is None or self._process is None:
            raise PeerRuntimeError(f"{self.name} to run", "it is not started", "Start it.")
        return self._endpoint

    def peak_rss_bytes(self) -> int | None:
        """See ``Runtime.peak_rss_bytes``."""
        return self._peak if self._process is None else self._process.memory.peak_bytes()

    def stop(self) -> Sequence[str]:
        """See ``Runtime.stop``."""
        if self._process is None:
            return self._found
        process, self._process = self._process, None
        ended = process.end()
        self._peak = process.memory.peak_bytes()
        self._found = (*ended, *process.kept.findings())
        return self._found
