"""A request is checked once, before it is queued."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from operator import index

from slipstream.engine.choosing import (
    checked_deadline,
    checked_limits,
    chosen_methods,
    chosen_reach,
)
from slipstream.engine.sequence import Request, SequenceState, Speculation
from slipstream.engine.statistics import Statistics
from slipstream.engine.text import Detokenizer, TextStream
from slipstream.errors import ContextFullError, OptionError, RequestError
from slipstream.noise import draw_seed
from slipstream.options import GRAMMARS, DraftScope
from slipstream.sampling import Primitives, SamplerState

SEED_MASK = (1 << 64) - 1
MOST_SESSION = 256  # characters of a session's name


def prepare(
    request: Request,
    identity: int,
    *,
    vocabulary: int,
    context: int,
    tokenizer: Detokenizer,
    primitives: Primitives | None,
    now: float,
    drafters: Sequence[str] = (),
    scope: DraftScope = "session",
) -> SequenceState:
    """The state of a new sequence.

    Args:
        drafters: names of the engine's, in order of precedence.
        scope: the widest in which they may learn.

    Raises:
        RequestError: an empty prompt, one with unknown token ids, no name of a session, or a
            grammar not compiled.
        OptionError: a logit bias for an unknown token id, methods that the engine lacks, a wider
            scope, a limit or deadline out of range.
        ContextFullError: the prompt leaves no room to generate.
    """
    _check_grammar(request)
    tokens = _token_ids(request.prompt)
    _check_session(request.session)
    sampling = request.sampling
    _check_ids(tokens, list(sampling.logit_bias), vocabulary)
    _check_room(len(tokens), context)
    limit = context if sampling.max_tokens < 0 else len(tokens) + sampling.max_tokens
    seed = _seed_of(request)
    constraint = None if request.constraint is None else request.constraint.fork()
    wanted = request.speculation or Speculation()
    methods, reach = chosen_methods(wanted, drafters), chosen_reach(wanted.scope, scope)
    return SequenceState(
        id=identity,
        tokens=tokens,
        prompt_tokens=len(tokens),
        limit=min(limit, context),
        ends=() if sampling.ignore_eos else tuple(tokenizer.end_ids),
        sampler=SamplerState(sampling, tokens, seed, primitives, constraint),
        text=TextStream(tokenizer.stream(), sampling.stop),
        statistics=Statistics(len(tokens), seed, now),
        session=request.session,
        shareable=request.reuse,
        reuses=request.reuse,
        scope=_scope_of(request, identity, reach),
        reach=reach,
        methods=methods,
        limits=checked_limits(wanted),
        drafts=bool(methods) or (wanted.methods is None and wanted.n_max != 0),
        deadline_s=checked_deadline(request.deadline_s, now),
    )


def _scope_of(request: Request, identity: int, reach: DraftScope) -> str:
    """What drafters learn of a request stays within it, its session, or the engine."""
    if reach == "request":
        return f"request {identity}"
    return "all" if reach == "all" else f"session {request.session}"


def _seed_of(request: Request) -> int:
    """Choice i uses the seed + i; an omitted seed is drawn."""
    seed = request.sampling.seed
    return ((draw_seed() if seed is None else seed) + request.choice) & SEED_MASK


def _check_room(prompt_tokens: int, context: int) -> None:
    if prompt_tokens >= context:
        raise ContextFullError(
            f"a prompt of at most {context - 1} tokens",
            f"{prompt_tokens}",
            "Shorten the prompt or use a larger context.",
        )


def _check_grammar(request: Request) -> None:
    """A grammar among the options must not be lost on the way."""
    wanted = [name for name in GRAMMARS if getattr(request.sampling, name) is not None]
    if wanted and request.constraint is None:
        raise RequestError(
            f"the constraint that `{wanted[0]}` compiles to", "none", "Use `Grammars.constraint`."
        )


def _token_ids(prompt: Sequence[int]) -> list[int]:
    if not isinstance(prompt, str | bytes):
        with contextlib.suppress(TypeError):  # no sequence, or a member that is no integer
            return [index(token) for token in prompt]
    found = f"{prompt!r:.80}"
    raise RequestError("a text or a sequence of token ids", found, "Give one of them.")


def _check_session(session: str) -> None:
    if not isinstance(session, str) or len(session) > MOST_SESSION:
        raise RequestError(
            f"a session named by a text of at most {MOST_SESSION} characters",
            f"{session!r:.80}",
            "Name it by a shorter text.",
        )


def _check_ids(tokens: list[int], biased: list[int], vocabulary: int) -> None:
    if not tokens:
        raise RequestError("at least one prompt token", "none", "Give a prompt that is not empty.")
    expected = f"token ids from 0 to {vocabulary - 1}"
    for token in (min(tokens), max(tokens)):
        if not 0 <= token < vocabulary:
            raise RequestError(expected, f"{token} in the prompt", "Use the model's tokenizer.")
    for token in biased:
        if not 0 <= token < vocabulary:
            raise OptionError(expected, f"{token} in logit_bias", "Use the model's tokenizer.")
