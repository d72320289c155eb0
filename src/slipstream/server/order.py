"""One description of a request, made by every endpoint, and what it becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipstream.chat import Message
from slipstream.options import SamplingOptions
from slipstream.server.texts import Texts
from slipstream.server.wire import Load, Speculation, WireEvent
from slipstream.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        session: begins with a digest of the API key (or is empty), then the request's own field.
    """

    session: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """What an endpoint wants of the engine.

    Attributes:
        prompt: token ids; see ``Service.prompt_ids`` and ``Service.chat_ids``.
        sampling: every choice's; ``logprobs`` None where nobody asked.
        speculation: None = the server's, or the profile's for ``workload``.
        choices: outputs wanted (OpenAI's ``n``).
        workload: tag that a profile maps to a method; None = no tag.
        deadline_s: from its arrival.
        endpoint: path, for the metrics.
        reuse: whether earlier requests may be made use of, and this one be remembered.
    """

    prompt: Sequence[int]
    sampling: SamplingOptions
    speculation: Speculation | None = None
    choices: int = 1
    workload: str | None = None
    deadline_s: float | None = None
    endpoint: str = ""
    reuse: bool = True


class Generation(Protocol):
    """An order that runs.

    Attributes:
        order: as it runs: seed drawn, profile applied.
        id: text for the reply's ``id`` without a prefix; created at ``created_s`` (Unix seconds).
        speculation: in effect, as it is echoed.
    """

    order: Order
    id: str
    created_s: int
    speculation: Mapping[str, Any]

    def events(self) -> AsyncIterator[tuple[int, WireEvent]]:
        """(choice, event) as they come, until every choice has its last one.

        Closing it early cancels what still runs. An event with ``error`` ends its choice.
        """

    def cancel(self) -> None: ...


class Service(Protocol):
    """What endpoints use; one per server, on the event loop.

    Attributes:
        name: of the model, as clients may spell it; a request's ``model`` may be anything (local
            clients send all sorts of names) and the reply names the real one.
        tokenizer: of the target.
        texts: over it, with the limit on prompts.
        context: most tokens of a sequence.
        sampling: the server's defaults.
        facts, methods: of ``wire.Ready``.
        load: newest state of the engine.
    """

    name: str
    tokenizer: Tokenizer
    context: int
    sampling: SamplingOptions
    facts: Mapping[str, Any]
    methods: Mapping[str, Mapping[str, Any]]
    load: Load

    @property
    def texts(self) -> Texts: ...

    async def prompt_ids(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of a text; long ones are encoded off the event loop. Control tokens are parsed."""

    async def chat_ids(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The prompt of a conversation by the model's template, off the event loop.

        Raises:
            TemplateError: no template, or it refuses the messages.
        """

    async def generate(self, order: Order, caller: Caller) -> Generation:
        """
        Raises:
            InputError: the order is at fault.
            OverloadedError: the queue is full, or the server is stopping.
        """

    async def ask(self, what: str, session: str | None) -> dict[str, Any]:
        """``wire.Ask``."""


@dataclass
class Timing:
    """What one choice cost, gathered from its events; seconds on the loop's clock.

    Attributes:
        arrived_s: when the request was read.
        first_s, last_s: of its first and newest token.
        tokens: emitted.
        drafted, tested, accepted: so far.
        reached_at, accepted_at: drafts examined and accepted at each position, so far.
    """

    arrived_s: float
    first_s: float | None = None
    last_s: float | None = None
    tokens: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    reached_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    summary: Mapping[str, Any] = field(default_factory=dict)
