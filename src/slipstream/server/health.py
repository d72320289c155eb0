"""``/health``: whether the engine goes on; for load balancers and scripts, without a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.errors import SlipstreamError
from slipstream.server.refusals import refusal_body

PATHS: Final = ("/health", "/v1/health")
_OK: Final = b'{"status":"ok"}'


def routes(failure: Callable[[], SlipstreamError | None]) -> list[Route]:
    """
    Args:
        failure: why the engine does not go on, or None.
    """

    async def health(request: Request) -> Response:
        error = failure()
        if error is None:
            return Response(_OK, media_type="application/json")
        body = refusal_body(request.scope["path"], error, 503)
        return Response(body, 503, media_type="application/json")

    return [Route(path, health, methods=["GET"]) for path in PATHS]
