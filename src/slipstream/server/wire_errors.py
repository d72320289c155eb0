"""Errors on their way from one process to the other."""

from __future__ import annotations

from typing import Final

from slipstream import errors
from slipstream.errors import BackendError, OperationError, SlipstreamError
from slipstream.server.wire import WireError

MOST_CHARACTERS: Final = 2000  # of one of its texts


def told(error: SlipstreamError) -> WireError:
    """What crosses the socket of an error."""
    texts = [str(part)[:MOST_CHARACTERS] for part in (error.expected, error.found, error.remedy)]
    expected, found, remedy = (text.encode("utf-8", "replace").decode() for text in texts)
    kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == errors.__name__)
    return WireError(kind=kind, expected=expected, found=found, remedy=remedy)


def error_of(wire: WireError) -> SlipstreamError:
    """The error again; an unknown kind is an ``OperationError``."""
    kind = vars(errors).get(wire.kind)
    if not (isinstance(kind, type) and issubclass(kind, SlipstreamError)):
        kind = OperationError
    return kind(wire.expected, wire.found, wire.remedy)


def fault(problem: BaseException) -> BackendError:
    """What becomes of an exception that nothing expected."""
    return BackendError(
        "the engine process to go on",
        f"{type(problem).__name__}: {problem!s:.200}",
        "Report it; the server's log has the details.",
    )
