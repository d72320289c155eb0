"""The application: every endpoint module's routes, and the guards around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any, Final

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.server import health
from slipstream.server.auth import OPEN_PATHS, Access, Keys, is_loopback
from slipstream.server.limits import Limits
from slipstream.server.service import EngineService, Meter
from slipstream.server_options import ServerOptions

ENDPOINTS: Final = (
    "openai_chat",
    "openai_completions",
    "models",
    "llama_completion",
    "llama_text",
    "props",
    "metrics",
    "anthropic",
    "page",
    "openapi_document",
)
"""Modules with ``routes``, a function whose parameters name what it needs of ``offers``."""


def create_app(
    service: EngineService, options: ServerOptions, keys: Keys, meter: Meter | None = None
) -> ASGIApp:
    """What uvicorn serves."""
    offers = {
        "service": service,
        "meters": meter,
        "options": options,
        "enabled": options.metrics,  # of /metrics
    }
    routes = [*health.routes(lambda: service.failure), *endpoint_routes(offers)]
    return guarded(_Routed(routes), options, keys, page_paths())


def endpoint_routes(offers: Mapping[str, Any]) -> list[BaseRoute]:
    """The routes of every endpoint module that is here."""
    found: list[BaseRoute] = []
    for name in ENDPOINTS:
        module = f"slipstream.server.{name}"
        if find_spec(module) is not None:
            routes = import_module(module).routes
            found += routes(**{wanted: offers[wanted] for wanted in signature(routes).parameters})
    return found


def page_paths() -> frozenset[str]:
    """Those of the built-in page, which holds no secret."""
    if find_spec("slipstream.server.page") is None:
        return frozenset()
    return frozenset(import_module("slipstream.server.page").FILES)


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
