"""Prompts that ask a model for the text between two others, by its fill-in-the-middle tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slipstream.errors import UnsupportedError
from slipstream.tokenizer import Tokenizer

# prefix, suffix and middle as the families of code models spell them
_SPELLINGS: Final = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
)


@dataclass(frozen=True, slots=True)
class MiddleTokens:
    """Ids of the three marks."""

    prefix: int
    suffix: int
    middle: int


def middle_tokens(tokenizer: Tokenizer) -> MiddleTokens:
    """The marks of a vocabulary.

    Raises:
        UnsupportedError: it has none.
    """
    for spelling in _SPELLINGS:
        ids = [tokenizer.token_id(text) for text in spelling]
        prefix, suffix, middle = ids
        if prefix is not None and suffix is not None and middle is not None:
            return MiddleTokens(prefix, suffix, middle)
    raise UnsupportedError(
        "a model with fill-in-the-middle tokens, such as qwen2.5-coder",
        "a vocabulary without them",
        "Leave out `suffix`, or use another model.",
    )


def middle_prompt(
    tokenizer: Tokenizer, before: Sequence[int], after: Sequence[int]
) -> list[int]:
    """Ids of the prompt whose continuation stands between two texts.

    Args:
        before, after: ids of the texts, nothing added to them.
    """
    marks = middle_tokens(tokenizer)
    begin = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    return [*begin, marks.prefix, *before, marks.suffix, *after, marks.middle]
