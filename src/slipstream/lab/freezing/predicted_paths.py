"""Kernels that a build would choose by its own tables: a prediction, kept apart from what ran.

Only Slipstream's tables are read here. What another program's policy says of a build is not known
from its release; its paths stay without a prediction until a table of that build is at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from slipstream.errors import SlipstreamError
from slipstream.lab.contract.manifest import UNKNOWN, RuntimeIdentity
from slipstream.lab.contract.plan import RuntimePlan

_DECISIVE: Final = (
    *("--precision", "--kv-type", "--isa", "--backend"),
    *("-ctk", "-ctv", "--cache-type-k", "--cache-type-v"),
)
"""Flags that change the choice; with one of them nothing is predicted."""


def predicted_paths(identity: RuntimeIdentity, plan: RuntimePlan, model: Path) -> tuple[str, ...]:
    """``kernel/row class`` of every op as ``dispatch`` chooses at that level; () = no prediction.

    Args:
        model: the target's file.
    """
    changed = any(word.partition("=")[0] in _DECISIVE for word in plan.flags)
    if plan.kind != "slipstream" or identity.isa == UNKNOWN or changed:
        return ()
    try:
        return _by_dispatch(identity.isa, model)
    except (SlipstreamError, ImportError):  # a file or level that it cannot run, or no native core
        return ()


def _by_dispatch(isa: str, model: Path) -> tuple[str, ...]:
    from slipstream.backends.cpu import native_types
    from slipstream.dispatch.fuse import fuse
    from slipstream.dispatch.select import select
    from slipstream.gguf import open_gguf
    from slipstream.models import build_graph

    with open_gguf(model) as file:
        chosen = select(fuse(build_graph(file)), isa, native_types())
    return tuple(sorted({f"{row.kernel}/{row.rows.name}" for row in chosen.rows() if row.kernel}))
