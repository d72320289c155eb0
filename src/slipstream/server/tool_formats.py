"""How models write function calls: the frame around them, its grammar, and how it is read back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slipstream.server.tool_stream import BareStream, TaggedStream, ToolStream
from slipstream.structured import WHITESPACE
from slipstream.tokenizer import Tokenizer

# What templates print of calls and models were trained on: one way to write each document, so
# that a small model cannot emit spaces for ever and most of the frame is dictated.
_SPACING: Final = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way to write calls.

    Attributes:
        name: of the family of models that does.
        opening, closing: around each call; the line ends are part of what models write.
        arguments: key of the arguments.
        between: two calls.
        mark: a token that may stand before calls.
    """

    name: str
    opening: str
    closing: str
    arguments: str
    between: str
    mark: str = ""

    def stream(self, names: Collection[str]) -> ToolStream:
        """A splitter for one output.

        Args:
            names: of the functions offered.
        """
        if self.opening:
            return TaggedStream(self.opening.strip(), self.closing.strip())
        return BareStream(self.mark, names)

    def marks(self, tokenizer: Tokenizer) -> dict[int, str]:
        """Token id -> text, for those parts of the frame that are control tokens and have no text
        in an output."""
        texts = [text for text in (self.mark, self.opening.strip(), self.closing.strip()) if text]
        ids = {tokenizer.token_id(text): text for text in texts}
        return {
            token: text
            for token, text in ids.items()
            if token is not None and tokenizer.is_control(token)
        }

    def grammar(
        self,
        functions: Sequence[Mapping[str, Any]],
        *,
        several: bool,
        answer: str | None = None,
    ) -> str:
        """A grammar, in llguidance's variant of Lark, of outputs that are calls.

        Args:
            functions: ``name`` and ``parameters`` (a JSON schema) of each that may be called.
            several: more than one call may be made.
            answer: JSON schema of an output that is no call, where that is allowed too.
        """
        repeated = f" ({_quoted(self.between)} call)*" if several else ""
        rules = [f"start: calls{' | answer' if answer is not None else ''}"]
        rules.append(f"calls: call{repeated}")
        frame = [_quoted(text) for text in (self.opening, self.closing) if text]
        rules.append(f"call: {' function '.join(frame) if frame else 'function'}")
        alternatives = " | ".join(f"function_{place}" for place in range(len(functions)))
        rules.append(f"function: {alternatives}")
        for place, function in enumerate(functions):
            head = f'{{"name": {json.dumps(function["name"])}, "{self.arguments}": '
            rules.append(f'function_{place}: {_quoted(head)} arguments_{place} "}}"')
            rules.append(f"arguments_{place}: %json {_schema(function.get('parameters'))}")
        if answer is not None:
            rules.append(f"answer: %json {_answer(answer)}")
        return "\n".join(rules) + "\n"


QWEN2: Final = CallFormat(
    name="qwen2",
    opening="<tool_call>\n",
    closing="\n</tool_call>",
    arguments="arguments",
    between="\n",
)
LLAMA3: Final = CallFormat(
    name="llama3",
    opening="",
    closing="",
    arguments="parameters",
    between="; ",
    mark="<|python_tag|>",
)
FORMATS: Final = (QWEN2, LLAMA3)


def _quoted(text: str) -> str:
    """A text as a Lark literal."""
    return json.dumps(text, ensure_ascii=False)


def _schema(parameters: Any) -> str:
    """A function's parameters for ``%json``, written in the one way of calls."""
    schema = dict(parameters or NO_ARGUMENTS)
    said = schema.get("x-guidance")
    schema["x-guidance"] = {**_SPACING, **(said if isinstance(said, dict) else {})}
    return json.dumps(schema, ensure_ascii=False, allow_nan=False)


def _answer(text: str) -> str:
    """A schema of an output for ``%json``: white space as where it stands alone."""
    schema = json.loads(text)
    if isinstance(schema, dict) and "x-guidance" not in schema:
        schema["x-guidance"] = {"whitespace_pattern": WHITESPACE}
    return json.dumps(schema, ensure_ascii=False)
