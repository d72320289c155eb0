"""What ``/completion`` and ``/infill`` accept: llama-server's keys, and how they become options.

Samplers that Slipstream does not have are accepted where they are off. Every option of
``SamplingOptions`` may be given under its own name or llama.cpp's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta
from starlette.requests import Request

from slipstream.errors import RequestError, UnsupportedError
from slipstream.options import MOST, SamplingOptions
from slipstream.server.bodies import ANY, Neutral, document, fill, shown
from slipstream.server.llama_prompts import ExtraText
from slipstream.server.llama_settings import RANDOM_SEED, SAMPLERS
from slipstream.server.openai_bodies import (
    LLAMA_NEUTRAL,
    MOST_CHOICES,
    SAMPLING_KEYS,
    Asked,
    GenerationBody,
    with_a_token,
)
from slipstream.server.openai_bodies import sampling_of as changed_sampling
from slipstream.server.order import Service
from slipstream.tokenizer import Tokenizer

BANNED: Final = -100.0
"""The bias that stands for llama.cpp's ``false``: a token that is never to be chosen."""

MOST_BIASES: Final = 1024
MOST_BIASED: Final = 256  # characters of a text
LARGEST: Final = 1e6
MOST_FIELDS: Final = 64
LONGEST_LIMIT_MS: Final = 86_400_000

# Keys of llama-server without effect here, at the values that ask for nothing.
NEUTRAL: Final[Neutral] = {
    **LLAMA_NEUTRAL,
    "dynatemp_exponent": ANY,
    "t_max_prompt_ms": ANY,  # llama-server reads it and does nothing either
    "n_cache_reuse": 0,
    "sse_ping_interval": ANY,
    "adaptive_target": (-1, -1.0),
    "adaptive_decay": ANY,
    "backend_sampling": False,
    "tfs_z": 1.0,
    "penalize_nl": ANY,  # line ends are penalised as other tokens; off where penalties are
    "image_data": ([],),
}
_DRAFT_KEYS: Final = tuple(f"speculative.{name}" for name in ("n_max", "n_min", "p_min"))

# llama.cpp's one-letter names of samplers
_LETTERS: Final = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
}
# sampler -> options that switch it off
_WITHOUT: Final[Mapping[str, Mapping[str, float]]] = {
    "penalties": {
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
    },
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
}
_NEVER_ON: Final = frozenset({"dry", "top_n_sigma", "typ_p", "typical_p", "xtc", "infill"})
_GBNF: Final = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)


class LlamaBody(GenerationBody, kw_only=True):
    """``/completion``.

    Attributes:
        n_cmpl: llama.cpp's name of ``n``.
        n_probs: most likely tokens told for each token, beside the chosen one; 0 = none.
        return_tokens: give the ids of a whole output.
        n_indent, t_max_predict_ms: see ``LineLimits``.
        samplers: order of the samplers; those left out are off. ``infill``, which Slipstream does
            not have, stands for the most likely token.
        response_fields: keep these keys of a whole reply; ``a/b`` is moved up as ``b``.
        id_slot: no effect: what is reused is found by content.
    """

    prompt: Any = None
    n_cmpl: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=100)] = 0
    return_tokens: bool = False
    n_indent: Annotated[int, Meta(ge=0, le=1024)] = 0
    t_max_predict_ms: Annotated[float, Meta(ge=0, le=LONGEST_LIMIT_MS)] = 0
    samplers: str | list[str] | None = None
    response_fields: Annotated[list[str], Meta(max_length=MOST_FIELDS)] | None = None
    id_slot: Annotated[int, Meta(ge=-1, le=MOST)] = -1


