"""``slipstream serve`` with one endpoint of its own: ``/stream?n=N`` sends a line per event.

The last line is ``end REASON`` or ``error TEXT``. It stands for the real endpoints in tests of what
is around them. Run it with the arguments of ``serve``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from slipstream.cli.app import main
from slipstream.options import SamplingOptions
from slipstream.server import app
from slipstream.server.auth import caller_of
from slipstream.server.order import Generation, Order
from slipstream.server.wire_errors import error_of


def routes(service: Any, *_: object, **options: object) -> list[BaseRoute]:
    """Instead of ``app.endpoint_routes``."""
    del options

    async def stream(request: Request) -> Response:
        await request.body()
        sampling = SamplingOptions(
            max_tokens=int(request.query_params["n"]), ignore_eos=True, temperature=1.0, seed=1
        )
        prompt = await service.prompt_ids("the rain in spain")
        order = Order(prompt=prompt, sampling=sampling, endpoint="/stream")
        generation = await service.generate(order, caller_of(request.scope, "mine"))
        return StreamingResponse(lines(generation))

    async def state(request: Request) -> Response:
        del request
        return Response(json.dumps({"active": service.active}))

    return [Route("/stream", stream, methods=["POST"]), Route("/state", state)]


async def lines(generation: Generation) -> AsyncIterator[bytes]:
    async for _, event in generation.events():
        for token in event.tokens:
            yield b"%d\n" % token.id
        if event.error is not None:
            yield f"error {error_of(event.error)}\n".encode()
        elif event.finish_reason is not None:
            yield f"end {event.finish_reason}\n".encode()


if __name__ == "__main__":
    app.endpoint_routes = routes
    main(["serve", *sys.argv[1:]])
