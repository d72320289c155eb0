"""The options of speculation: who drafts, how much, and which of it a method reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from slipstream import plugin_names
from slipstream.acceptance_rates import pretended
from slipstream.errors import OptionError
from slipstream.option_fields import option, validate

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
METHODS: tuple[str, ...] = Method.__args__  # type: ignore[attr-defined]

# One of METHODS, or of an installed package; ``SpeculationOptions`` checks it.
MethodName = Annotated[str, Meta(max_length=64, extra={"choices": METHODS})]

LONGEST, LONGEST_FIXED = 8, 3
"""Tokens that a draft model drafts at most: where the controller cuts drafts, and llama.cpp's."""

# How far what drafters learn from a text reaches (docs/decisions/0007-drafting-contracts.md).
DraftScope = Literal["request", "session", "all"]


class SpeculationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who drafts, and how much. The n-gram lengths count tokens."""

    type: Annotated[
        tuple[MethodName, ...],
        option(
            "drafting methods in any order: suffix, ngram-simple, ngram-map-k, ngram-map-k4v, "
            "ngram-mod, ngram-cache, draft-simple; auto (suffix, and draft-simple where a draft "
            "model is named); or none",
            "spec_type",
            "spec",
            min_length=1,
        ),
    ] = ("none",)
    draft_model: (
        Annotated[
            str,
            option(
                "draft model: path or name", "spec_draft_model", "model_draft", "md", min_length=1
            ),
        ]
        | None
    ) = None
    draft_context: (
        Annotated[
            int,
            option(
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
            option("draft over the N most frequent ids only", "spec_draft_vocab", ge=1),
        ]
        | None
    ) = None
    draft_window: Annotated[
        int,
        option(
            "most tokens a draft model reads before a draft; of a longer text, the newest",
            "spec_draft_window",
            ge=1,
        ),
    ] = 512
    draft_fallback: Annotated[
        bool,
        option(
            "go on without a draft model whose vocabulary does not match", "spec_draft_fallback"
        ),
    ] = False
    draft_sampling: Annotated[
        Literal["greedy", "probabilistic"],
        option(
            "greedy: verify by matching, the output is that of plain decoding; "
            "probabilistic: rejection sampling, only its distribution is",
            "spec_draft_sampling",
        ),
    ] = "greedy"
    draft_branches: Annotated[
        int,
        option(
            "most alternatives per node that a drafter proposes; 1 = chains only",
            "spec_draft_branches",
            ge=1,
            le=16,
        ),
    ] = 4
    draft_scope: Annotated[
        DraftScope,
        option(
            "how far drafters learn: within a request, a session, or across all sessions",
            "spec_draft_scope",
        ),
    ] = "session"
    n_max: (
        Annotated[
            int,
            option(
                f"most tokens a draft model drafts; unset = {LONGEST}, "
                f"or {LONGEST_FIXED} with --spec-fixed",
                "spec_draft_n_max",
                ge=0,
                le=1024,
            ),
        ]
        | None
    ) = None
    n_min: Annotated[
        int,
        option("shorter proposals of a draft model are dropped", "spec_draft_n_min", ge=0, le=1024),
    ] = 0
    p_min: Annotated[
        float,
        option("least draft probability to go on", "spec_draft_p_min", "draft_p_min", ge=0, le=1),
    ] = 0.0
    fixed: Annotated[
        bool, option("verify whole drafts instead of cutting them to their worth", "spec_fixed")
    ] = False
    ngram_mod_n_match: Annotated[
        int, option("key length of ngram-mod", "spec_ngram_mod_n_match", ge=1, le=1024)
    ] = 24
    ngram_mod_n_min: Annotated[
        int, option("shorter proposals are dropped", "spec_ngram_mod_n_min", ge=0, le=1024)
    ] = 48
    ngram_mod_n_max: Annotated[
        int, option("most tokens ngram-mod drafts", "spec_ngram_mod_n_max", ge=0, le=1024)
    ] = 64
    ngram_simple_size_n: Annotated[
        int, option("key length of ngram-simple", "spec_ngram_simple_size_n", ge=1, le=1024)
    ] = 12
    ngram_simple_size_m: Annotated[
        int, option("most tokens ngram-simple drafts", "spec_ngram_simple_size_m", ge=1, le=1024)
    ] = 48

    ngram_map_k_size_n: Annotated[
        int, option("key length of ngram-map-k", "spec_ngram_map_k_size_n", ge=1, le=1024)
    ] = 12
    ngram_map_k_size_m: Annotated[
        int, option("most tokens ngram-map-k drafts", "spec_ngram_map_k_size_m", ge=1, le=1024)
    ] = 48
    ngram_map_k_min_hits: Annotated[
        int, option("times a key must have been met", "spec_ngram_map_k_min_hits", ge=1)
    ] = 1
    ngram_map_k4v_size_n: Annotated[
        int, option("key length of ngram-map-k4v", "spec_ngram_map_k4v_size_n", ge=1, le=1024)
    ] = 12
    ngram_map_k4v_size_m: Annotated[
        int, option("most tokens ngram-map-k4v drafts", "spec_ngram_map_k4v_size_m", ge=1, le=1024)
    ] = 48
    ngram_map_k4v_min_hits: Annotated[
        int, option("times a key must have been met", "spec_ngram_map_k4v_min_hits", ge=1)
    ] = 1
    ngram_cache_static: (
        Annotated[
            str,
            option(
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
            option(
                "lookup file of ngram-cache, updated: pieces of every session's prompts and "
                "outputs go into it, for all who read it",
                "lookup_cache_dynamic",
                "lcd",
            ),
        ]
        | None
    ) = None
    suffix_n_max: Annotated[
        int, option("most tokens suffix drafts", "spec_suffix_n_max", ge=1, le=1024)
    ] = 48
    suffix_match: Annotated[
        int, option("shortest match that suffix drafts from", "spec_suffix_match", ge=1, le=64)
    ] = 1
    suffix_factor: Annotated[
        float,
        option("most tokens per matched token", "spec_suffix_factor", gt=0, le=100),
    ] = 4.0
    suffix_p_min: Annotated[
        float,
        option(
            "least estimated probability that a token is reached and accepted",
            "spec_suffix_p_min",
            ge=0,
            le=1,
        ),
    ] = 0.1
    synth_len: (
        Annotated[
            float,
            option(
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
            option(
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
        if self.n_max is not None:
            _require_order(self, "n_min", "n_max")
        _require_order(self, "ngram_mod_n_min", "ngram_mod_n_max")
        if self.type != ("none",):
            pretended(self.synth_rates, self.synth_len, longest_draft(self))

    @property
    def longest(self) -> int:
        """Most tokens that a draft model drafts: llama.cpp's default where nothing cuts a draft."""
        if self.n_max is not None:
            return self.n_max
        return max(LONGEST_FIXED if self.fixed else LONGEST, self.n_min)


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
        return max(*own.values(), options.longest)
    return max(own.get(method, options.longest) for method in options.type)


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


def read_by(method: str) -> tuple[str, ...]:
    """The options that a method reads, those that every method reads left out."""
    names = SpeculationOptions.__struct_fields__
    return tuple(
        name
        for name in names
        if name not in (*_OF_EVERY_METHOD, "type") and method in _readers(name)
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
