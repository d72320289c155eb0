"""Open a model from option structs; a catalogue name that is not here yet is offered."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from slipstream.cli.output import megabytes, progress_bar
from slipstream.errors import ModelFileError
from slipstream.options import EngineOptions, ModelOptions, SpeculationOptions

if TYPE_CHECKING:
    from slipstream.api import Model
    from slipstream.backends.base import Progress
    from slipstream.loading import LoadedModel


def fetch_if_wanted(model: str) -> None:
    """Offer on a terminal to fetch a catalogue model that is not in the cache.

    Raises:
        ModelFileError: it is absent and was not wanted; the remedy says how to pull it.
    """
    from slipstream.catalog import entries, locate, pull

    try:
        locate(model)
    except ModelFileError:
        entry = next((entry for entry in entries() if entry.name == model), None)
        if entry is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        print(f"{entry.name} is not here: {entry.description}, {entry.licence}", file=sys.stderr)
        print(f"Fetch it, {megabytes(entry.size_bytes)}? [y/N] ", end="", file=sys.stderr)
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise
        with progress_bar() as progress:
            pull(model, progress=progress)


def open_model(
    model: ModelOptions,
    speculation: SpeculationOptions | None = None,
    *,
    quiet: bool = False,
    trace: str | None = None,
    prefix_cache: int = EngineOptions().prefix_cache,
) -> Model:
    """The Python API's ``Model`` with these options.

    Args:
        quiet: show no progress (`--json`).
        trace: file that gets every round.
        prefix_cache: of ``EngineOptions``; a measurement computes every prompt (0).
    """
    from slipstream.api import Model

    fetch_if_wanted(model.model)
    keywords = {**msgspec.structs.asdict(model), "prefix_cache": prefix_cache}
    if speculation is not None:
        if speculation.draft_model is not None:
            fetch_if_wanted(speculation.draft_model)
        keywords |= msgspec.structs.asdict(speculation)
    with loading(quiet) as progress:
        return Model(keywords.pop("model"), progress=progress, trace=trace, **keywords)


def require_whole_trace(model: Model) -> None:
    """To be called when all output is out.

    Raises:
        SlipstreamError: why the trace ended early.
    """
    if model.trace_failure is not None:
        raise model.trace_failure


def open_program(model: ModelOptions, *, quiet: bool = False) -> LoadedModel:
    """A program without an engine, for measurements; ``quiet`` as above."""
    from slipstream.loading import load_model

    fetch_if_wanted(model.model)
    with loading(quiet) as progress:
        return load_model(model, EngineOptions(), progress)


@contextlib.contextmanager
def loading(quiet: bool) -> Iterator[Progress | None]:
    """Shows the progress of loading, unless it is to be quiet."""
    if quiet:
        yield None
        return
    with progress_bar() as progress:
        yield lambda done, total: progress(done, total, "loading")
