"""Functions offered to the model: what a request says of them, and what becomes of it.

How a model writes calls is read off its own template: what it prints when it is given a function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from slipstream.errors import RequestError, TemplateError, UnsupportedError
from slipstream.server.bodies import fill, shown
from slipstream.server.order import Service
from slipstream.server.tool_formats import LLAMA3, QWEN2, CallFormat
from slipstream.server.tool_stream import ToolStream

MOST_TOOLS: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PROBE: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": "probed_function",
        "description": "A function.",
        "parameters": {"type": "object", "properties": {}},
    },
}
_HELLO: Final = ({"role": "user", "content": "Hello"},)


class Function(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A function that may be called.

    Attributes:
        parameters: JSON schema of its arguments; None = it takes none.
        strict: without effect: arguments are held to the schema wherever a call is demanded.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's frame around a function."""

    function: Function
    type: Literal["function"] = "function"


class _Tools(msgspec.Struct):
    tools: Annotated[list[Tool], Meta(max_length=MOST_TOOLS)]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request may do with functions.

    Attributes:
        offered: for the template.
        grammar: that the output must have, where a call is demanded.
        several: whether an output may hold more than one call.
        marks: token id -> text that its token stands for in the frame of a call.
    """

    format: CallFormat
    offered: Sequence[Mapping[str, Any]]
    grammar: str | None = None
    several: bool = True
    marks: Mapping[int, str] = field(default_factory=dict)

    def stream(self) -> ToolStream:
        """A splitter for one output."""
        return self.format.stream(frozenset(tool["function"]["name"] for tool in self.offered))


class ToolSupport:
    """What the model of a server can do with functions, found out when first asked."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._format: CallFormat | None = None

    async def use(
        self,
        tools: Sequence[Any],
        choice: Any = None,
        *,
        several: bool = True,
        answer: str | None = None,
    ) -> ToolUse | None:
        """What a request may do; None where no function is offered.

        Args:
            tools: OpenAI's list.
            choice: OpenAI's ``tool_choice``: None, none, auto, required, or a function by name.
            several: OpenAI's ``parallel_tool_calls``.
            answer: JSON schema that an output without calls must have.

        Raises:
            RequestError: tools or choice are malformed, or do not fit each other.
            UnsupportedError: a kind of tool that is no function, or the model's template knows no
                functions, or writes calls in a way that is not known here.
        """
        offered = offered_tools(tools)
        mode, name = tool_choice(choice, offered)
        if not offered or mode == "none":
            return None
        form = await self.format()
        functions = [tool["function"] for tool in offered]
        if name is not None:
            functions = [function for function in functions if function["name"] == name]
        grammar = None
        if mode == "required" or answer is not None:
            grammar = form.grammar(
                functions,
                several=several and name is None,
                answer=None if mode == "required" else answer,
            )
        marks = form.marks(self._service.tokenizer)
        return ToolUse(form, offered, grammar, several and name is None, marks)

    async def format(self) -> CallFormat:
        """How the model writes calls; errors as ``use``."""
        if self._format is None:
            self._format = await self._found()
        return self._format

    async def _found(self) -> CallFormat:
        service = self._service
        try:
            plain = await service.chat_ids(_HELLO)
            told = await service.chat_ids(_HELLO, tools=[_PROBE])
        except TemplateError as error:
            raise _no_tools(f"{error.found}") from None
        text = service.tokenizer.decode(told)
        if told == plain or "probed_function" not in text:
            raise _no_tools("one that leaves them out")
        if QWEN2.opening.strip() in text:
            return QWEN2
        if text.count('"parameters"') > 1:  # once in the function, and once in how to call it
            return LLAMA3
        raise _no_tools("one with another way to write calls")


def _no_tools(found: str) -> UnsupportedError:
    return UnsupportedError(
        "a model whose chat template offers functions in the way of Qwen 2 or Llama 3",
        found,
        "Leave out `tools`, or use another model.",
    )


def offered_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Tools as templates want them, their keys in the order that models know; errors as ``use``."""
    for tool in tools:
        kind = tool.get("type", "function") if isinstance(tool, dict) else "function"
        if kind != "function":
            raise UnsupportedError(
                "`tools` of type function", f"type {shown(kind)}", "Offer functions alone."
            )
    made: list[dict[str, Any]] = []
    names: set[str] = set()
    for tool in fill(_Tools, {"tools": list(tools)}).tools:
        function = tool.function
        if not _NAME.fullmatch(function.name):
            raise RequestError(
                "`tools` with names of letters, digits, `_`, `-`, `.` and `:`, at most 128",
                shown(function.name),
                "Rename the function.",
            )
        if function.name in names:
            raise RequestError("`tools` with each name once", function.name, "Rename one.")
        names.add(function.name)
        made.append({"type": "function", "function": _described(function)})
    return made


def _described(function: Function) -> dict[str, Any]:
    made: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        made["description"] = function.description
    if function.parameters is not None:
        made["parameters"] = function.parameters
    return made


def tool_choice(
    choice: Any, offered: Sequence[Mapping[str, Any]]
) -> tuple[Literal["none", "auto", "required"], str | None]:
    """What a call's choice is, and the one function that must be called; errors as ``use``."""
    if choice is None:
        return "auto", None
    if choice in ("none", "auto"):
        return choice, None
    name = None
    if choice != "required":
        name = _named(choice)
    if not offered:
        raise RequestError(
            "`tools` beside `tool_choice`", "none", "Offer functions, or leave it out."
        )
    names = [tool["function"]["name"] for tool in offered]
    if name is not None and name not in names:
        raise RequestError(
            f"`tool_choice` to be one of {shown(', '.join(names))}",
            shown(name),
            "Name a function of `tools`.",
        )
    return "required", name


def _named(choice: Any) -> str:
    kind = choice.get("type", "function") if isinstance(choice, dict) else None
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if kind != "function" or not isinstance(name, str):
        raise RequestError(
            "`tool_choice` to be none, auto, required, or a function by name",
            shown(choice),
            'Write {"type": "function", "function": {"name": ..}}.',
        )
    return name
