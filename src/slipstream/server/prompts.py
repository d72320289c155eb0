"""Texts and conversations to token ids, off the event loop where it may take long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from slipstream.catalog import locate
from slipstream.chat import ChatTemplate, Message, encode_chat
from slipstream.errors import OptionError, RequestError, TemplateError
from slipstream.gguf import open_gguf
from slipstream.tokenizer import Tokenizer, build_tokenizer

THREADS: Final = 4
QUICK_CHARACTERS: Final = 1000  # encoded sooner than a thread is woken
PARTS_FACTOR: Final = 4  # bytes of JSON that a character of a prompt may come from
PARTS_BYTES: Final = 1 << 16
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
        most_characters: of one prompt; longer ones are refused unread.
    """

    def __init__(self, text: ModelText, most_characters: int) -> None:
        self._tokenizer = text.tokenizer
        self._template = text.template
        self._most = most_characters
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="prompt")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def of_text(self, text: str, *, add_special: bool) -> list[int]:
        """
        Raises:
            RequestError: it is too long.
            TokenizerError: it cannot be encoded.
        """
        self._require_length(len(text))
        encode = partial(self._tokenizer.encode, text, add_special=add_special, parse_special=True)
        return encode() if len(text) <= QUICK_CHARACTERS else await self._beside(encode)

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
        self._require_size(messages, tools, variables)
        return await self._beside(partial(self._render, messages, tools, variables))

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> list[int]:
        if isinstance(self._template, TemplateError):
            error = self._template
            raise TemplateError(error.expected, error.found, error.remedy)
        rendered = self._template.render(messages, tools=tools, **variables)
        self._require_length(len(rendered))
        return encode_chat(self._tokenizer, rendered)

    def _require_length(self, characters: int) -> None:
        if characters > self._most:
            raise RequestError(
                f"a prompt of at most {self._most} characters",
                f"{characters}",
                "Shorten it, or start the server with a larger `prompt_limit`.",
            )

    def _require_size(self, *values: Any) -> None:
        """Refuse what cannot end in a prompt that is short enough, before a template reads it."""
        try:
            size = len(msgspec.json.encode(values))
        except (TypeError, ValueError, RecursionError):  # the template says what is wrong
            return
        if size > PARTS_FACTOR * self._most + PARTS_BYTES:
            raise RequestError(
                f"messages, tools and variables of a prompt of at most {self._most} characters",
                f"{size} bytes",
                "Shorten them, or start the server with a larger `prompt_limit`.",
            )

    async def _beside(self, work: Callable[[], list[int]]) -> list[int]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
