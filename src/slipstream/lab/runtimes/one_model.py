"""Whether a llama-server answers, and for the one model that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.lab.client import told
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.runtimes import observing
from slipstream.lab.runtimes.faults import RouterError, WrongModelError


def is_healthy(endpoint: Endpoint) -> bool:
    """Whether ``/health`` says that the model is loaded."""
    return observing.json_at(endpoint, "/health") is not None


def require_one_model(props: Mapping[str, Any], file: Path) -> None:
    """
    Raises:
        RouterError: the server starts other processes for models.
        WrongModelError: it serves another file.
    """
    path = told.text(props.get("model_path"))
    if props.get("role") == "router" or path == "none":
        raise RouterError(
            "a server of one model", "router mode", "Start llama-server with -m and one model."
        )
    if path and Path(path).name != file.name:
        raise WrongModelError(
            f"a server of {file.name}", f"its /props says {Path(path).name}", "Stop the other one."
        )
