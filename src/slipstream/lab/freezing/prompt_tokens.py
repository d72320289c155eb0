"""How many tokens a prompt has for the target: its own tokenizer and template, without weights."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.catalog import locate
from slipstream.chat import ChatTemplate, encode_chat
from slipstream.errors import TemplateError
from slipstream.gguf import open_gguf
from slipstream.measure.workload import WorkloadPrompt
from slipstream.tokenizer import Tokenizer, build_tokenizer


@dataclass(frozen=True)
class PromptCounter:
    """A target's tokenizer.

    Attributes:
        template: None for a base model, which gets the bare texts of the messages.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | None

    def tokens(self, prompt: WorkloadPrompt) -> int:
        """So many ``ids``; errors as there."""
        return len(self.ids(prompt))

    def ids(self, prompt: WorkloadPrompt) -> list[int]:
        """Of the rendered prompt, its tools and the opening of the answer included.

        Raises:
            TemplateError: the model's template refuses the messages.
            TokenizerError: the text cannot be encoded.
        """
        if self.template is None:
            text = "\n\n".join(message.content for message in prompt.messages)
            return list(self.tokenizer.encode(text))
        rendered = self.template.render(prompt.chat_messages(), tools=prompt.chat_tools())
        return encode_chat(self.tokenizer, rendered)


def prompt_counter(model: str) -> PromptCounter:
    """The counter of a path or catalogue name.

    Raises:
        ModelFileError: the file is not here, or is malformed.
        UnsupportedError, TokenizerError: it cannot be tokenised for.
    """
    with open_gguf(locate(model)) as file:
        tokenizer = build_tokenizer(file.metadata)
        try:
            template = ChatTemplate.from_metadata(file.metadata, tokenizer)
        except TemplateError:
            template = None
    return PromptCounter(tokenizer, template)
