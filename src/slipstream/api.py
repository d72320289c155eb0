"""The Python interface: a model that generates text.

for piece in Model("smollm2-135m").generate("Once upon a time"):
    print(piece.text, end="")
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from slipstream import drafters as methods
from slipstream.backends.base import Progress
from slipstream.chat import ChatTemplate, Message, encode_chat
from slipstream.drafters.base import Drafter, Pool
from slipstream.drafters.plugins import guarded, require_distinct
from slipstream.drafters.resources import DraftModel
from slipstream.engine.drafting import require_outputs
from slipstream.engine.engine import Trace
from slipstream.engine.sequence import Request
from slipstream.engine.tracing import Sink, Tracing
from slipstream.errors import PairingError, SlipstreamError
from slipstream.keywords import speculation_with, spread
from slipstream.loading import load_model, trace_header
from slipstream.model_engines import EngineKey, ModelEngines
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

__all__ = ["Completion", "Model", "Piece"]

Prompt = str | Sequence[int]
_LOG = logging.getLogger("slipstream")
MOST_ENGINES = 16


class Model:
    """A model file, loaded and ready; safe to use from several threads.

    Calls with equal speculation options share an engine and its drafters. Up to ``parallel`` calls
    run at the same time, whatever their options; those of one engine share its steps. Later calls
    wait for a place; a call that waits runs the steps of those before it and their pieces are kept,
    so one thread may read several streams in any order, also with ``parallel=1``.

    What a call computed of its prompt and output, later calls of the same session need not compute
    again while memory is free (``prefix_cache``; 0 = off).

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
        if self._tracing is not None:
            self._tracing.header(trace_header(self.loaded, self.options, self.engine_options))
        self.engines = ModelEngines(self.loaded, self.engine_options, self._tracing)
        if self.speculation.type != ("none",):
            # what does not fit is refused before any prompt
            self.engines.mailbox((self.speculation, self._objects), progress)

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
            session: whose request it is; what drafters learn of it stays within (decision 0007),
                and so do prompts kept (``prefix_cache``, decision 0009).
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
        """Drafter -> scope (``session NAME``, ``request N`` or ``all``) -> what it learned."""
        return self.engines.remembered()

    def forget(self, session: str | None = None) -> None:
        """Erase what drafters learned and prompts kept in a session, or in all.

        Then all engines start anew. Requests that still run learn anew from their own texts, for
        themselves alone where everything was erased. With ``draft_scope="all"`` a session cannot be
        told from the others in what drafters learned: all of that goes.

        Raises:
            BackendError: a drafter of others failed to forget.
        """
        self.engines.forget(session)

    @property
    def on_decision(self) -> Trace | None:
        """Receives every decision and the round it became, within the step.

        So it must not call the model. One that fails is not called again.
        """
        return self.engines.on_decision

    @on_decision.setter
    def on_decision(self, listener: Trace | None) -> None:
        self.engines.on_decision = listener

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
        return self.engines.draft_models.of(speculation)

    def _options(
        self, keywords: Mapping[str, Any], drafters: Sequence[Drafter] | None
    ) -> tuple[SamplingOptions, EngineKey]:
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

    def _pieces(self, request: Request, key: EngineKey) -> Iterator[Piece]:
        """A draft model is loaded at once; the rest happens while the pieces are read."""
        return pieces_of(self.engines.mailbox(key).run(request))


def _check_methods(speculation: SpeculationOptions) -> None:
    methods.check_names(speculation.type, draft_model=speculation.draft_model is not None)


def _names_none(methods: Any) -> bool:
    return methods == "none" or (not isinstance(methods, str) and list(methods) == ["none"])
