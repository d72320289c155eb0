"""``/v1/models``: the one model of this server, as OpenAI's clients list them."""

from __future__ import annotations

import time
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.errors import RequestError
from slipstream.server.bodies import shown
from slipstream.server.order import Service
from slipstream.server.replies import error_reply, json_reply

PATHS: Final = ("/v1/models", "/models")
_META: Final = ("architecture", "vocabulary", "weight_bytes", "precision", "kv_type")


class UnknownModelError(RequestError):
    """A model by a name that this server does not have."""

    http_status = 404


def routes(service: Service) -> list[Route]:
    models = Models(service)
    lists = [Route(path, models.all, methods=["GET"]) for path in PATHS]
    return [*lists, *(Route(path + "/{id:path}", models.one, methods=["GET"]) for path in PATHS)]


class Models:
    """The endpoint.

    Args:
        service: of the server.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._started_s = int(time.time())

    async def all(self, _: Request) -> Response:
        """All models: one."""
        return json_reply({"object": "list", "data": [self._described()]})

    async def one(self, request: Request) -> Response:
        """A model by its name."""
        name = request.path_params["id"]
        if name == self._service.name:
            return json_reply(self._described())
        return error_reply(
            UnknownModelError(
                "the name of this server's model", f"`{shown(name)}`", "See /v1/models for it."
            )
        )

    def _described(self) -> dict[str, Any]:
        facts = self._service.facts
        meta = {key: facts[key] for key in _META if key in facts}
        return {
            "id": self._service.name,
            "object": "model",
            "created": self._started_s,
            "owned_by": "slipstream",
            "meta": {"context": self._service.context, **meta},
        }
