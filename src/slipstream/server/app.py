"""The application: every endpoint's routes, and the guards around them."""

from __future__ import annotations

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.server import (
    anthropic,
    health,
    llama_completion,
    llama_text,
    metrics,
    models,
    openai_chat,
    openai_completions,
    openapi_document,
    page,
    props,
)
from slipstream.server.auth import OPEN_PATHS, Access, Keys, is_loopback
from slipstream.server.limits import Limits
from slipstream.server.meters import Meters
from slipstream.server.order import Service
from slipstream.server.service import EngineService
from slipstream.server_options import ServerOptions


def create_app(
    service: EngineService, options: ServerOptions, keys: Keys, meters: Meters
) -> ASGIApp:
    """What uvicorn serves."""
    routes = [
        *health.routes(lambda: service.failure),
        *endpoint_routes(service, meters, metrics_enabled=options.metrics),
    ]
    return guarded(_Routed(routes), options, keys, page.FILES)


def endpoint_routes(service: Service, meters: Meters, *, metrics_enabled: bool) -> list[BaseRoute]:
    """The routes of every endpoint."""
    return [
        *openai_chat.routes(service),
        *openai_completions.routes(service),
        *models.routes(service),
        *llama_completion.routes(service),
        *llama_text.routes(service),
        *props.routes(service, meters),
        *metrics.routes(service, meters, enabled=metrics_enabled),
        *anthropic.routes(service),
        *page.routes(),
        *openapi_document.routes(),
    ]


def guarded(
    app: ASGIApp, options: ServerOptions, keys: Keys, open_paths: Collection[str] = ()
) -> ASGIApp:
    """An application behind limits, keys and rules for pages of other origins.

    Args:
        open_paths: need no key, beside ``auth.OPEN_PATHS``.
    """
    # only where no key is asked for could a page elsewhere use the server under a name of its own
    private = not keys and is_loopback(options.host)
    app = Access(
        app,
        keys,
        open_paths={*OPEN_PATHS, *open_paths},
        origins=options.cors_origins,
        hosts={options.host} if private else None,
    )
    if options.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=options.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("retry-after",),
        )
    return Limits(app, body_bytes=options.body_limit_bytes, body_s=options.body_timeout_s)


class _Routed:
    """A router that raises where it has no route; ``Limits`` answers."""

    def __init__(self, routes: list[BaseRoute]) -> None:
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self._router(scope, receive, send)
