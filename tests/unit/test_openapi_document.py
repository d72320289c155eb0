"""The OpenAPI document: exactly the routes of the server, and schemas that its examples have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from starlette.routing import Route, Router
from starlette.testclient import TestClient

from character_service import CharacterService
from json_schemas import MismatchError, check, resolve
from servers import server_events
from slipstream.options import SamplingOptions
from slipstream.server import app, health
from slipstream.server.bodies import ANY, fill
from slipstream.server.meters import Meters
from slipstream.server.openapi_document import document, listed
from slipstream.server.openapi_operations import OPERATIONS
from slipstream.server.page import FILES

WITH_BODY = {place: o for place, o in OPERATIONS.items() if o.body is not None}
# a model without marks to fill in the middle answers nothing to /infill
STREAMING = [p for p in OPERATIONS if OPERATIONS[p].streams and p[1] != "/infill"]
WITH_REPLY = {place: o for place, o in OPERATIONS.items() if o.reply is not None}


def server_routes() -> list[Route]:
    """The routes of a whole server."""
    service: Any = CharacterService()
    made = app.endpoint_routes(service, Meters((), 1), metrics_enabled=True)
    found = [*health.routes(lambda: None), *made]
    assert all(type(route) is Route for route in found)
    return [route for route in found if isinstance(route, Route)]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """The document as a client reads it."""
    client = TestClient(Router(server_routes()))
    value: dict[str, Any] = client.get("/openapi.json").json()
    return value


def operations_of(made: dict[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for path, entry in made["paths"].items():
        for method, operation in entry.items():
            yield (method.upper(), path), operation


def test_it_lists_exactly_the_routes(made: dict[str, Any]) -> None:
    assert {place for place, _ in operations_of(made)} == set(listed(server_routes()))


def test_every_route_is_described_and_every_description_has_a_route() -> None:
    assert set(OPERATIONS) == set(listed(server_routes()))


def test_a_route_without_a_description_is_listed_all_the_same() -> None:
    async def answer(_request: Any) -> Any:
        raise NotImplementedError

    value = document([Route("/new/{name:path}", answer)], OPERATIONS, "1")
    entry = value["paths"]["/new/{name}"]["get"]
    assert entry["parameters"][0]["name"] == "name"


def test_it_is_openapi(made: dict[str, Any]) -> None:
    assert made["openapi"] == "3.1.0"
    identifiers = [operation["operationId"] for _, operation in operations_of(made)]
    assert len(set(identifiers)) == len(identifiers)
    for _, operation in operations_of(made):
        assert operation["summary"]
        assert "200" in operation["responses"]
    for reference in references(made):
        assert resolve(reference, made)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def body_schema(made: dict[str, Any], place: tuple[str, str]) -> dict[str, Any]:
    entry = made["paths"][place[1]][place[0].lower()]
    schema: dict[str, Any] = entry["requestBody"]["content"]["application/json"]["schema"]
    return schema


@pytest.mark.parametrize("place", WITH_BODY, ids="".join)
def test_schemas_accept_the_examples(made: dict[str, Any], place: tuple[str, str]) -> None:
    assert WITH_BODY[place].examples
    for example in WITH_BODY[place].examples.values():
        check(example, body_schema(made, place), made)


def test_examples_are_quick() -> None:
    for (_, path), operation in WITH_BODY.items():
        if operation.sampling:
            for example in operation.examples.values():
                bound = example.get("max_tokens", example.get("n_predict"))
                assert bound is not None or path.endswith("count_tokens"), (path, example)
                assert bound is None or bound <= 64


@pytest.mark.parametrize("place", STREAMING, ids="".join)
def test_events_of_streams_have_their_schema(made: dict[str, Any], place: tuple[str, str]) -> None:
    """As clients parse them: an object with the event's name and its data."""
    path, method = place[1], place[0].lower()
    response = made["paths"][path][method]["responses"]["200"]
    schema = response["content"]["text/event-stream"]["schema"]
    body: dict[str, Any] = {"stream": True, "max_tokens": 5}
    chat = {"messages": [{"role": "user", "content": "Hello"}]}
    body |= chat if "messages" in path or "chat" in path else {"prompt": "a"}
    with TestClient(Router(server_routes())) as client:
        reply = client.post(path, json=body)
    names = [name or "message" for name, _ in server_events(iter(reply.text.split("\n")))]
    assert len(names) > 1
    for name in names:
        check({"event": name, "data": "{}"}, schema, made)
    with pytest.raises(MismatchError):
        check("data: {}", schema, made)
    with pytest.raises(MismatchError):
        check({"event": "other", "data": "{}"}, schema, made)


