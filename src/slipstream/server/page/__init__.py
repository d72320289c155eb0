"""The built-in chat page: files of the package, served under a strict policy.

The page uses the same endpoints as any other client and loads nothing from elsewhere.
"""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILES: Final = {
    "/": ("index.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/page.js": ("page.js", "text/javascript"),
    "/page/figures.js": ("figures.js", "text/javascript"),
    "/page/transcript.js": ("transcript.js", "text/javascript"),
}

# Nothing of elsewhere and nothing inline; no text can become markup, whatever a model writes.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def routes() -> list[Route]:
    """The page's files; they hold no secret, so they need no API key."""
    folder = files(__name__)
    return [
        Route(
            path,
            partial(_serve, (folder / name).read_bytes(), kind),
            methods=["GET"],
            name=f"page {name}",
        )
        for path, (name, kind) in FILES.items()
    ]


async def _serve(content: bytes, kind: str, _request: Request) -> Response:
    return Response(content, headers=HEADERS, media_type=kind)
