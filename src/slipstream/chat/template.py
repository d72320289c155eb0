"""Chat templates: messages to the prompt text that a model was trained on.

Templates come with the model file, so they are untrusted programs: they run in a sandbox with a
budget (``slipstream.chat.sandbox``). Message contents are pasted in as text, and
``encode_chat`` then finds control tokens everywhere, as llama.cpp does: a user who writes
``<|im_end|>`` can end their turn. A server that must prevent that rejects such contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from slipstream.errors import TemplateError
from slipstream.tokenizer import Tokenizer

if TYPE_CHECKING:
    from slipstream.chat.sandbox import SandboxedTemplate

TEMPLATE_KEY: Final = "tokenizer.chat_template"
MAX_TEMPLATE_CHARACTERS: Final = 1 << 18

Message = Mapping[str, object]


class ChatTemplate:
    """A model's chat template.

    Args:
        source: Jinja text.
        bos_token, eos_token: texts of the boundary tokens, for the template's variables.
        clock: the current local time, for templates that print the date.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise TemplateError(
                f"a chat template of at most {MAX_TEMPLATE_CHARACTERS} characters",
                str(len(source)),
                "The model file is damaged or hostile.",
            )
        self.source = source
        self._boundaries = {"bos_token": bos_token, "eos_token": eos_token}
        self._clock = clock

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], tokenizer: Tokenizer) -> ChatTemplate:
        """The template in a model file.

        Raises:
            TemplateError: the file has none (a base model), or it is no text.
        """
        source = metadata.get(TEMPLATE_KEY)
        if source is None:
            raise TemplateError(
                f"a chat template in the model file ({TEMPLATE_KEY})",
                "none: this is a base model, trained to continue text and not to chat",
                "Use `slipstream run` with a plain prompt, or an instruction-tuned model.",
            )
        if not isinstance(source, str):
            raise TemplateError(
                f"{TEMPLATE_KEY} to be text",
                type(source).__name__,
                "Convert the model again with a current converter.",
            )
        return cls(
            source,
            bos_token=_token_text(tokenizer, tokenizer.bos_id),
            eos_token=_token_text(tokenizer, tokenizer.eos_id),
        )

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        **variables: object,
    ) -> str:
        """The prompt text.

        Args:
            messages: mappings with ``role`` and ``content`` (text; None beside ``tool_calls``),
                other keys as the template wants them.
            add_generation_prompt: end with the opening of the assistant's turn.
            tools: function schemas offered to the model.
            variables: further variables of the template.

        Raises:
            TemplateError: a message is malformed, or the template is invalid, refuses the
                messages or exceeds its budget.
        """
        for index, message in enumerate(messages):
            _require_message(index, message)
        return self._template.render(
            {
                **self._boundaries,
                **variables,
                "messages": list(messages),
                "tools": None if tools is None else list(tools),
                "add_generation_prompt": add_generation_prompt,
            }
        )

    @cached_property
    def _template(self) -> SandboxedTemplate:
        # Jinja takes longer to import than a small model to open, and `run` needs no template.
        from slipstream.chat.sandbox import SandboxedTemplate

        return SandboxedTemplate(self.source, self._clock)


def encode_chat(tokenizer: Tokenizer, rendered: str) -> list[int]:
    """Ids of a rendered template: control tokens parsed, exactly one BOS where one is wanted.

    A template may or may not print BOS itself, so it is added only where it is missing. EOS is
    never added: the prompt is to be continued.

    Raises:
        TokenizerError: the text cannot be encoded.
    """
    return list(chain.from_iterable(chat_slices(tokenizer, rendered)))


def chat_slices(tokenizer: Tokenizer, rendered: str) -> Iterator[Sequence[int]]:
    """The ids of ``encode_chat``, some at a time; errors as there."""
    slices = tokenizer.encoded_slices(rendered, add_special=False, parse_special=True)
    first = next(filter(None, slices), ())
    if tokenizer.add_bos and tokenizer.bos_id is not None and list(first[:1]) != [tokenizer.bos_id]:
        yield (tokenizer.bos_id,)
    yield first
    yield from slices


def _token_text(tokenizer: Tokenizer, token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.token_text(token_id)


def _require_message(index: int, message: object) -> None:
    if not isinstance(message, Mapping):
        raise _malformed(index, "an object with role and content", type(message).__name__)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise _malformed(index, "a role that is a non-empty text", repr(role)[:80])
    if content is None and not message.get("tool_calls"):
        raise _malformed(index, "a content (only tool calls go without)", "none")
    if content is not None and not isinstance(content, str):
        raise _malformed(index, "a content that is text", type(content).__name__)


def _malformed(index: int, expected: str, found: str) -> TemplateError:
    remedy = "Send messages such as {'role': 'user', 'content': 'Hello'}."
    return TemplateError(f"message {index} to have {expected}", found, remedy)
