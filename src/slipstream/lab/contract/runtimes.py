"""The contract of a program under measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from slipstream.lab.contract.manifest import Manifest, MethodIdentity, RuntimeIdentity
from slipstream.lab.contract.plan import ConditionPlan, Plan, RuntimePlan
from slipstream.lab.contract.records import Counts, ObservedRecord

FRESH: Final = "{fresh}"
LEAST_READY_S: Final = {"slipstream": 300.0, "llama-server": 120.0}
"""Kind -> seconds in which a model is loaded, however short the limit of a request is."""


def ready_limit_s(kind: str, timeout_s: float) -> float:
    """Seconds that a program is waited for until it is ready; 0 = the lab does not start it."""
    least = LEAST_READY_S.get(kind, 0.0)
    return max(timeout_s, least) if least else 0.0


@dataclass(frozen=True)
class Endpoint:
    """A server that is ready.

    Attributes:
        url: without a path.
        dialect: ``llama`` (``/completion`` with ids), ``openai`` (chat completions), or
            ``llama-chat`` (chat completions with llama.cpp's names of settings).
        headers: of every request.
        pids: of its processes; empty where they are not ours.
        log: file that its output goes to, or None.
        model: name that every request's body carries; empty = none.
        extra: further keys of every request's body, where it has none of that name; ``FRESH`` as
            a value is the tenant, or where there is none another text for every request.
    """

    url: str
    dialect: str
    headers: Mapping[str, str] = field(default_factory=dict)
    pids: tuple[int, ...] = ()
    log: Path | None = None
    model: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Metrics:
    """Counters of a server at one moment.

    Attributes:
        raw: text of ``/metrics``; empty where there is none.
        counts: of drafting, cumulative.
        resets: a number that changes when counters begin anew (process start time), or None.
        rows: rows of a step that verified drafts -> steps so far; None where it is not told.
    """

    raw: str
    counts: Counts
    resets: float | None = None
    rows: Mapping[str, int] | None = None


class Runtime(Protocol):
    """A program under measurement; one condition at a time.

    Raises (every method):
        PeerRuntimeError: the program failed, said something it should not, or is not there.
        OptionError: the plan asks for what this runtime does not have.
    """

    name: str
    plan: RuntimePlan

    def identity(self, folder: Path) -> RuntimeIdentity:
        """Who it is, before it is started; saves its help text in ``folder``."""
        ...

    def method(self, condition: ConditionPlan, plan: Plan) -> MethodIdentity:
        """What a condition is here: flags, parameters passed and left, most tokens proposed.

        A flag that its help does not have makes it ``not_run``, with the flag as the reason.
        """
        ...

    def start(self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path) -> Endpoint:
        """A fresh process (or, for a server that runs already, its endpoint), ready to answer.

        Raises:
            PeerRuntimeError: it is a router, serves another model, or was not ready in time.
        """
        ...

    def observed(self, method: MethodIdentity) -> ObservedRecord:
        """What it says of itself now; ``unknown`` where it says nothing."""
        ...

    def probe(
        self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path
    ) -> ObservedRecord:
        """An untimed start of the same binary and condition with its debug log, and what it shows.

        Its kernel paths belong to this binary and condition alone; ``observed`` repeats them.
        It stops what runs. A server that runs already is only asked.
        """
        ...

    def metrics(self) -> Metrics: ...

    def peak_rss_bytes(self) -> int | None: ...

    def stop(self) -> Sequence[str]:
        """End it and return what its log holds that a reader must know. Idempotent."""
        ...


Runtimes = Mapping[str, Any]
"""Kind -> class; filled in ``lab.runtimes.registry``."""
