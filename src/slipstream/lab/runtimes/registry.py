"""Kinds of runtimes by the names that a plan has for them."""

from __future__ import annotations

import importlib
from typing import Any, Final

from slipstream.errors import OptionError
from slipstream.lab.contract.plan import Plan, RuntimePlan
from slipstream.lab.contract.runtimes import Runtime

_CLASSES: Final = {
    "slipstream": ("slipstream.lab.runtimes.slipstream", "Slipstream"),
    "llama-server": ("slipstream.lab.runtimes.llama_server", "LlamaServer"),
    "openai": ("slipstream.lab.runtimes.openai", "OpenAI"),
}
KINDS: Final = tuple(_CLASSES)


def runtime(name: str, plan: RuntimePlan) -> Runtime:
    """The runtime that a plan describes; nothing is started.

    Raises:
        OptionError: an unknown kind, or keys that do not go together.
    """
    if plan.kind not in _CLASSES:
        raise OptionError(f"a kind of {', '.join(KINDS)}", f"`{plan.kind}`", "Correct it.")
    module, name_of_class = _CLASSES[plan.kind]
    made: Any = getattr(importlib.import_module(module), name_of_class)(name, plan)
    found: Runtime = made
    return found


def runtimes(plan: Plan) -> dict[str, Runtime]:
    """All runtimes of a plan, by name.

    Raises:
        OptionError: as ``runtime``.
    """
    return {name: runtime(name, wanted) for name, wanted in plan.runtimes.items()}
