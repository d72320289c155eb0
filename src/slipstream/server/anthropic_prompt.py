"""Anthropic's messages in the form that chat templates read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from slipstream.errors import RequestError
from slipstream.server.anthropic_bodies import (
    Block,
    CountBody,
    InputMessage,
    TextBlock,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
)
from slipstream.server.bodies import shown

Turn = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """
    Attributes:
        messages: for the template, which is to open the assistant's turn after them.
        opening: text that the reply goes on from: the last message, where the assistant spoke it.
    """

    messages: Sequence[Mapping[str, Any]]
    opening: str = ""


def conversation(body: CountBody) -> Conversation:
    """What a request says so far.

    Turns of the same role in a row become one. Text blocks are joined by line ends.

    Raises:
        RequestError: a block stands where it cannot, a result belongs to no call, or the user says
            nothing.
    """
    called: dict[str, str] = {}
    turns: list[Turn] = []
    if body.system:
        turns.append({"role": "system", "content": _text(body.system)})
    for place, message in enumerate(body.messages):
        turns += _turns(message, f"messages[{place}]", called)
    turns = _merged(turns)
    opening = ""
    if turns[-1]["role"] == "assistant":
        if turns[-1].get("tool_calls"):
            raise RequestError(
                "the results of the tools after the calls",
                "calls in the last message",
                "Add a message of the user with a `tool_result` for each.",
            )
        opening = turns.pop()["content"]
    if not any(turn["role"] in ("user", "tool") for turn in turns):
        raise RequestError("`messages` in which the user speaks", "none", "Add one.")
    return Conversation(turns, opening)


def functions(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools in OpenAI's form."""
    return [_function(tool) for tool in tools]


def with_text_arguments(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the arguments of calls as JSON text, which some templates want."""
    return [
        {**turn, "tool_calls": [_with_text(call) for call in turn["tool_calls"]]}
        if "tool_calls" in turn
        else dict(turn)
        for turn in messages
    ]


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _text(content: str | Sequence[TextBlock] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block.text for block in content)


def _turns(message: InputMessage, where: str, called: dict[str, str]) -> list[Turn]:
    content = message.content
    if isinstance(content, str):
        return [{"role": message.role, "content": content}]
    if message.role == "assistant":
        return [_said(content, where, called)]
    turns: list[Turn] = [{"role": message.role, "content": ""}] if not content else []
    for block in content:
        if isinstance(block, TextBlock):
            turns.append({"role": message.role, "content": block.text})
        elif isinstance(block, ToolResultBlock) and message.role == "user":
            turns.append(_result(block, where, called))
        else:
            raise _misplaced(block, message.role, where)
    return turns


def _said(content: Sequence[Block], where: str, called: dict[str, str]) -> Turn:
    texts, calls = [], []
    for block in content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ToolUseBlock):
            called[block.id] = block.name
            function = {"name": block.name, "arguments": block.input}
            calls.append({"id": block.id, "type": "function", "function": function})
        else:
            raise _misplaced(block, "assistant", where)
    turn: Turn = {"role": "assistant", "content": "\n".join(texts)}
    return {**turn, "tool_calls": calls} if calls else turn


def _result(block: ToolResultBlock, where: str, called: Mapping[str, str]) -> Turn:
    name = called.get(block.tool_use_id)
    if name is None:
        raise RequestError(
            f"a `tool_use` before the `tool_result` in `{where}`",
            f"none with the id `{shown(block.tool_use_id)}`",
            "Send the assistant's message with the call as it was given.",
        )
    text = _text(block.content)
    return {
        "role": "tool",
        "tool_call_id": block.tool_use_id,
        "name": name,
        "content": f"Error: {text}" if block.is_error else text,
    }


def _misplaced(block: Block, role: str, where: str) -> RequestError:
    kind = type(block).__struct_config__.tag
    belongs = "the assistant" if isinstance(block, ToolUseBlock) else "the user"
    return RequestError(
        f"`{kind}` in a message of {belongs}", f"role {role} in `{where}`", "Move it."
    )


def _merged(turns: Sequence[Turn]) -> list[Turn]:
    merged: list[Turn] = []
    for role, group in groupby(turns, itemgetter("role")):
        same = list(group)
        merged += [_one(same)] if role in ("user", "assistant") else same
    return merged


def _one(turns: Sequence[Turn]) -> Turn:
    calls = [call for turn in turns for call in turn.get("tool_calls", ())]
    text = "\n".join(turn["content"] for turn in turns if turn["content"])
    turn: Turn = {"role": turns[0]["role"], "content": text}
    return {**turn, "tool_calls": calls} if calls else turn


def _function(tool: Tool) -> dict[str, Any]:
    about = {} if tool.description is None else {"description": tool.description}
    function = {"name": tool.name, **about, "parameters": tool.input_schema}
    return {"type": "function", "function": function}
