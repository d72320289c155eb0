"""What the engine process opens: a model, one engine with every drafter that its files offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Any

from slipstream import drafters as methods
from slipstream.backends.base import Outputs, Program, Progress, Step, varying_ops
from slipstream.cache import known_sha256
from slipstream.draft_models import DraftModels
from slipstream.drafters.base import Drafter
from slipstream.drafters.resources import DraftModel, Resources
from slipstream.engine.controller import Decision
from slipstream.engine.controllers import controller_for
from slipstream.engine.engine import Engine
from slipstream.engine.prefix_cache import PrefixCache
from slipstream.engine.statistics import Round
from slipstream.errors import PairingError
from slipstream.grammar_budget import GrammarBudget
from slipstream.graph import Graph
from slipstream.loading import LoadedModel, load_model
from slipstream.memory.base import Memory
from slipstream.options import SpeculationOptions
from slipstream.server.compiling import Compiler
from slipstream.server.offers import default_speculation, method_table, offered, with_methods
from slipstream.server.plan import Plan
from slipstream.server.wire import Ready, Speculation
from slipstream.structured import Grammars
from slipstream.verify.choice import verifier_for

Told = Callable[[Decision, Round], None]


class CountedProgram:
    """A program whose passes are counted.

    Attributes:
        steps: passes so far; ``rows`` in them all; ``step_rows`` and seconds ``step_s`` of the
            last one.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.memory: Memory = program.memory
        self.graph: Graph = program.graph
        self.steps = 0
        self.rows = 0
        self.step_rows = 0
        self.step_s = 0.0

    def run(self, step: Step) -> Outputs:
        outputs = self._program.run(step)
        self.steps += 1
        self.step_rows = len(step.sequences)
        self.rows += self.step_rows
        self.step_s = outputs.elapsed_s
        return outputs

    def observed(self) -> Mapping[str, int]:
        return self._program.observed()


@dataclass(frozen=True)
class EngineRoom:
    """What the worker works with.

    Attributes:
        loaded: the model.
        engine: over it; every round is told to ``told`` of ``open_room``.
        program: the engine's, counted.
        compiler: of grammars.
        ready: what the other process is told.
        memory_limit_bytes: of all pages.
    """

    loaded: LoadedModel
    engine: Engine
    program: CountedProgram
    compiler: Compiler
    ready: Ready
    memory_limit_bytes: int

    @property
    def default(self) -> Speculation:
        return self.ready.speculation


def open_room(plan: Plan, told: Told, progress: Progress | None = None) -> EngineRoom:
    """Load the model and all that drafts for it.

    Args:
        told: receives every decision and the round it became, within the step.
        progress: called with (weight bytes done, weight bytes in all).

    Raises:
        InputError, OperationError: see ``load_model``, ``DraftModels.of`` and ``drafters.create``.
    """
    names = offered(plan.speculation)
    options = with_methods(plan.speculation, names)
    loaded = load_model(plan.model, plan.engine, progress)
    grammars = Grammars(loaded.tokenizer, GrammarBudget)
    # the library holds the interpreter meanwhile, and with it the steps
    Thread(target=grammars.prepare, name="grammars", daemon=True).start()
    found = DraftModels(loaded).of(options, progress)
    drafters = _drafters(plan, loaded, options, found)
    program = CountedProgram(loaded.program)
    kept = plan.engine.prefix_cache
    engine = Engine(
        program,
        loaded.tokenizer,
        drafters=drafters,
        scope=options.draft_scope,
        verifier=verifier_for(options),
        context=loaded.context,
        options=plan.engine,
        queue=plan.queue + plan.engine.parallel,
        primitives=loaded.primitives,
        controller=controller_for([drafter.name for drafter in drafters], fixed=options.fixed),
        trace=told,
        prefixes=PrefixCache(program.memory, kept) if kept else None,
    )
    fault = found if isinstance(found, PairingError) else None
    ready = Ready(
        facts=facts(plan, loaded),
        methods=method_table(options, [drafter.name for drafter in drafters], fault),
        speculation=default_speculation(plan.speculation),
    )
    return EngineRoom(loaded, engine, program, grammars, ready, _all_pages(loaded))


def _drafters(
    plan: Plan,
    loaded: LoadedModel,
    options: SpeculationOptions,
    found: DraftModel | PairingError | None,
) -> tuple[Drafter, ...]:
    resources = Resources(
        loaded.tokenizer,
        loaded.program.graph.vocabulary,
        loaded.context,
        plan.engine.parallel,
        found if isinstance(found, DraftModel) else None,
        found if isinstance(found, PairingError) else None,
        plan.engine.prefill_chunk,
        plan.engine.step_time_limit_s,
    )
    return methods.arranged(methods.create(options.type, options, resources))


def facts(plan: Plan, loaded: LoadedModel) -> dict[str, Any]:
    """``wire.Ready.facts``."""
    varying = varying_ops(loaded.backend.row_invariant, loaded.graph)
    return {
        "model": plan.model.model,
        "path": str(loaded.path),
        "sha256": known_sha256(loaded.path),
        "architecture": loaded.graph.architecture,
        "context": loaded.context,
        "parallel": plan.engine.parallel,
        "backend": loaded.backend.name,
        "isa": getattr(loaded.backend, "isa", "numpy"),
        "threads": getattr(loaded.backend, "threads", None),
        "precision": loaded.backend.precision,
        "kv_type": loaded.memory.kv_type,
        "exact": f"not guaranteed ({', '.join(varying)})" if varying else True,
        "weight_bytes": sum(info.nbytes for info in loaded.file.tensors.values()),
        "vocabulary": loaded.program.graph.vocabulary,
    }


def _all_pages(loaded: LoadedModel) -> int:
    return sum(group.pages * group.page_bytes for group in loaded.memory.groups)
