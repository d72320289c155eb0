"""Log-probabilities of tokens in OpenAI's two formats; a drafted token has them as any other.

They are of the model's own distribution: before temperature, filters, penalties and grammar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.server.wire import WireToken
from slipstream.tokenizer import Tokenizer


def text_tokens(
    tokens: Sequence[WireToken],
    finish_reason: str | None,
    stop: str | None,
    tokenizer: Tokenizer,
) -> Sequence[WireToken]:
    """Tokens without the one that ended the output, which is no text."""
    ended = finish_reason == "stop" and stop is None
    if ended and tokens and tokens[-1].id in tokenizer.end_ids:
        return tokens[:-1]
    return tokens


def chat_logprobs(tokens: Sequence[WireToken], tokenizer: Tokenizer) -> dict[str, Any]:
    """``logprobs`` of a choice of chat: each token with its bytes and the likeliest ones."""
    content = []
    for token in tokens:
        top = [_entry(candidate, logprob, tokenizer) for candidate, logprob in token.top]
        content.append(_entry(token.id, token.logprob, tokenizer) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def _entry(token: int, logprob: float | None, tokenizer: Tokenizer) -> dict[str, Any]:
    data = token_bytes(token, tokenizer)
    return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}


def token_bytes(token: int, tokenizer: Tokenizer) -> bytes:
    """Bytes of a token; none for an id beyond the vocabulary, which a model may pad."""
    return tokenizer.token_bytes(token) if token < tokenizer.vocabulary_size else b""


def completion_logprobs(
    tokens: Sequence[WireToken], tokenizer: Tokenizer, offset: int
) -> dict[str, Any]:
    """``logprobs`` of a choice of completions: lists with an item per token.

    Args:
        offset: characters of text before these tokens.
    """
    offsets, tops = [], []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
        tops.append(_top(token, tokenizer))
    return {
        "tokens": [spelled(token.id, tokenizer) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": tops if any(tops) else None,
        "text_offset": offsets,
    }


def _top(token: WireToken, tokenizer: Tokenizer) -> dict[str, float]:
    """The likeliest tokens and, last, the one that was chosen, where it is not among them."""
    if not token.top:
        return {}
    chosen = [] if token.logprob is None else [(token.id, token.logprob)]
    pairs = dict(token.top) | dict(chosen)
    return {spelled(candidate, tokenizer): logprob for candidate, logprob in pairs.items()}


def spelled(token: int, tokenizer: Tokenizer) -> str:
    """Text of a token, or ``bytes:\\xe2\\x80`` where it is a part of a character."""
    data = token_bytes(token, tokenizer)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