class InfillBody(LlamaBody, kw_only=True):
    """``/infill``; ``prompt`` is text that the filling begins with."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: Annotated[tuple[ExtraText, ...], Meta(max_length=256)] = ()


Body = TypeVar("Body", bound=LlamaBody)


def read(struct: type[Body], request: Request, data: bytes) -> Asked[Body]:
    """A request's body, read as far as it goes without the model.

    Raises:
        RequestError, UnsupportedError: as ``bodies.parse``, or a key that cannot be obeyed.
    """
    arrived_s = asyncio.get_running_loop().time()
    keys = {name: value for name, value in document(data).items() if value is not None}
    _gather_speculative(keys)
    given = {name: keys.pop(name) for name in SAMPLING_KEYS.intersection(keys)}
    body = fill(struct, keys, NEUTRAL, also=SAMPLING_KEYS)
    body.n = body.n_cmpl or body.n
    _settle_grammar(given)
    if given.get("seed") in (-1, RANDOM_SEED):
        del given["seed"]
    if isinstance(given.get("stop"), list):
        given["stop"] = [text for text in given["stop"] if text != ""]  # asks for nothing
    return Asked(body, given, request, arrived_s)


def sampling_of(asked: Asked[Body], service: Service) -> SamplingOptions:
    """The options in effect; ``n_predict`` 0 counts as 1 (``Asked.computes_only``).

    Raises:
        OptionError, RequestError, UnsupportedError: an option is at fault.
    """
    given = with_a_token(asked.sampling)
    settled: dict[str, Any] = {"logprobs": asked.body.n_probs or None}
    if "logit_bias" in given:
        settled["logit_bias"] = bias_of(given.pop("logit_bias"), service.tokenizer)
    if asked.body.samplers is not None:
        settled |= _without(_sampler_names(asked.body.samplers))
    return changed_sampling(service.sampling, given, **settled)


def bias_of(value: Any, tokenizer: Tokenizer) -> dict[int, float]:
    """llama.cpp's and OpenAI's forms of ``logit_bias``: pairs of a token or a text and a number.

    Each token of a text gets the number; ``false`` forbids.

    Raises:
        RequestError: it has another form.
    """
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or len(pairs) > MOST_BIASES:
        raise _no_bias(value)
    found: dict[int, float] = {}
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise _no_bias(pair)
        token, number = pair
        bias = BANNED if number is False else number
        if isinstance(bias, bool) or not (isinstance(bias, int | float) and abs(bias) < LARGEST):
            raise _no_bias(pair)
        found |= dict.fromkeys(_biased(token, tokenizer), float(bias))
    for token in found:
        if not 0 <= token < tokenizer.vocabulary_size:
            raise RequestError(
                f"`logit_bias` of token ids from 0 to {tokenizer.vocabulary_size - 1}",
                f"{token}",
                "Use ids of this model.",
            )
    return found


def _biased(token: Any, tokenizer: Tokenizer) -> list[int]:
    """The ids that a text or an id (in digits too) names."""
    if isinstance(token, str):
        if len(token) > MOST_BIASED:
            raise _no_bias(token)
        if not (token.isascii() and token.isdigit()):
            return tokenizer.encode(token, add_special=False)
    if isinstance(token, bool) or not isinstance(token, int | str):
        raise _no_bias(token)
    return [int(token)]


def _no_bias(found: Any) -> RequestError:
    return RequestError(
        f'`logit_bias` to be at most {MOST_BIASES} pairs such as [15043, 1.5] or ["text", false]',
        shown(found),
        "An object of token ids and numbers does too.",
    )


def _gather_speculative(keys: dict[str, Any]) -> None:
    """llama.cpp's ``speculative.n_max`` and so on become keys of ``speculative``."""
    dotted = {name.partition(".")[2]: keys.pop(name) for name in _DRAFT_KEYS if name in keys}
    if not dotted:
        return
    inner = keys.get("speculative", {})
    if not isinstance(inner, dict) or set(inner) & set(dotted):
        raise RequestError("each key of `speculative` once", "some twice", "Use the object alone.")
    keys["speculative"] = {**inner, **dotted}


def _settle_grammar(given: dict[str, Any]) -> None:
    """An empty grammar asks for nothing; llama.cpp's language is another than ours."""
    grammar = given.get("grammar")
    if grammar == "":
        del given["grammar"]
    elif isinstance(grammar, str) and _GBNF.search(grammar):
        raise RequestError(
            '`grammar` in llguidance\'s variant of Lark (`start: "yes" | "no"`)',
            "llama.cpp's GBNF (`root ::= ..`)",
            "Translate it, or use `json_schema` or `regex`.",
        )


def _sampler_names(samplers: str | Sequence[str]) -> list[str]:
    """
    Raises:
        RequestError: an unknown sampler.
    """
    names = list(samplers)
    if isinstance(samplers, str):
        names = [_LETTERS.get(letter, letter) for letter in samplers]
    for name in names:
        if name not in SAMPLERS and name not in _NEVER_ON:
            known = ", ".join((*SAMPLERS, *sorted(_NEVER_ON)))
            raise RequestError(f"samplers among {known}", f"`{shown(name)}`", "Leave it out.")
    return names


def _without(names: Sequence[str]) -> dict[str, float]:
    """Options that switch off the samplers left out.

    Raises:
        UnsupportedError: samplers in another order than ours, or one twice.
    """
    ours = [name for name in names if name in SAMPLERS]
    if ours != [name for name in SAMPLERS if name in ours]:
        raise UnsupportedError(
            f"samplers in the order {', '.join(SAMPLERS)}", ", ".join(ours)[:80], "Reorder them."
        )
    off: dict[str, float] = {}
    for name in SAMPLERS:
        if name not in ours:
            off |= _WITHOUT[name]
    if "infill" in names:
        off["temperature"] = 0.0
    return off
