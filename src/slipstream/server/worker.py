"""The engine process: it owns the model and does nothing but steps.

It ends on ``Stop``, or when the other process is gone; it ignores the signals that end that one.
Run as a program with the number of an inherited socket, it reads its plan from standard input.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from typing import Final

import msgspec

from slipstream.errors import OutOfMemoryError, SlipstreamError
from slipstream.server.channel import Channel
from slipstream.server.engine_room import EngineRoom, open_room
from slipstream.server.plan import IGNORED, Plan
from slipstream.server.step_loop import FLUSH_S, Rounds, StepLoop
from slipstream.server.wire import Failed, Progress
from slipstream.server.wire_errors import fault, told

_LOG = logging.getLogger("slipstream")
SWITCH_S: Final = 0.0005  # so soon the step loop gets the interpreter back from another thread


class AbandonedError(Exception):
    """The other process ended while the model was loaded."""


def work(connection: socket.socket, plan: Plan) -> None:
    """
    Args:
        connection: its end of the socket pair.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)  # the other process held them for this one
    sys.setswitchinterval(SWITCH_S)
    channel = Channel(connection)
    try:
        _serve(channel, plan)
    except AbandonedError:
        return
    except SlipstreamError as error:
        channel.send(Failed(error=told(error)))
    except MemoryError:
        lack = OutOfMemoryError("memory for the model", "none left", "Use a smaller model.")
        channel.send(Failed(error=told(lack)))
    except Exception as problem:
        _LOG.exception("the engine process fails")
        channel.send(Failed(error=told(fault(problem))))
    channel.flush(FLUSH_S)
    channel.close()


def _serve(channel: Channel, plan: Plan) -> None:
    """
    Raises:
        AbandonedError: nobody waits for it any more.
        SlipstreamError: it cannot be opened, or cannot go on.
    """
    rounds = Rounds()
    room = _opened(channel, plan, rounds)
    channel.send(room.ready)
    gc.collect()
    gc.freeze()  # a full collection would walk the vocabulary in the midst of a step
    StepLoop(room, channel, rounds).run()


def _opened(channel: Channel, plan: Plan, rounds: Rounds) -> EngineRoom:
    def progress(done: int, total: int) -> None:
        channel.send(Progress(done=done, total=total))
        if channel.closed:
            raise AbandonedError

    return open_room(plan, rounds.tell, progress)


def main() -> None:
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Plan)
    work(socket.socket(fileno=int(sys.argv[1])), plan)


if __name__ == "__main__":
    main()
