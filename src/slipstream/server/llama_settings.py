"""Sampling options and a request's state as llama-server shows them; none of its neighbours'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from slipstream.options import SamplingOptions

RANDOM_SEED: Final = 0xFFFFFFFF
"""llama.cpp's number for a seed that is drawn."""

SAMPLERS: Final = ("penalties", "top_k", "top_p", "min_p", "temperature")
"""What is applied, in this order; each is off at its neutral value."""

# What llama.cpp offers and Slipstream does not, at the values that switch it off.
_OFF: Final[Mapping[str, Any]] = {
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 0,
    "dry_sequence_breakers": [],
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "n_keep": 0,
    "n_discard": 0,
    "min_keep": 0,
    "post_sampling_probs": False,
    "lora": [],
}


def generation_settings(
    sampling: SamplingOptions, speculation: Mapping[str, Any], *, stream: bool = True
) -> dict[str, Any]:
    """llama-server's ``generation_settings`` and ``params``.

    Args:
        sampling: in effect.
        speculation: in effect, as it is echoed; empty where nothing is known.
    """
    return {
        "n_predict": sampling.max_tokens,
        "max_tokens": sampling.max_tokens,
        "seed": RANDOM_SEED if sampling.seed is None else sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_last_n": sampling.penalty_window,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": [{"token": token, "bias": b} for token, b in sampling.logit_bias.items()],
        "stop": list(sampling.stop),
        "ignore_eos": sampling.ignore_eos,
        "n_probs": sampling.logprobs or 0,
        "grammar": sampling.grammar or "",
        "samplers": list(SAMPLERS),
        "stream": stream,
        **_OFF,
        **{f"speculative.{name}": value for name, value in speculation.items()},
    }


def next_token(decoded: int, most: int, *, running: bool) -> list[dict[str, Any]]:
    """llama-server's ``next_token``: a list of one.

    Args:
        decoded: tokens emitted.
        most: limit of the output; -1 = the context's.
    """
    left = -1 if most < 0 else max(most - decoded, 0)
    return [{"has_next_token": running, "n_remain": left, "n_decoded": decoded}]
