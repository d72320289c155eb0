"""``/openapi.json``: made of the routes of the server and of the structs that read its requests.

``openapi_operations.OPERATIONS`` says the rest. A route that it lacks is listed all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.options import SamplingOptions, describe
from slipstream.server.bodies import ANY
from slipstream.server.openapi_operations import OPERATIONS, Operation, Value
from slipstream.server.openapi_replies import AnthropicErrorReply, ErrorReply

PATH: Final = "/openapi.json"
SCHEMAS: Final = "#/components/schemas/{name}"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_NO_EFFECT: Final = "Known, and without effect here."

Operations = Mapping[tuple[str, str], Operation]


def routes() -> list[Route]:
    """The document describes every route of the router that it belongs to, itself included."""
    made: list[bytes] = []

    async def openapi(request: Request) -> Response:
        if not made:
            served = [route for route in request.scope["router"].routes if type(route) is Route]
            made.append(msgspec.json.encode(document(served, OPERATIONS, _version())))
        return Response(made[0], media_type=JSON)

    return [Route(PATH, openapi, methods=["GET"])]


def _version() -> str:
    try:
        return version("slipstream")
    except PackageNotFoundError:
        return "from source"


def listed(served: Iterable[Route]) -> list[tuple[str, str]]:
    """(method, path) of routes, in order; HEAD goes with GET."""
    return [
        (method, route.path_format)
        for route in served
        for method in sorted(route.methods or {"GET"})
        if method != "HEAD"
    ]


def document(served: Sequence[Route], operations: Operations, release: str) -> Value:
    """The document as plain values.

    Args:
        operations: (method, path) -> its description.
        release: version of the program.
    """
    found = {place: operations.get(place, Operation(place[1], "other")) for place in listed(served)}
    kinds = _kinds(found.values())
    schemas, components = msgspec.json.schema_components(kinds, ref_template=SCHEMAS)
    references = dict(zip(map(_key, kinds), schemas, strict=True))
    for operation in found.values():
        if operation.body is not None:
            components[operation.body.__name__] = _open_body(operation, components, references)
    paths: dict[str, Value] = {}
    for (method, path), operation in found.items():
        entry = _operation(method, path, operation, references)
        paths.setdefault(path, {})[method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Slipstream",
            "version": release,
            "description": "GGUF language models with speculative decoding that never changes "
            "the output. A key with null counts as left out; an unknown key is refused.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in dict.fromkeys(o.tag for o in found.values())],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
        "security": [{"bearer": []}, {"header": []}, {}],
    }


_SECURITY: Final[Value] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def _key(kind: Any) -> str:
    """Structs and lists of them, told apart; a list is made anew by every mention."""
    return repr(kind)


def _kinds(operations: Iterable[Operation]) -> list[Any]:
    found: dict[str, Any] = {}
    for operation in operations:
        for kind in (operation.body, operation.reply, *operation.narrower.values()):
            if kind is not None:
                found.setdefault(_key(kind), kind)
    for kind in (SamplingOptions, ErrorReply, AnthropicErrorReply):
        found.setdefault(_key(kind), kind)
    return list(found.values())


def _open_body(
    operation: Operation, components: Mapping[str, Value], references: Mapping[str, Value]
) -> Value:
    """The schema of a body with the keys that its struct does not have, and no others."""
    assert operation.body is not None
    schema = dict(components[operation.body.__name__])
    properties = dict(schema.get("properties", {}))
    for name, kind in operation.narrower.items():
        properties[name] = references[_key(kind)]
    properties |= _sampling(operation.sampling, components)
    for name, value in operation.neutral.items():
        properties.setdefault(name, _neutral(value))
    return {**schema, "properties": properties, "additionalProperties": False}


def _sampling(names: Collection[str], components: Mapping[str, Value]) -> dict[str, Value]:
    known = components[SamplingOptions.__name__]["properties"]
    found = {}
    for option in describe(SamplingOptions):
        for name in (option.name, *option.aliases):
            if name in names:
                alias = {} if name == option.name else {"description": f"Alias of {option.name}."}
                found[name] = {**known[option.name], **alias}
    return found


def _neutral(value: Any) -> Value:
    if value is ANY:
        return {"description": _NO_EFFECT}
    choices = value if isinstance(value, tuple) else (value,)
    allowed = [*choices] if None in choices else [*choices, None]
    return {"enum": allowed, "description": _NO_EFFECT}


def _operation(
    method: str, path: str, operation: Operation, references: Mapping[str, Value]
) -> Value:
    entry: Value = {
        "operationId": _identifier(method, path),
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(path, operation, references),
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _path_parameters(path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        for name, text in operation.query.items()
    ]
    if parameters:
        entry["parameters"] = parameters
    if operation.body is not None:
        examples = {name: {"value": value} for name, value in operation.examples.items()}
        content = {"schema": references[_key(operation.body)], "examples": examples}
        entry["requestBody"] = {"required": True, "content": {JSON: content}}
    if operation.is_open:
        entry["security"] = []
    return entry


def _identifier(method: str, path: str) -> str:
    words = [part for part in path.replace("-", "/").replace(".", "/").split("/") if part]
    return "_".join([method.lower(), *(word.strip("{}") for word in words)])


def _path_parameters(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _responses(
    path: str, operation: Operation, references: Mapping[str, Value]
) -> dict[str, Value]:
    content: Value = {}
    if operation.reply is not None:
        content["schema"] = references[_key(operation.reply)]
    if operation.reply_example is not None:
        content["example"] = operation.reply_example
    replies = {operation.media: content}
    if operation.streams:
        replies[EVENTS] = {"schema": _event(operation)}
    responses: dict[str, Value] = {"200": {"description": "Success.", "content": replies}}
    statuses = set(operation.errors) | (set() if operation.is_open else {401})
    for status in sorted(statuses):
        responses[str(status)] = _error(path, status, references)
    return responses


def _event(operation: Operation) -> Value:
    """One event of a stream: before OpenAPI 3.2 tools read the schema of a stream as this.

    ``event`` is ``message`` where the stream names none.
    """
    return {
        "type": "object",
        "description": operation.streams,
        "properties": {
            "event": {"type": "string", "enum": [*operation.events]},
            "data": {"type": "string", "description": "JSON, or `[DONE]`.", "minLength": 2},
        },
        "required": ["data"],
    }


def _error(path: str, status: int, references: Mapping[str, Value]) -> Value:
    is_anthropic = path.startswith("/v1/messages")
    kind = AnthropicErrorReply if is_anthropic else ErrorReply
    answer: Value = {
        "description": f"{HTTPStatus(status).phrase}.",
        "content": {JSON: {"schema": references[_key(kind)]}},
    }
    if status in (429, 503):
        seconds = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
        answer["headers"] = {"Retry-After": seconds}
    return answer
