"""``/health``: whether the engine goes on; for load balancers and scripts, without a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.errors import SlipstreamError
from slipstream.server.error_shapes import openai_error
from slipstream.server.replies import json_reply

PATHS: Final = ("/health", "/v1/health")
_OK: Final = b'{"status":"ok"}'


def routes(failure: Callable[[], SlipstreamError | None]) -> list[Route]:
    """
    Args:
        failure: why the engine does not go on, or None.
    """

    async def health(_: Request) -> Response:
        error = failure()
        if error is None:
            return Response(_OK, media_type="application/json")
        return json_reply(openai_error(error, 503), 503)

    return [Route(path, health, methods=["GET"]) for path in PATHS]
