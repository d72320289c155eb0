"""The Python interface: a model that generates text.

for piece in Model("smollm2-135m").generate("Once upon a time"):
    print(piece.text, end="")
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec.structs import asdict

from slipstream import drafters as methods
from slipstream.backends.base import Progress
from slipstream.chat import ChatTemplate, Message, encode_chat
from slipstream.drafters.base import Drafter, Pool
from slipstream.drafters.plugins import GuardedDrafter, guarded, require_distinct
from slipstream.drafters.resources import DraftModel, Resources
from slipstream.engine.controller import Decision
from slipstream.engine.controllers import controller_for
from slipstream.engine.drafting import require_outputs
from slipstream.engine.engine import Engine, Trace
from slipstream.engine.mailbox import Mailbox, Mailroom
from slipstream.engine.scheduler import Places
from slipstream.engine.sequence import Request
from slipstream.engine.statistics import Round
from slipstream.engine.tracing import EngineTracing, Sink, Tracing
from slipstream.errors import PairingError, SlipstreamError
from slipstream.keywords import speculation_with, spread
from slipstream.loading import load_draft_model, load_model, trace_header
from slipstream.options import (
    GRAMMARS,
    EngineOptions,
    ModelOptions,
    SamplingOptions,
    SpeculationOptions,
    from_mapping,
)
from slipstream.pieces import Completion, Piece, completion_of, pieces_of
from slipstream.structured import Grammars
from slipstream.verify.choice import verifier_for

__all__ = ["Completion", "Model", "Piece"]

Prompt = str | Sequence[int]
_LOG = logging.getLogger("slipstream")


class Model:
    """A model file, loaded and ready; safe to use from several threads.

    Calls with equal speculation options share an engine and its drafters. Up to ``parallel`` calls
    run at the same time, whatever their options; those of one engine share its steps. Later calls
    wait for a place; a call that waits runs the steps of those before it and their pieces are kept,
    so one thread may read several streams in any order, also with ``parallel=1``.

    Args:
        model: a path, a catalogue name or ``owner/repo:file``.
        progress: called with (weight bytes done, weight bytes in all) while it loads.
        drafters: drafter objects (see ``slipstream.drafters.base``) at work in every call, beside
            the methods that ``spec`` names; a call may give others. ``spec="none"`` in a call
            leaves them out. An object belongs to one model.
        trace: a file, or a function of each record (``slipstream.engine.trace_format``), that gets
            every round; ``trace_failure`` tells why it ended early. The function must not use the
            model.
        keywords: fields of ``ModelOptions``, ``EngineOptions`` and ``SpeculationOptions``; the
            last are defaults that a call may override.

    Attributes:
        on_decision: receives every decision and the round it became; set it before the first call.

    Raises:
        OptionError: an unknown option or a value out of range.
        InputError: the model cannot be found or run.
        OperationError: memory or the backend is missing, or the trace cannot be written.
    """

    def __init__(
        self,
        model: str,
        *,
        progress: Progress | None = None,
        drafters: Sequence[Drafter] = (),
        trace: str | Path | Sink | None = None,
        **keywords: Any,
    ) -> None:
        for_model, for_engine, for_speculation = spread(
            {"model": str(model), **keywords}, ModelOptions, EngineOptions, SpeculationOptions
        )
        self.options = from_mapping(ModelOptions, for_model)
        self.engine_options = from_mapping(EngineOptions, for_engine)
        self.speculation = from_mapping(SpeculationOptions, for_speculation)
        self._objects = guarded(drafters)
        require_distinct([*(drafter.name for drafter in self._objects), *self.speculation.type])
        if self.speculation.type != ("none",) or self._objects:
            names = [drafter.name for drafter in self._objects]
            speculation_with(self.speculation, for_speculation, names)
        _check_methods(self.speculation)
        self._tracing = None if trace is None else Tracing(trace)
        self.loaded = load_model(self.options, self.engine_options, progress)
        self.tokenizer = self.loaded.tokenizer
        require_outputs(self._objects, self.loaded.program.graph)
        self._lock = Lock()
        self._room = Mailroom(Places(self.engine_options.parallel))
        self._mailboxes: dict[_EngineKey, Mailbox] = {}
        self._warned = False
        self.on_decision: Trace | None = None
        if self._tracing is not None:
            self._tracing.header(trace_header(self.loaded, self.options, self.engine_options))
        self._progress: Progress | None = progress
        self._draft_models: dict[tuple[str, int | None], DraftModel | PairingError] = {}
        if self.speculation.type != ("none",):
            # what does not fit is refused before any prompt
            self._mailbox((self.speculation, self._objects))
        self._progress = None  # the caller's display ends with this call

    def generate(
        self,
        prompt: Prompt,
        *,
        session: str = "",
        drafters: Sequence[Drafter] | None = None,
        **keywords: Any,
    ) -> Iterator[Piece]:
        """Pieces of an output as they come; closing the iterator cancels the request.

        Args:
            prompt: text, or token ids used as they are.
            session: whose request it is; what drafters learn of it stays within (decision 0007).
            drafters: drafter objects at work instead of the model's.
            keywords: fields of ``SamplingOptions`` and ``SpeculationOptions``.

        Raises:
            InputError: an option or the prompt is at fault.
            OperationError: the pass failed.
        """
        sampling, key = self._options(keywords, drafters)
        ids = (
            self.tokenizer.encode(prompt, parse_special=True) if isinstance(prompt, str) else prompt
        )
        return self._pieces(self._request(ids, sampling, session), key)

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
        return completion_of(self.generate(prompt, **keywords))

    def chat(self, messages: Sequence[Message], **keywords: Any) -> Completion:
        """The reply to a conversation, through the model's own template.

        Args:
            messages: ``{"role": ..., "content": ...}`` each.
            keywords: the other arguments of ``generate``.

        Raises:
            TemplateError: the model has no template, or it refuses the messages.
        """
        return completion_of(self.stream_chat(messages, **keywords))

    def stream_chat(
        self,
        messages: Sequence[Message],
        *,
        session: str = "",
        drafters: Sequence[Drafter] | None = None,
        **keywords: Any,
    ) -> Iterator[Piece]:
        """As ``chat``, piece by piece."""
        sampling, key = self._options(keywords, drafters)
        request = self._request(self.chat_ids(messages), sampling, session)
        return self._pieces(request, key)

    def chat_ids(self, messages: Sequence[Message]) -> list[int]:
        """The prompt of a conversation, ready for a reply; errors as ``chat``."""
        return encode_chat(self.tokenizer, self.template.render(messages))

    @cached_property
    def template(self) -> ChatTemplate:
        return ChatTemplate.from_metadata(self.loaded.file.metadata, self.tokenizer)

    @cached_property
    def grammars(self) -> Grammars:
        """Compiles what ``json_schema``, ``grammar`` and ``regex`` demand of an output."""
        return Grammars(self.tokenizer)

    def _request(self, ids: Sequence[int], sampling: SamplingOptions, session: str) -> Request:
        if not any(getattr(sampling, name) is not None for name in GRAMMARS):
            return Request(ids, sampling, session=session)
        constraint = self.grammars.constraint(sampling)
        return Request(ids, sampling, session=session, constraint=constraint)

    def remembered(self) -> dict[str, dict[str, Pool]]:
        """Drafter -> scope (``session NAME``, ``request N`` or ``all``) -> what it learned there.

        Engines of different speculation options learn apart; here they are added up.
        """
        found: dict[str, dict[str, Pool]] = {}
        with self._lock, self._room.lock:
            for mailbox in self._engines():
                for name, scope, pool in mailbox.engine.drafting.remembered():
                    scopes = found.setdefault(name, {})
                    known = scopes.get(scope, Pool(0, 0))
                    scopes[scope] = Pool(known.tokens + pool.tokens, known.bytes + pool.bytes)
        return found

    def forget(self, session: str | None = None) -> None:
        """Erase what the drafters learned in a session, or in all; then all engines start anew.

        Requests that still run learn anew from their own texts, for themselves alone where
        everything was erased. With ``draft_scope="all"`` a session cannot be told from the others:
        everything goes.

        Raises:
            BackendError: a drafter of others failed to forget.
        """
        with self._lock, self._room.lock:
            engines = self._engines()
            if session is None:
                self._mailboxes = {}
            for mailbox in engines:
                mailbox.engine.forget(session)

    def _engines(self) -> list[Mailbox]:
        """Those for new requests, and others whose requests still run."""
        return list(dict.fromkeys((*self._mailboxes.values(), *self._room.open)))

    @property
    def trace_failure(self) -> SlipstreamError | None:
        """Why the trace ended before the model did, or None."""
        return None if self._tracing is None else self._tracing.failure

    def draft_model(self, speculation: SpeculationOptions) -> DraftModel | PairingError | None:
        """The draft model of some options, loaded when first wanted; None where they use none.

        An error is the reason why it is not used, where ``draft_fallback`` allows that.

        Raises:
            PairingError: its vocabulary is not the target's.
            InputError: the model cannot be found or run.
        """
        name = speculation.draft_model
        if name is None or not methods.reads_draft_model(speculation.type):
            return None
        key = (name, speculation.draft_vocab)
        if key not in self._draft_models:
            try:
                found = load_draft_model(name, self.loaded, key[1], self._progress)
                self._draft_models[key] = found
            except PairingError as error:
                self._draft_models[key] = error
        kept = self._draft_models[key]
        if isinstance(kept, PairingError) and not speculation.draft_fallback:
            raise kept
        return kept

    def _drafters(self, key: _EngineKey) -> tuple[Drafter, ...]:
        speculation, objects = key
        found = self.draft_model(speculation)
        resources = Resources(
            self.tokenizer,
            self.loaded.program.graph.vocabulary,
            self.loaded.context,
            self.engine_options.parallel,
            found if isinstance(found, DraftModel) else None,
            found if isinstance(found, PairingError) else None,
            self.engine_options.prefill_chunk,
            self.engine_options.step_time_limit_s,
        )
        named = methods.create(speculation.type, speculation, resources)
        return methods.arranged((*named, *objects))

    def _options(
        self, keywords: Mapping[str, Any], drafters: Sequence[Drafter] | None
    ) -> tuple[SamplingOptions, _EngineKey]:
        for_sampling, for_speculation = spread(keywords, SamplingOptions, SpeculationOptions)
        given = for_speculation.get("type")
        if given is not None and drafters is None and _names_none(given):
            drafters = ()
        objects = self._objects if drafters is None else guarded(drafters)
        names = [drafter.name for drafter in objects]
        speculation = speculation_with(self.speculation, for_speculation, names)
        _check_methods(speculation)
        require_distinct([*names, *speculation.type])
        require_outputs(objects, self.loaded.program.graph)
        return from_mapping(SamplingOptions, for_sampling), (speculation, objects)

    def _pieces(self, request: Request, key: _EngineKey) -> Iterator[Piece]:
        """A draft model is loaded at once; the rest happens while the pieces are read."""
        return pieces_of(self._mailbox(key).run(request))

    def _mailbox(self, key: _EngineKey) -> Mailbox:
        """The engine of these speculation options and drafters; all share program and memory."""
        with self._lock:
            if key not in self._mailboxes:
                self._mailboxes[key] = Mailbox(self._engine(key), self._room)
            return self._mailboxes[key]

    def _engine(self, key: _EngineKey) -> Engine:
        speculation, _ = key
        drafters, verifier = self._drafters(key), verifier_for(speculation)
        tracing = None
        if self._tracing is not None:
            names = [drafter.name for drafter in drafters]
            tracing = self._tracing.engine(names, verifier.name, asdict(speculation))
        self._warn_of(speculation)
        return Engine(
            self.loaded.program,
            self.tokenizer,
            drafters=drafters,
            scope=speculation.draft_scope,
            verifier=verifier,
            context=self.loaded.context,
            options=self.engine_options,
            places=self._room.places,
            identities=self._room.identities,
            primitives=self.loaded.primitives,
            controller=controller_for(drafters, fixed=speculation.fixed),
            trace=self._teller(tracing),
            ended=None if tracing is None else tracing.end,
        )

    def _teller(self, tracing: EngineTracing | None) -> Trace:
        """Tells the trace, and whoever listens when a round ends, of every round."""

        def tell(decision: Decision, made: Round) -> None:
            if tracing is not None:
                tracing.round(decision, made)
            if self.on_decision is not None:
                self.on_decision(decision, made)

        return tell

    def _warn_of(self, speculation: SpeculationOptions) -> None:
        """Say once that drafters learn across sessions."""
        if speculation.draft_scope == "all" and not self._warned:
            self._warned = True
            _LOG.warning(
                "draft_scope=all: what one session's texts teach the drafters shows in the drafts, "
                "counts and timing of every other session"
            )


_EngineKey = tuple[SpeculationOptions, tuple[GuardedDrafter, ...]]


def _check_methods(speculation: SpeculationOptions) -> None:
    methods.check_names(speculation.type, draft_model=speculation.draft_model is not None)


def _names_none(methods: Any) -> bool:
    return methods == "none" or (not isinstance(methods, str) and list(methods) == ["none"])