@pytest.mark.parametrize("place", WITH_BODY, ids="".join)
def test_the_server_accepts_the_examples(place: tuple[str, str]) -> None:
    operation = WITH_BODY[place]
    assert operation.body is not None
    for example in operation.examples.values():
        rest = {key: value for key, value in example.items() if key not in operation.sampling}
        fill(operation.body, rest, operation.neutral)
        for key, struct in operation.narrower.items():
            msgspec.convert(rest.get(key, {}), struct)


@pytest.mark.parametrize("place", WITH_BODY, ids="".join)
def test_schemas_refuse_what_the_server_refuses(
    made: dict[str, Any], place: tuple[str, str]
) -> None:
    schema = body_schema(made, place)
    [example, *_] = WITH_BODY[place].examples.values()
    with pytest.raises(MismatchError, match="temprature is not known"):
        check({**example, "temprature": 1}, schema, made)
    required = resolve(schema["$ref"], made).get("required", [])
    for name in required:
        with pytest.raises(MismatchError, match=f"no {name}"):
            check({key: value for key, value in example.items() if key != name}, schema, made)
    if "temperature" in WITH_BODY[place].sampling:
        with pytest.raises(MismatchError, match="temperature"):
            check({**example, "temperature": -1}, schema, made)


@pytest.mark.parametrize("place", WITH_BODY, ids="".join)
def test_keys_without_effect_are_shown_as_such(
    made: dict[str, Any], place: tuple[str, str]
) -> None:
    [example, *_] = WITH_BODY[place].examples.values()
    operation = WITH_BODY[place]
    assert operation.body is not None
    schema = body_schema(made, place)
    for name, neutral in operation.neutral.items():
        if name in operation.body.__struct_fields__ or name in example:
            continue
        choices = neutral if isinstance(neutral, tuple) else (neutral,)
        check({**example, name: "any" if neutral is ANY else choices[0]}, schema, made)
        if neutral is not ANY:
            with pytest.raises(MismatchError):
                check({**example, name: "something else"}, schema, made)


@pytest.mark.parametrize("place", WITH_REPLY, ids="".join)
def test_replies_have_their_schema(made: dict[str, Any], place: tuple[str, str]) -> None:
    operation = WITH_REPLY[place]
    entry = made["paths"][place[1]][place[0].lower()]
    content = entry["responses"]["200"]["content"]["application/json"]
    check(content["example"], content["schema"], made)
    msgspec.convert(operation.reply_example, operation.reply)


def test_options_and_their_aliases_are_keys_of_a_body(made: dict[str, Any]) -> None:
    schema = resolve(body_schema(made, ("POST", "/completion"))["$ref"], made)
    for name in ("temperature", "temp", "n_predict", "repeat_penalty", "speculative", "session"):
        assert name in schema["properties"]
    known = made["components"]["schemas"][SamplingOptions.__name__]["properties"]
    assert schema["properties"]["top_k"] == known["top_k"]


def test_errors_have_the_shape_of_their_protocol(made: dict[str, Any]) -> None:
    for (_, path), operation in operations_of(made):
        for status, reply in operation["responses"].items():
            if status == "200":
                continue
            schema = reply["content"]["application/json"]["schema"]["$ref"]
            assert schema.endswith("AnthropicErrorReply") == path.startswith("/v1/messages")


def test_open_paths_need_no_key(made: dict[str, Any]) -> None:
    found = {path for (_, path), entry in operations_of(made) if entry.get("security") == []}
    assert found == {*FILES, "/health", "/v1/health"}
    for path in found:
        assert "401" not in made["paths"][path]["get"]["responses"]
