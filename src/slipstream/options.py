"""Every option, once. The command line, requests, server profiles and lab plans derive from these.

A field carries its type, bounds, help and aliases; llama.cpp's spellings are aliases and its
defaults are kept where an option has the same meaning. `describe` lists a struct's options,
`from_mapping` builds one from untyped keys and values. A struct validates itself however it is
built, so code that receives one need not check it again.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from slipstream.errors import OptionError
from slipstream.option_fields import OptionInfo, describe, from_mapping, option, validate
from slipstream.speculation_options import (
    METHODS,
    DraftScope,
    SpeculationOptions,
    longest_draft,
    require_used,
)

__all__ = [
    "GRAMMARS",
    "METHODS",
    "DraftScope",
    "EngineOptions",
    "KvType",
    "ModelOptions",
    "OptionInfo",
    "Precision",
    "SamplingOptions",
    "SpeculationOptions",
    "describe",
    "from_mapping",
    "longest_draft",
    "require_used",
]

# Bits of the activations that quantised weights meet (docs/decisions/0006-activation-precision.md).
Precision = Literal["a8", "a16"]

KvType = Literal["f16", "q8_0"]


MOST = 1 << 53
"""Of counts that mean "as many as there are"; they enter native code."""


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which model runs, and on what."""

    model: Annotated[str, option("path, catalogue name or owner/repo:file", "m", min_length=1)]
    context: (
        Annotated[
            int,
            option(
                "positions kept per sequence; unset = the model's own", "ctx_size", "n_ctx", ge=1
            ),
        ]
        | None
    ) = None
    threads: (
        Annotated[
            int,
            option("threads; unset = physical cores available", "n_threads", ge=1, le=512),
        ]
        | None
    ) = None
    backend: Annotated[
        Literal["cpu", "reference"], option("native kernels, or the slow NumPy twin")
    ] = "cpu"
    kv_type: Annotated[
        KvType,
        option("how keys and values are kept; q8_0: half the memory, perplexity +0.5 to +1.3 %"),
    ] = "f16"
    isa: (
        Annotated[str, option("instruction set; unset = $SLIPSTREAM_ISA, else the best one")] | None
    ) = None
    precision: Annotated[
        Precision,
        option(
            "bits of activations; a8: perplexity within 1.3 % of float32's; "
            "a16: 1/200 of the rounding, a step costs as one of twice the rows"
        ),
    ] = "a8"

    def __post_init__(self) -> None:
        validate(self)
        if self.backend == "reference" and self.precision != "a8":
            raise OptionError(
                "no `precision` with `backend` reference, which keeps activations in float32",
                self.precision,
                "Leave out `precision`, or use the cpu backend.",
            )
        for name in ("isa", "threads"):
            if self.backend == "reference" and getattr(self, name) is not None:
                raise OptionError(
                    f"no `{name}` with `backend` reference, which is NumPy alone",
                    f"{getattr(self, name)}",
                    f"Leave out `{name}`, or use the cpu backend.",
                )


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the one loop schedules its work."""

    parallel: Annotated[
        int, option("sequences that run at the same time", "n_parallel", "np", ge=1, le=1024)
    ] = 1
    prefill_chunk: Annotated[
        int, option("most prompt rows in one step", "ubatch_size", "n_ubatch", ge=1, le=65536)
    ] = 512
    step_time_limit_s: Annotated[
        float, option("longest native call, so that cancelling works", gt=0, le=60)
    ] = 0.25
    pace: Annotated[
        float,
        option(
            "prompts may make a step take so many times what decoding alone takes; 0 = no limit",
            ge=0,
            le=1000,
        ),
    ] = 3.0
    prefix_cache: Annotated[
        int,
        option(
            "ended sequences kept per model, whose tokens later requests of the same session need "
            "not compute again while memory is free; 0 = off",
            ge=0,
            le=4096,
        ),
    ] = 8

    def __post_init__(self) -> None:
        validate(self)


class SamplingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How logits become tokens, and when to stop. Every filter is off by default."""

    temperature: Annotated[float, option("0 = greedy", "temp", ge=0, le=100)] = 0.0
    top_k: Annotated[int, option("keep the k most likely tokens; 0 = off", ge=0, le=MOST)] = 0
    top_p: Annotated[
        float, option("keep this probability mass; 1 = off, 0 = the best alone", ge=0, le=1)
    ] = 1.0
    min_p: Annotated[
        float, option("drop tokens below this share of the best; 0 = off", ge=0, le=1)
    ] = 0.0
    repetition_penalty: Annotated[
        float, option("divides logits of repeated tokens; 1 = off", "repeat_penalty", gt=0, le=100)
    ] = 1.0
    frequency_penalty: Annotated[
        float, option("subtracted per occurrence; 0 = off", ge=-100, le=100)
    ] = 0.0
    presence_penalty: Annotated[
        float, option("subtracted once for a token that occurred; 0 = off", ge=-100, le=100)
    ] = 0.0
    penalty_window: Annotated[
        int,
        option(
            "tokens the penalties look back; -1 = all, 0 = none", "repeat_last_n", ge=-1, le=MOST
        ),
    ] = 64
    logit_bias: Annotated[
        dict[Annotated[int, Meta(ge=0, le=MOST)], Annotated[float, Meta(ge=-100, le=100)]],
        option("token id to a number added to its logit"),
    ] = msgspec.field(default_factory=dict)
    seed: (
        Annotated[int, option("unset = drawn, and echoed", "rng_seed", ge=0, le=2**63 - 1)] | None
    ) = None
    stop: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=1000)], ...],
        option("texts that end the output", "reverse_prompt", max_length=64),
    ] = ()
    max_tokens: Annotated[
        int,
        option(
            "most tokens to emit; -1 = until the context is full",
            "n_predict",
            "predict",
            ge=-1,
            le=MOST,
        ),
    ] = 128
    logprobs: (
        Annotated[
            int,
            option(
                "log-probabilities of the chosen and the n best tokens", "n_probs", ge=0, le=100
            ),
        ]
        | None
    ) = None
    ignore_eos: Annotated[bool, option("go on after an end-of-sequence token")] = False
    json_schema: (
        Annotated[str, option("JSON schema that the output is a document of", min_length=1)] | None
    ) = None
    grammar: (
        Annotated[
            str, option("grammar of the output, in llguidance's variant of Lark", min_length=1)
        ]
        | None
    ) = None
    regex: (
        Annotated[str, option("regular expression that the whole output matches", min_length=1)]
        | None
    ) = None

    def __post_init__(self) -> None:
        schema: object = self.json_schema
        if isinstance(schema, dict | bool):
            msgspec.structs.force_setattr(self, "json_schema", _as_json(schema))
        validate(self)
        given = [f"`{name}`" for name in GRAMMARS if getattr(self, name) is not None]
        if len(given) > 1:
            raise OptionError("one grammar of the output", " and ".join(given), "Leave one out.")
        if given and self.ignore_eos:
            raise OptionError(
                f"no `ignore_eos` with {given[0]}: the output ends where its grammar does",
                "both",
                "Leave out `ignore_eos`.",
            )


# The options of ``SamplingOptions`` that say what an output must look like; at most one is given.
GRAMMARS = ("json_schema", "grammar", "regex")


def _as_json(schema: Any) -> str:
    """Python's form of a JSON schema as text."""
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(
            "`json_schema` to be JSON", f"{error}", "Use dictionaries, lists, texts and numbers."
        ) from None
