"""The engines of one loaded model: one per set of speculation options and drafter objects."""

from __future__ import annotations

import logging
from threading import Lock

from msgspec.structs import asdict

from slipstream import drafters as methods
from slipstream.backends.base import Progress
from slipstream.draft_models import DraftModels
from slipstream.drafters.base import Drafter, Pool
from slipstream.drafters.plugins import GuardedDrafter
from slipstream.drafters.resources import DraftModel, Resources
from slipstream.engine.controller import Decision
from slipstream.engine.controllers import controller_for
from slipstream.engine.engine import Engine, Trace
from slipstream.engine.mailbox import Mailbox, Mailroom
from slipstream.engine.prefix_cache import PrefixCache
from slipstream.engine.scheduler import Places
from slipstream.engine.statistics import Round
from slipstream.engine.tracing import EngineTracing, Tracing
from slipstream.errors import BackendError, PairingError
from slipstream.loading import LoadedModel
from slipstream.options import EngineOptions, SpeculationOptions
from slipstream.verify.choice import verifier_for

_LOG = logging.getLogger("slipstream")
MOST_ENGINES = 16

EngineKey = tuple[SpeculationOptions, tuple[GuardedDrafter, ...]]


class ModelEngines:
    """They share the model's program, memory, places and kept prompts.

    Safe to use from several threads.

    Args:
        loaded: the model.
        options: limits on sequences, rows and seconds of a pass.
        tracing: gets every round, or None.

    Attributes:
        on_decision: receives every decision and the round it became, within the step.
        draft_models, prefixes: shared by the engines.
    """

    def __init__(
        self, loaded: LoadedModel, options: EngineOptions, tracing: Tracing | None
    ) -> None:
        self.loaded = loaded
        self.options = options
        self.draft_models = DraftModels(loaded)
        self.on_decision: Trace | None = None
        self.room = Mailroom(Places(options.parallel))
        self.prefixes: PrefixCache | None = None
        if options.prefix_cache:
            self.prefixes = PrefixCache(loaded.program.memory, options.prefix_cache)
        self.mailboxes: dict[EngineKey, Mailbox] = {}
        self._tracing = tracing
        self._lock = Lock()
        self._warned = False

    def remembered(self) -> dict[str, dict[str, Pool]]:
        """Drafter -> scope (``session NAME``, ``request N`` or ``all``) -> what it learned there.

        Engines of different speculation options learn apart; here they are added up.
        """
        found: dict[str, dict[str, Pool]] = {}
        with self._lock, self.room.lock:
            for mailbox in self._engines():
                for name, scope, pool in mailbox.engine.drafting.remembered():
                    scopes = found.setdefault(name, {})
                    known = scopes.get(scope, Pool(0, 0))
                    scopes[scope] = Pool(known.tokens + pool.tokens, known.bytes + pool.bytes)
        return found

    def forget(self, session: str | None = None) -> None:
        """Erase what drafters learned and prompts kept in a session, or in all.

        Then all engines start anew. Requests that still run learn anew from their own texts, for
        themselves alone where everything was erased. With ``draft_scope="all"`` a session cannot be
        told from the others in what drafters learned: all of that goes.

        Raises:
            BackendError: a drafter of others failed to forget.
        """
        with self._lock, self.room.lock:
            if self.prefixes is not None:
                self.prefixes.forget(session)
            engines = self._engines()
            if session is None:
                self.mailboxes = {}
            faults = [fault for mailbox in engines if (fault := _forget(mailbox.engine, session))]
        if faults:
            raise faults[0]

    def _engines(self) -> list[Mailbox]:
        """Those for new requests, and others whose requests still run."""
        return list(dict.fromkeys((*self.mailboxes.values(), *self.room.open)))

    def _drafters(self, key: EngineKey, progress: Progress | None) -> tuple[Drafter, ...]:
        speculation, objects = key
        found = self.draft_models.of(speculation, progress)
        resources = Resources(
            self.loaded.tokenizer,
            self.loaded.program.graph.vocabulary,
            self.loaded.context,
            self.options.parallel,
            found if isinstance(found, DraftModel) else None,
            found if isinstance(found, PairingError) else None,
            self.options.prefill_chunk,
            self.options.step_time_limit_s,
        )
        named = methods.create(speculation.type, speculation, resources)
        return methods.arranged((*named, *objects))

    def mailbox(self, key: EngineKey, progress: Progress | None = None) -> Mailbox:
        """The engine of these speculation options and drafters; all share program and memory.

        Of more than 16 the one used longest ago is given up, and what its drafters learned with
        it; requests that still run in it go on.
        """
        with self._lock:
            mailbox = self.mailboxes.pop(key, None) or Mailbox(
                self._engine(key, progress), self.room
            )
            self.mailboxes[key] = mailbox
            if len(self.mailboxes) > MOST_ENGINES:
                del self.mailboxes[next(iter(self.mailboxes))]
            return mailbox

    def _engine(self, key: EngineKey, progress: Progress | None) -> Engine:
        speculation, _ = key
        drafters, verifier = self._drafters(key, progress), verifier_for(speculation)
        tracing = None
        if self._tracing is not None:
            names = [drafter.name for drafter in drafters]
            tracing = self._tracing.engine(names, verifier.name, asdict(speculation))
        self._warn_of(speculation)
        return Engine(
            self.loaded.program,
            self.loaded.tokenizer,
            drafters=drafters,
            scope=speculation.draft_scope,
            verifier=verifier,
            context=self.loaded.context,
            options=self.options,
            places=self.room.places,
            prefixes=self.prefixes,
            identities=self.room.identities,
            primitives=self.loaded.primitives,
            controller=controller_for([d.name for d in drafters], fixed=speculation.fixed),
            fast_forward=bool(drafters),
            trace=self._teller(tracing),
            ended=None if tracing is None else tracing.end,
            forgot=None if tracing is None else tracing.forget,
        )

    def _teller(self, tracing: EngineTracing | None) -> Trace:
        """Tells the trace, and whoever listens when a round ends, of every round."""

        def tell(decision: Decision, made: Round) -> None:
            if tracing is not None:
                tracing.round(decision, made)
            if self.on_decision is not None:
                self._tell_listener(self.on_decision, decision, made)

        return tell

    def _tell_listener(self, listener: Trace, decision: Decision, made: Round) -> None:
        """A listener that fails is not told again; the generation goes on."""
        try:
            listener(decision, made)
        except Exception as problem:
            self.on_decision = None
            _LOG.warning("on_decision failed and is not called again: %r", problem)

    def _warn_of(self, speculation: SpeculationOptions) -> None:
        """Say once that drafters learn across sessions."""
        found = [] if speculation.draft_scope != "all" else ["draft_scope=all"]
        found += ["ngram_cache_dynamic"] if speculation.ngram_cache_dynamic is not None else []
        if found and not self._warned:
            self._warned = True
            _LOG.warning(
                "%s: what one session's texts teach the drafters shows in the drafts, "
                "counts and timing of every other session",
                ", ".join(found),
            )


def _forget(engine: Engine, session: str | None) -> BackendError | None:
    """Why a drafter did not forget, so that the other engines still do."""
    try:
        engine.forget(session)
    except BackendError as error:
        return error
    return None
