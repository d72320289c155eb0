"""Errors in OpenAI's shape, and keys that nobody knows."""

from __future__ import annotations

from typing import Any, Final

from slipstream.lab.client import told
from slipstream.lab.conformance.asking import Asker, answered, chat
from slipstream.lab.conformance.checks import Room, require
from slipstream.lab.conformance.comparing import Output
from slipstream.lab.conformance.prompts import SHORT
from slipstream.lab.conformance.replies import Reply

UNKNOWN_KEY: Final = "temprature"
_NOWHERE: Final = "/v1/chat/no-such-endpoint"


def errors(asker: Asker, room: Room) -> list[Output]:
    """A request at fault gets a status of 4xx and an error in JSON, and the server goes on."""
    del room
    require_error(asker.damaged(chat(SHORT, 4)), "a body that is no JSON")
    faulty: tuple[tuple[str, dict[str, Any]], ...] = (
        ("a request without messages", {"messages": None}),
        ("a temperature that is a text", {"temperature": "hot"}),
        ("messages that are a number", {"messages": 7}),
    )
    for what, change in faulty:
        asked = chat(SHORT, 4, **change)
        if asked["messages"] is None:
            del asked["messages"]
        require_error(asker.ask(asked), what)
    require_error(asker.ask(chat(SHORT, 4), _NOWHERE), "a path that is not there")
    answered(asker.ask(chat(SHORT, 4)))
    return []


def require_error(reply: Reply, what: str) -> None:
    """
    Raises:
        ContractError: the status is not 4xx, or the body not OpenAI's shape.
    """
    status = reply.status
    require(400 <= status < 500, f"{what}: HTTP {status} {reply.error_text}", reply)
    error = told.mapping(told.mapping(reply.value).get("error"))
    shaped = told.text(error.get("message")) and told.text(error.get("type"))
    require(shaped, f"{what}: HTTP {status} without `error.message` and `error.type`", reply)


def unknown_keys(asker: Asker, room: Room) -> list[Output]:
    """A misspelt key is refused by its name, never dropped."""
    del room
    reply = asker.ask(chat(SHORT, 4, **{UNKNOWN_KEY: 0.5}))
    require(reply.status != 200, f"`{UNKNOWN_KEY}` was accepted, without effect", reply)
    require_error(reply, f"`{UNKNOWN_KEY}`")
    named = UNKNOWN_KEY in reply.error_text
    require(named, f"the error does not name `{UNKNOWN_KEY}`: {reply.error_text}", reply)
    return []
