"""Open a model from option structs; a catalogue name that is not here yet is fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from slipstream.cli.output import progress_bar
from slipstream.options import EngineOptions, ModelOptions, SpeculationOptions

if TYPE_CHECKING:
    from slipstream.api import Model


def fetch_if_missing(model: str) -> None:
    """Pull a catalogue model that is not in the cache; paths and present files pass."""
    from slipstream.catalog import ensure, entries

    if model in {entry.name for entry in entries()}:
        with progress_bar() as progress:
            ensure(model, progress)


def open_model(
    model: ModelOptions,
    speculation: SpeculationOptions | None = None,
    engine: EngineOptions | None = None,
) -> Model:
    """The Python API's ``Model`` with these options."""
    from slipstream.api import Model

    fetch_if_missing(model.model)
    keywords = msgspec.structs.asdict(model)
    for options in (speculation, engine):
        if options is not None:
            keywords |= msgspec.structs.asdict(options)
    return Model(keywords.pop("model"), **keywords)
