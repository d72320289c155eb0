"""``slipstream serve`` with an engine process whose model never has loaded.

Run it with the arguments of ``serve``; it starts itself, with the number of a socket, as that
process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from slipstream.cli.app import main
from slipstream.server import engine_process, worker
from slipstream.server.plan import Plan

TOTAL_BYTES = 1 << 30


def endless(plan: Plan, told: object, progress: Callable[[int, int], None]) -> None:
    """Instead of ``open_room``."""
    del plan, told
    done = 0
    while True:
        done = min(done + 1, TOTAL_BYTES - 1)
        progress(done, TOTAL_BYTES)
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].isdigit():
        worker.open_room = endless  # type: ignore[assignment]
        worker.main()
    else:
        engine_process.PROGRAM = "loading_server"  # type: ignore[misc]
        main(["serve", *sys.argv[1:]])
