"""Conversations to token ids, beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slipstream.catalog import locate
from slipstream.chat import ChatTemplate, Message, chat_slices
from slipstream.errors import OptionError, TemplateError
from slipstream.gguf import open_gguf
from slipstream.server.beside import GoOn
from slipstream.server.texts import Texts
from slipstream.tokenizer import Tokenizer, build_tokenizer

_OWN_VARIABLES: Final = frozenset({"self", "messages", "tools"})


@dataclass(frozen=True)
class ModelText:
    """What a model file says of texts; no weights.

    Attributes:
        template: of conversations, or why there is none.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | TemplateError


def open_text(model: str) -> ModelText:
    """
    Args:
        model: path, catalogue name or hub reference.

    Raises:
        InputError: the file cannot be found or read, or its vocabulary is not supported.
    """
    metadata = open_gguf(locate(model)).metadata
    tokenizer = build_tokenizer(metadata)
    try:
        return ModelText(tokenizer, ChatTemplate.from_metadata(metadata, tokenizer))
    except TemplateError as error:
        return ModelText(tokenizer, error)


class Prompts:
    """
    Args:
        text: of the model.
        texts: over its tokenizer.
    """

    def __init__(self, text: ModelText, texts: Texts) -> None:
        self._tokenizer = text.tokenizer
        self._template = text.template
        self._texts = texts

    async def of_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> list[int]:
        """
        Raises:
            RequestError: it is too long.
            TemplateError: no template, or it refuses the messages.
            OptionError: a variable is the server's own.
            TokenizerError: the text cannot be encoded.
        """
        for name in variables:
            if name in _OWN_VARIABLES or not isinstance(name, str):
                raise OptionError(
                    "variables of the template under names of their own",
                    f"`{name!s:.80}`",
                    "Leave it out.",
                )
        size = self._texts.require_parts(messages, tools, variables)
        return await self._texts.beside.run(
            lambda go_on: self._render(messages, tools, variables, go_on), size
        )

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
        go_on: GoOn,
    ) -> list[int]:
        if isinstance(self._template, TemplateError):
            error = self._template
            raise TemplateError(error.expected, error.found, error.remedy)
        rendered = self._template.render(messages, tools=tools, **variables)
        self._texts.require_text(len(rendered))
        ids: list[int] = []
        for found in chat_slices(self._tokenizer, rendered):
            go_on()
            ids += found
        return ids
