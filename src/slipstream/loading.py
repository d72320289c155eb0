"""From a model's name to a program ready to run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from slipstream.backends.base import Backend, Program, Progress, Weights
from slipstream.cache import known_sha256
from slipstream.catalog import locate
from slipstream.dispatch.fuse import fuse
from slipstream.dispatch.reduce import first_logits
from slipstream.drafters.pairing import require_same_vocabulary
from slipstream.drafters.resources import DraftModel
from slipstream.engine.trace_format import VERSION, Header
from slipstream.errors import ModelFileError, OptionError
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.graph import Graph
from slipstream.memory.attention import AttentionMemory
from slipstream.memory.kv_types import require_kv_type
from slipstream.models import build_graph
from slipstream.options import EngineOptions, ModelOptions
from slipstream.sampling import NumpyPrimitives, Primitives, default_primitives
from slipstream.tokenizer import Tokenizer, build_tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """What a model file became.

    Attributes:
        graph: fused, as the program runs it.
        context: most tokens of a sequence.
    """

    path: Path
    file: GGUFFile
    tokenizer: Tokenizer
    graph: Graph
    backend: Backend
    weights: Weights
    memory: AttentionMemory
    program: Program
    context: int

    @property
    def primitives(self) -> Primitives:
        """Sampling at the backend's own level; NumPy's for a backend without levels."""
        isa = getattr(self.backend, "isa", None)
        return NumpyPrimitives() if isa is None else default_primitives(isa)


def load_model(
    options: ModelOptions, engine: EngineOptions, progress: Progress | None = None
) -> LoadedModel:
    """Open, build, fuse, load and compile; the vocabulary is built beside the weights.

    Args:
        progress: called with (weight bytes done, weight bytes in all).

    Raises:
        InputError: the model cannot be found or run, or an option does not fit it.
        OperationError: memory or the backend is missing.
    """
    path = locate(options.model)
    file = open_gguf(path)
    graph = fuse(build_graph(file))
    context = _context(options, graph)
    require_kv_type(graph, options.kv_type)
    backend = open_backend(options)
    with ThreadPoolExecutor(1) as beside:
        building = beside.submit(build_tokenizer, file.metadata)
        weights = backend.load(file, graph, progress)
        tokenizer = building.result()
    _check_vocabulary(graph, tokenizer)
    memory = AttentionMemory(graph, context, engine.parallel, options.kv_type)
    program = backend.compile(graph, weights, memory)
    return LoadedModel(path, file, tokenizer, graph, backend, weights, memory, program, context)


def load_draft_model(
    name: str,
    target: LoadedModel,
    vocabulary: int | None = None,
    progress: Progress | None = None,
) -> DraftModel:
    """A draft model on the target's backend, its vocabulary checked before its weights are read.

    The target's own file shares the target's weights.

    Args:
        name: path or catalogue name.
        vocabulary: it drafts over ids below this only; None = all.
        progress: called with (weight bytes done, weight bytes in all).

    Raises:
        PairingError: its vocabulary is not the target's.
        InputError: the model cannot be found or run.
        OperationError: memory is missing.
    """
    path = locate(name)
    file = open_gguf(path)
    tokenizer = build_tokenizer(file.metadata)
    require_same_vocabulary(target.tokenizer, tokenizer, name)
    whole = build_graph(file)
    _check_vocabulary(whole, tokenizer)
    graph = fuse(whole if vocabulary is None else first_logits(whole, vocabulary))
    backend, kv_type = target.backend, target.memory.kv_type
    require_kv_type(graph, kv_type)
    own = graph == target.graph and path.samefile(target.path)
    weights = target.weights if own else backend.load(file, graph, progress)

    def compile_for(positions: int, sequences: int) -> Program:
        memory = AttentionMemory(graph, positions, sequences, kv_type)
        return backend.compile(graph, weights, memory)

    return DraftModel(
        name=name,
        tokenizer=tokenizer,
        context=graph.context,
        compile=compile_for,
        vocabulary=whole.vocabulary,
        drafted=graph.vocabulary,
        step_bytes=weights.step_bytes,
        resident_bytes=0 if own else weights.resident_bytes,
        shared=own,
    )


def _check_vocabulary(graph: Graph, tokenizer: Tokenizer) -> None:
    if graph.vocabulary != tokenizer.vocabulary_size:
        raise ModelFileError(
            f"logits for the {tokenizer.vocabulary_size} tokens of the vocabulary",
            f"{graph.vocabulary}",
            "The file's vocabulary and tensors disagree; convert it again.",
        )


def _context(options: ModelOptions, graph: Graph) -> int:
    context = options.context or graph.context
    if context > graph.context:
        raise OptionError(
            f"a context of at most {graph.context} tokens, for which the model was trained",
            f"{context}",
            "Lower the context.",
        )
    return context


def trace_header(loaded: LoadedModel, options: ModelOptions, engine: EngineOptions) -> Header:
    """What a trace of this model says of it."""
    return Header(
        version=VERSION,
        model=options.model,
        sha256=known_sha256(loaded.path),
        backend=loaded.backend.name,
        isa=getattr(loaded.backend, "isa", ""),
        precision=loaded.backend.precision,
        kv_type=options.kv_type,
        threads=getattr(loaded.backend, "threads", None),
        options={**asdict(options), **asdict(engine)},
    )


def open_backend(options: ModelOptions) -> Backend:
    """The backend that the options name; only that one is imported."""
    if options.backend == "reference":
        from slipstream.backends.reference import ReferenceBackend

        return ReferenceBackend()
    from slipstream.backends.cpu import CpuBackend

    return CpuBackend(options.isa, options.threads, options.precision)
