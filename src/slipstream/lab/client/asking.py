"""One request of a run and what the run needs of its answer, whichever client brings it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipstream.lab.contract.records import Counts
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.measure.workload import WorkloadPrompt

GREEDY: Mapping[str, Any] = {"temperature": 0.0}


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        prompt: its messages; its ``schema`` constrains the output where ``constrained`` is set.
        sampling: keys of ``SamplingOptions``; greedy at the first stage.
        logprobs: alternatives wanted at each token; None = none, as in everything that is timed.
        tenant: session that the request belongs to; ``slot`` of the server, None = any.
        after: ids of an output that follows the prompt and is gone on with.
    """

    prompt: WorkloadPrompt
    max_tokens: int
    seed: int
    timeout_s: float
    stop: tuple[str, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=lambda: dict(GREEDY))
    logprobs: int | None = None
    constrained: bool = False
    tenant: str = ""
    slot: int | None = None
    after: tuple[int, ...] = ()

    def options(self) -> dict[str, Any]:
        """Keys and values of ``SamplingOptions``, what the plan fixes over what it samples with."""
        made = dict(self.sampling)
        made |= {"max_tokens": self.max_tokens, "seed": self.seed}
        if self.stop:
            made["stop"] = self.stop
        if self.logprobs is not None:
            made["logprobs"] = self.logprobs
        schema = getattr(self.prompt, "schema", None)
        if self.constrained and schema is not None:
            made["json_schema"] = json.dumps(schema)
        return made


class Answered(Protocol):
    """What came back; ``lab.client.answer.Answer`` describes each member."""

    @property
    def sent_s(self) -> float: ...
    @property
    def total_s(self) -> float | None: ...
    @property
    def text(self) -> str: ...
    @property
    def reasoning(self) -> str: ...
    @property
    def tool_calls(self) -> tuple[Mapping[str, str], ...]: ...
    @property
    def ids(self) -> tuple[int, ...]: ...
    @property
    def tops(self) -> tuple[tuple[tuple[int | str, float], ...], ...]: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def counts(self) -> Counts: ...
    @property
    def diagnostics(self) -> tuple[str, ...]: ...
    @property
    def error(self) -> str: ...
    @property
    def timed_out(self) -> bool: ...

    def fields(self, origin_s: float = 0.0) -> dict[str, Any]:
        """Keyword arguments of ``RequestRecord``; times from ``origin_s``."""
        ...


class Reply(Protocol):
    """What came, not yet read: of several requests at a time none waits while another is read."""

    @property
    def failed(self) -> bool:
        """Whether the connection shows already that there is no answer."""
        ...

    def answer(self) -> Answered: ...


class Send(Protocol):
    """One request and its reply. What a server does wrong is in the answer.

    Raises:
        SlipstreamError: the request itself cannot be made.
    """

    async def __call__(self, endpoint: Endpoint, asked: Asked) -> Reply: ...


Judge = Callable[[WorkloadPrompt, str, str | None, str], Mapping[str, bool | None]]
"""``judgements.judge``: (prompt, text, text of the baseline or None, finish reason)."""


@dataclass(frozen=True)
class Refused:
    """Reply and answer to a request that could not be made."""

    error: str
    timed_out: bool = False
    sent_s: float = 0.0
    total_s: float | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, str], ...] = ()
    ids: tuple[int, ...] = ()
    tops: tuple[tuple[tuple[int | str, float], ...], ...] = ()
    finish_reason: str = ""
    counts: Counts = field(default_factory=Counts)
    diagnostics: tuple[str, ...] = ()

    def fields(self, origin_s: float = 0.0) -> dict[str, Any]:
        sent_s = round(self.sent_s - origin_s, 6)
        return {"sent_s": sent_s, "error": self.error, "timed_out": self.timed_out}

    @property
    def failed(self) -> bool:
        return True

    def answer(self) -> Refused:
        return self
