"""Every option, once. The command line, requests, server profiles and lab plans derive from these.

A field carries its type, bounds, help and aliases; llama.cpp's spellings are aliases and its
defaults are kept where an option has the same meaning. `describe` lists a struct's options,
`from_mapping` builds one from untyped keys and values. A struct validates itself however it is
built, so code that receives one need not check it again.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from slipstream import plugin_names
from slipstream.acceptance_rates import pretended
from slipstream.errors import OptionError
from slipstream.option_fields import OptionInfo, describe, from_mapping, validate

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

# llama.cpp's method names in its order of precedence, then those Slipstream adds.
Method = Literal[
    "none",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "suffix",
    "medusa",
    "auto",
]
# Bits of the activations that quantised weights meet (docs/decisions/0006-activation-precision.md).
Precision = Literal["a8", "a16"]
METHODS: tuple[str, ...] = Method.__args__  # type: ignore[attr-defined]

# One of METHODS, or of an installed package; ``SpeculationOptions`` checks it.
MethodName = Annotated[str, Meta(max_length=64, extra={"choices": METHODS})]

KvType = Literal["f16", "q8_0"]
# How far what drafters learn from a text reaches (docs/decisions/0007-drafting-contracts.md).
DraftScope = Literal["request", "session", "all"]


def _option(help_text: str, *aliases: str, **bounds: Any) -> Meta:
    return Meta(description=help_text, extra={"aliases": aliases}, **bounds)


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which model runs, and on what."""

    model: Annotated[str, _option("path, catalogue name or owner/repo:file", "m", min_length=1)]
    context: (
        Annotated[
            int,
            _option(
                "positions kept per sequence; unset = the model's own", "ctx_size", "n_ctx", ge=1
            ),
        ]
        | None
    ) = None
    threads: (
        Annotated[
            int,
            _option("threads; unset = physical cores available", "n_threads", ge=1, le=512),
        ]
        | None
    ) = None
    backend: Annotated[
        Literal["cpu", "reference"], _option("native kernels, or the slow NumPy twin")
    ] = "cpu"
    kv_type: Annotated[
        KvType,
        _option("how keys and values are kept; q8_0: half the memory, perplexity +0.5 to +1.3 %"),
    ] = "f16"
    isa: (
        Annotated[str, _option("instruction set; unset = $SLIPSTREAM_ISA, else the best one")]
        | None
    ) = None
    precision: Annotated[
        Precision,
        _option(
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
        int, _option("sequences that run at the same time", "n_parallel", "np", ge=1, le=1024)
    ] = 1
    prefill_chunk: Annotated[
        int, _option("most prompt rows in one step", "ubatch_size", "n_ubatch", ge=1, le=65536)
    ] = 512
    step_time_limit_s: Annotated[
        float, _option("longest native call, so that cancelling works", gt=0, le=60)
    ] = 0.25

    def __post_init__(self) -> None:
        validate(self)


class SamplingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How logits become tokens, and when to stop. Every filter is off by default."""

    temperature: Annotated[float, _option("0 = greedy", "temp", ge=0, le=100)] = 0.0
    top_k: Annotated[int, _option("keep the k most likely tokens; 0 = off", ge=0)] = 0
    top_p: Annotated[float, _option("keep this probability mass; 1 = off", gt=0, le=1)] = 1.0
    min_p: Annotated[
        float, _option("drop tokens below this share of the best; 0 = off", ge=0, le=1)
    ] = 0.0
    repetition_penalty: Annotated[
        float, _option("divides logits of repeated tokens; 1 = off", "repeat_penalty", gt=0, le=100)
    ] = 1.0
    frequency_penalty: Annotated[
        float, _option("subtracted per occurrence; 0 = off", ge=-100, le=100)
    ] = 0.0
    presence_penalty: Annotated[
        float, _option("subtracted once for a token that occurred; 0 = off", ge=-100, le=100)
    ] = 0.0
    penalty_window: Annotated[
        int,
        _option("tokens the penalties look back; -1 = all, 0 = none", "repeat_last_n", ge=-1),
    ] = 64
    logit_bias: Annotated[
        dict[Annotated[int, Meta(ge=0)], Annotated[float, Meta(ge=-100, le=100)]],
        _option("token id to a number added to its logit"),
    ] = msgspec.field(default_factory=dict)
    seed: (
        Annotated[int, _option("unset = drawn, and echoed", "rng_seed", ge=0, le=2**63 - 1)] | None
    ) = None
    stop: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=1000)], ...],
        _option("texts that end the output", "reverse_prompt", max_length=64),
    ] = ()
    max_tokens: Annotated[
        int,
        _option(
            "most tokens to emit; -1 = until the context is full", "n_predict", "predict", ge=-1
        ),
    ] = 128
    logprobs: (
        Annotated[
            int,
            _option(
                "log-probabilities of the chosen and the n best tokens", "n_probs", ge=0, le=100
            ),
        ]
        | None
    ) = None
    ignore_eos: Annotated[bool, _option("go on after an end-of-sequence token")] = False
    json_schema: (
        Annotated[str, _option("JSON schema that the output is a document of", min_length=1)] | None
    ) = None
    grammar: (
        Annotated[
            str, _option("grammar of the output, in llguidance's variant of Lark", min_length=1)
        ]
        | None
    ) = None
    regex: (
        Annotated[str, _option("regular expression that the whole output matches", min_length=1)]
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


class SpeculationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who drafts, and how much. The n-gram lengths count tokens."""

    type: Annotated[
        tuple[MethodName, ...],
        _option("drafting methods in any order, or none", "spec_type", "spec", min_length=1),
    ] = ("none",)
    draft_model: (
        Annotated[
            str,
            _option(
                "draft model: path or name", "spec_draft_model", "model_draft", "md", min_length=1
            ),
        ]
        | None
    ) = None
    draft_context: (
        Annotated[
            int,
            _option(
                "positions the draft model keeps; unset = the target's, as far as it can",
                "spec_draft_ctx_size",
                ge=1,
            ),
        ]
        | None
    ) = None
    draft_vocab: (
        Annotated[
            int,
            _option("draft over the N most frequent ids only", "spec_draft_vocab", ge=1),
        ]
        | None
    ) = None
    draft_window: Annotated[
        int,
        _option(
            "most tokens a draft model reads before a draft; of a longer text, the newest",
            "spec_draft_window",
            ge=1,
        ),
    ] = 512
    draft_fallback: Annotated[
        bool,
        _option(
            "go on without a draft model whose vocabulary does not match", "spec_draft_fallback"
        ),
    ] = False
    draft_sampling: Annotated[
        Literal["greedy", "probabilistic"],
        _option(
            "greedy: verify by matching, the output is that of plain decoding; "
            "probabilistic: rejection sampling, only its distribution is",
            "spec_draft_sampling",
        ),
    ] = "greedy"
    draft_branches: Annotated[
        int,
        _option(
            "most alternatives per node that a drafter proposes; 1 = chains only",
            "spec_draft_branches",
            ge=1,
            le=16,
        ),
    ] = 4
    draft_scope: Annotated[
        DraftScope,
        _option(
            "how far drafters learn: within a request, a session, or across all sessions",
            "spec_draft_scope",
        ),
    ] = "session"
    n_max: Annotated[
        int, _option("most tokens a draft model drafts", "spec_draft_n_max", ge=0, le=1024)
    ] = 3
    n_min: Annotated[
        int,
        _option(
            "shorter proposals of a draft model are dropped", "spec_draft_n_min", ge=0, le=1024
        ),
    ] = 0
    p_min: Annotated[
        float,
        _option("least draft probability to go on", "spec_draft_p_min", "draft_p_min", ge=0, le=1),
    ] = 0.0
    fixed: Annotated[
        bool, _option("verify whole drafts instead of cutting them to their worth", "spec_fixed")
    ] = False
    ngram_mod_n_match: Annotated[
        int, _option("key length of ngram-mod", "spec_ngram_mod_n_match", ge=1, le=1024)
    ] = 24
    ngram_mod_n_min: Annotated[
        int, _option("shorter proposals are dropped", "spec_ngram_mod_n_min", ge=0, le=1024)
    ] = 48
    ngram_mod_n_max: Annotated[
        int, _option("most tokens ngram-mod drafts", "spec_ngram_mod_n_max", ge=0, le=1024)
    ] = 64
    ngram_simple_size_n: Annotated[
        int, _option("key length of ngram-simple", "spec_ngram_simple_size_n", ge=1, le=1024)
    ] = 12
    ngram_simple_size_m: Annotated[
        int, _option("most tokens ngram-simple drafts", "spec_ngram_simple_size_m", ge=1, le=1024)
    ] = 48

    ngram_map_k_size_n: Annotated[
        int, _option("key length of ngram-map-k", "spec_ngram_map_k_size_n", ge=1, le=1024)
    ] = 12
    ngram_map_k_size_m: Annotated[
        int, _option("most tokens ngram-map-k drafts", "spec_ngram_map_k_size_m", ge=1, le=1024)
    ] = 48
    ngram_map_k_min_hits: Annotated[
        int, _option("times a key must have been met", "spec_ngram_map_k_min_hits", ge=1)
    ] = 1
    ngram_map_k4v_size_n: Annotated[
        int, _option("key length of ngram-map-k4v", "spec_ngram_map_k4v_size_n", ge=1, le=1024)
    ] = 12
    ngram_map_k4v_size_m: Annotated[
        int, _option("most tokens ngram-map-k4v drafts", "spec_ngram_map_k4v_size_m", ge=1, le=1024)
    ] = 48
    ngram_map_k4v_min_hits: Annotated[
        int, _option("times a key must have been met", "spec_ngram_map_k4v_min_hits", ge=1)
    ] = 1
    ngram_cache_static: (
        Annotated[
            str,
            _option(
                "lookup file of ngram-cache, read only: 2-grams of other texts",
                "lookup_cache_static",
                "lcs",
            ),
        ]
        | None
    ) = None
    ngram_cache_dynamic: (
        Annotated[
            str,
            _option(
                "lookup file of ngram-cache, updated: pieces of every session's prompts and "
                "outputs go into it, for all who read it",
                "lookup_cache_dynamic",
                "lcd",
            ),
        ]
        | None
    ) = None
    suffix_n_max: Annotated[
        int, _option("most tokens suffix drafts", "spec_suffix_n_max", ge=1, le=1024)
    ] = 48
    suffix_match: Annotated[
        int, _option("shortest match that suffix drafts from", "spec_suffix_match", ge=1, le=64)
    ] = 1
    suffix_factor: Annotated[
        float,
        _option("most tokens per matched token", "spec_suffix_factor", gt=0, le=100),
    ] = 4.0
    suffix_p_min: Annotated[
        float,
        _option(
            "least estimated probability that a token is reached and accepted",
            "spec_suffix_p_min",
            ge=0,
            le=1,
        ),
    ] = 0.1
    synth_len: (
        Annotated[
            float,
            _option(
                "benchmarks only, THE OUTPUT IS INVALID: pretend this mean acceptance length",
                "spec_synth_len",
                ge=1,
            ),
        ]
        | None
    ) = None
    synth_rates: (
        Annotated[
            str,
            _option(
                "benchmarks only, THE OUTPUT IS INVALID: pretend P(i+1 accepted), as P0,P1,..",
                "spec_synth_rates",
            ),
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        validate(self)
        _require_methods(self.type)
        msgspec.structs.force_setattr(self, "type", tuple(dict.fromkeys(self.type)))
        if "none" in self.type and len(self.type) > 1:
            # llama.cpp switches all of it off; here nothing is dropped in silence
            raise OptionError(
                "`type` to be none or some drafting methods",
                f"`{','.join(self.type)}`",
                "Leave out `none`, or leave out the others.",
            )
        _require_order(self, "n_min", "n_max")
        _require_order(self, "ngram_mod_n_min", "ngram_mod_n_max")
        if self.type != ("none",):
            pretended(self.synth_rates, self.synth_len, longest_draft(self))


def _require_methods(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in METHODS]
    unknown = [name for name in unknown if name not in plugin_names.installed()]
    if unknown:
        known = [*METHODS, *plugin_names.installed()]
        near = difflib.get_close_matches(unknown[0], known, 1, 0.0)[0]
        raise OptionError(
            f"`type` to be some of {', '.join(METHODS)}{plugin_names.shown()}",
            f"{unknown!r:.80}",
            f"Did you mean `{near}`?",
        )


def _require_order(options: SpeculationOptions, smaller: str, larger: str) -> None:
    low, high = getattr(options, smaller), getattr(options, larger)
    if low > high:
        raise OptionError(
            f"`{smaller}` at most `{larger}` ({high})", f"{low}", f"Lower it or raise `{larger}`."
        )


def longest_draft(options: SpeculationOptions) -> int:
    """Most tokens on a path that the chosen methods draft (llama.cpp's effective n_max)."""
    own = {
        "ngram-simple": options.ngram_simple_size_m,
        "ngram-map-k": options.ngram_map_k_size_m,
        "ngram-map-k4v": options.ngram_map_k4v_size_m,
        "ngram-mod": options.ngram_mod_n_max,
        "ngram-cache": 8,  # llama.cpp's fixed limit
        "suffix": options.suffix_n_max,
    }
    if "auto" in options.type:
        return max(*own.values(), options.n_max)
    return max(own.get(method, options.n_max) for method in options.type)


def require_used(
    options: SpeculationOptions, given: Iterable[str], others: Iterable[str] = ()
) -> None:
    """Refuse options that none of the chosen methods reads.

    Args:
        given: names of the options that the user set.
        others: names of drafters at work beside the methods.

    Raises:
        OptionError: names the first such option and the methods that read it.
    """
    chosen = {*options.type, *others}
    foreign = chosen - set(METHODS)
    for name in given:
        readers = _readers(name)
        if foreign and (name in _OF_EVERY_METHOD or name == "type"):
            continue
        if not readers.intersection(chosen):
            wanted = ", ".join(method for method in METHODS if method in readers)
            raise OptionError(
                f"`{name}` with a method that reads it ({wanted})",
                f"`{','.join(options.type)}`",
                f"Leave out `{name}`, or add such a method to `type`.",
            )


_OF_EVERY_METHOD = frozenset(
    {"fixed", "draft_sampling", "draft_branches", "draft_scope", "synth_len", "synth_rates"}
)


def _readers(name: str) -> frozenset[str]:
    """The methods that read a speculation option."""
    if name == "type":
        return frozenset(METHODS)
    drafting = frozenset(METHODS) - {"none"}
    if name in _OF_EVERY_METHOD:
        return drafting
    for method in METHODS:
        if name.startswith(method.replace("-", "_") + "_"):
            return frozenset({method, "auto"} if method == "suffix" else {method})
    return frozenset(method for method in drafting if method.startswith("draft-")) | {"auto"}
