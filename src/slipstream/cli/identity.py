"""What a measurement ran on: the head of every record of ``bench``."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from slipstream.cli.statistics import backend_record
from slipstream.options import ModelOptions

if TYPE_CHECKING:
    from slipstream.loading import LoadedModel


def identity(model_options: ModelOptions, loaded: LoadedModel) -> dict[str, Any]:
    """Plain values: date, model, backend, instruction-set level, precision, threads."""
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "model": model_options.model,
        **backend_record(loaded),
        "threads": getattr(loaded.backend, "threads", None),
    }
