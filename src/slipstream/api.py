"""The Python interface: a model that generates text.

for piece in Model("smollm2-135m").generate("Once upon a time"):
    print(piece.text, end="")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from slipstream import drafters
from slipstream.backends.base import Progress
from slipstream.chat import ChatTemplate, Message, encode_chat
from slipstream.drafters.base import Drafter
from slipstream.drafters.resources import Resources
from slipstream.engine.controllers import controller_for
from slipstream.engine.engine import Engine, Trace
from slipstream.engine.events import EmittedToken, Event
from slipstream.engine.mailbox import Mailbox, Mailroom
from slipstream.engine.scheduler import Places
from slipstream.engine.sequence import Request
from slipstream.engine.statistics import Statistics
from slipstream.keywords import speculation_with, spread
from slipstream.loading import load_model
from slipstream.options import (
    EngineOptions,
    ModelOptions,
    SamplingOptions,
    SpeculationOptions,
    from_mapping,
)
from slipstream.verify.matching import Matching

Prompt = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step added to an output.

    Attributes:
        text: new text, perhaps empty; never half a character, never part of a stop string.
        tokens: new tokens, each with its id, text, origin and log-probabilities.
        finish_reason, statistics: set on the last piece.
    """

    text: str
    tokens: tuple[EmittedToken, ...]
    finish_reason: str | None = None
    statistics: Statistics | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.tokens)

    @property
    def from_draft(self) -> tuple[bool, ...]:
        """Per token, whether it was an accepted draft token."""
        return tuple(token.from_draft for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole output.

    Attributes:
        tokens: an end-of-generation token included.
        finish_reason: ``stop`` or ``length``.
    """

    text: str
    tokens: tuple[EmittedToken, ...]
    finish_reason: str
    statistics: Statistics

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.tokens)

    @property
    def logprobs(self) -> tuple[float | None, ...]:
        """Per token; None unless ``logprobs`` was asked for."""
        return tuple(token.logprob for token in self.tokens)

    @property
    def stats(self) -> dict[str, object]:
        return self.statistics.summary()


class Model:
    """A model file, loaded and ready; safe to use from several threads.

    Calls with equal speculation options share an engine and its drafters. Up to ``parallel`` calls
    run at the same time, whatever their options; those of one engine share its steps. Later calls
    wait for a place; a call that waits runs the steps of those before it and their pieces are kept,
    so one thread may read several streams in any order, also with ``parallel=1``.

    Args:
        model: a path, a catalogue name or ``owner/repo:file``.
        progress: called with (weight bytes done, weight bytes in all) while it loads.
        keywords: fields of ``ModelOptions``, ``EngineOptions`` and ``SpeculationOptions``; the
            last are defaults that a call may override.

    Attributes:
        on_decision: receives every decision and the round it became; set it before the first call.

    Raises:
        OptionError: an unknown option or a value out of range.
        InputError: the model cannot be found or run.
        OperationError: memory or the backend is missing.
    """

    def __init__(self, model: str, *, progress: Progress | None = None, **keywords: Any) -> None:
        for_model, for_engine, for_speculation = spread(
            {"model": str(model), **keywords}, ModelOptions, EngineOptions, SpeculationOptions
        )
        self.options = from_mapping(ModelOptions, for_model)
        self.engine_options = from_mapping(EngineOptions, for_engine)
        self.speculation = from_mapping(SpeculationOptions, for_speculation)
        if self.speculation.type != ("none",):
            speculation_with(self.speculation, for_speculation)
        _check_methods(self.speculation)
        self.loaded = load_model(self.options, self.engine_options, progress)
        self.tokenizer = self.loaded.tokenizer
        self._lock = Lock()
        self._room = Mailroom(Places(self.engine_options.parallel))
        self._mailboxes: dict[SpeculationOptions, Mailbox] = {}
        self.on_decision: Trace | None = None

    def generate(self, prompt: Prompt, **keywords: Any) -> Iterator[Piece]:
        """Pieces of an output as they come; closing the iterator cancels the request.

        Args:
            prompt: text, or token ids used as they are.
            keywords: fields of ``SamplingOptions`` and ``SpeculationOptions``.

        Raises:
            InputError: an option or the prompt is at fault.
            OperationError: the pass failed.
        """
        sampling, speculation = self._options(keywords)
        ids = (
            self.tokenizer.encode(prompt, parse_special=True) if isinstance(prompt, str) else prompt
        )
        return self._pieces(Request(ids, sampling), speculation)

    async def generate_async(self, prompt: Prompt, **keywords: Any) -> AsyncIterator[Piece]:
        """As ``generate``; each step runs in a worker thread."""
        import asyncio

        pieces = self.generate(prompt, **keywords)
        step = None
        try:
            while True:
                step = asyncio.ensure_future(asyncio.to_thread(next, pieces, None))
                piece = await asyncio.shield(step)
                if piece is None:
                    return
                yield piece
        finally:
            # a cancelled task leaves its step running; the generator cannot close before it ends
            if step is not None and not step.done():
                await asyncio.wait([step])
            pieces.close()  # type: ignore[attr-defined]

    def complete(self, prompt: Prompt, **keywords: Any) -> Completion:
        """The whole output; arguments and errors as ``generate``."""
        return _completion(self.generate(prompt, **keywords))

    def chat(self, messages: Sequence[Message], **keywords: Any) -> Completion:
        """The reply to a conversation, through the model's own template.

        Args:
            messages: ``{"role": ..., "content": ...}`` each.

        Raises:
            TemplateError: the model has no template, or it refuses the messages.
        """
        return _completion(self.stream_chat(messages, **keywords))

    def stream_chat(self, messages: Sequence[Message], **keywords: Any) -> Iterator[Piece]:
        """As ``chat``, piece by piece."""
        sampling, speculation = self._options(keywords)
        return self._pieces(Request(self.chat_ids(messages), sampling), speculation)

    def chat_ids(self, messages: Sequence[Message]) -> list[int]:
        """The prompt of a conversation, ready for a reply; errors as ``chat``."""
        return encode_chat(self.tokenizer, self.template.render(messages))

    @cached_property
    def template(self) -> ChatTemplate:
        return ChatTemplate.from_metadata(self.loaded.file.metadata, self.tokenizer)

    def forget(self) -> None:
        """Drop what the drafters learned; requests that still run keep theirs."""
        with self._lock:
            self._mailboxes = {}

    def _drafters(self, speculation: SpeculationOptions) -> tuple[Drafter, ...]:
        resources = Resources(
            self.tokenizer,
            self.loaded.program.graph.vocabulary,
            self.loaded.context,
            self.engine_options.parallel,
        )
        return drafters.create(speculation.type, speculation, resources)

    def _options(self, keywords: Mapping[str, Any]) -> tuple[SamplingOptions, SpeculationOptions]:
        for_sampling, for_speculation = spread(keywords, SamplingOptions, SpeculationOptions)
        speculation = speculation_with(self.speculation, for_speculation)
        _check_methods(speculation)
        return from_mapping(SamplingOptions, for_sampling), speculation

    def _pieces(self, request: Request, speculation: SpeculationOptions) -> Iterator[Piece]:
        events = self._mailbox(speculation).run(request)
        try:
            for event in events:
                yield _piece(event)
        finally:
            events.close()  # type: ignore[attr-defined]

    def _mailbox(self, speculation: SpeculationOptions) -> Mailbox:
        """The engine of these speculation options; all share program and memory."""
        with self._lock:
            if speculation not in self._mailboxes:
                made = self._drafters(speculation)
                engine = Engine(
                    self.loaded.program,
                    self.tokenizer,
                    drafters=made,
                    scope=speculation.draft_scope,
                    verifier=Matching(),
                    context=self.loaded.context,
                    options=self.engine_options,
                    places=self._room.places,
                    primitives=self.loaded.primitives,
                    controller=controller_for(made, fixed=speculation.fixed),
                    trace=self.on_decision,
                )
                self._mailboxes[speculation] = Mailbox(engine, self._room)
            return self._mailboxes[speculation]


def _check_methods(speculation: SpeculationOptions) -> None:
    drafters.check_names(speculation.type, draft_model=speculation.draft_model is not None)


def _piece(event: Event) -> Piece:
    if event.error is not None:
        raise event.error
    return Piece(event.text, event.tokens, event.finish_reason, event.statistics)


def _completion(pieces: Iterator[Piece]) -> Completion:
    collected = list(pieces)
    last = collected[-1]
    assert last.finish_reason is not None
    assert last.statistics is not None
    text = "".join(piece.text for piece in collected)
    tokens = tuple(token for piece in collected for token in piece.tokens)
    return Completion(text, tokens, last.finish_reason, last.statistics)
