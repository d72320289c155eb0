"""Requests that a server understood and does not take: the fault of what was asked, not of it."""

from __future__ import annotations

from typing import Final

REFUSED: Final = "refused"
"""Name of the finding."""
_STATUSES: Final = ("HTTP 400: ", "HTTP 413: ", "HTTP 422: ")
_UNSAYABLE: Final = "expected "
"""How the text of a ``SlipstreamError`` begins: a request that could not even be made."""


def is_refusal(error: str) -> bool:
    """Whether the error of an answer says that the request is at fault."""
    return error.startswith((*_STATUSES, _UNSAYABLE))
