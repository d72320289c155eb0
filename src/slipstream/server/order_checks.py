"""Whether an order can run at all: found out before it is queued, so that its client gets a 4xx."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from slipstream.errors import ContextFullError, OptionError, RequestError
from slipstream.grammar_text import grammar_texts, require_size
from slipstream.server.order import Order

MOST_CHOICES: Final = 128


def require_fit(order: Order, context: int, vocabulary: int) -> None:
    """
    Raises:
        RequestError, OptionError: a prompt without tokens or with unknown ones, or too many or too
            few outputs.
        GrammarError: its grammar is too large.
        ContextFullError: the prompt leaves no room to generate.
    """
    prompt = order.prompt
    if not prompt:
        raise RequestError("at least one prompt token", "none", "Give a prompt that is not empty.")
    if len(prompt) >= context:
        raise ContextFullError(
            f"`{_named(order.endpoint)}` of at most {context - 1} tokens",
            f"{len(prompt)}",
            "Shorten the prompt or use a larger context.",
        )
    _require_ids(prompt, "`prompt`", vocabulary)
    _require_ids(order.sampling.logit_bias, "`logit_bias`", vocabulary)
    for kind, text in grammar_texts(order.sampling):
        require_size(kind, text)
    if not 1 <= order.choices <= MOST_CHOICES:
        raise OptionError(f"`n` from 1 to {MOST_CHOICES}", f"{order.choices}", "Change `n`.")


def _named(endpoint: str) -> str:
    """The key that the prompt of an endpoint is made of."""
    return "messages" if "chat" in endpoint or "messages" in endpoint else "prompt"


def _require_ids(ids: Collection[int], where: str, vocabulary: int) -> None:
    for token in (min(ids), max(ids)) if ids else ():
        if not 0 <= token < vocabulary:
            raise RequestError(
                f"{where} of token ids from 0 to {vocabulary - 1}",
                f"{token}",
                "Use the model's tokenizer.",
            )
