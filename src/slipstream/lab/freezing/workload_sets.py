"""The manifest's prompts: identities with token counts, seeds and judgements, and their texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from slipstream.errors import ModelFileError, RequestError
from slipstream.lab.contract.manifest import UNKNOWN, PromptIdentity
from slipstream.lab.contract.plan import Plan
from slipstream.lab.freezing.prompt_tokens import PromptCounter, prompt_counter
from slipstream.lab.planning.plan_workloads import Workload, workloads_of
from slipstream.measure.workload import WorkloadPrompt

__all__ = ["LONG_TOKENS", "prompts_of", "questions_of", "request_keys", "texts_of", "workloads_of"]

LONG_TOKENS: Final = 1024
"""Least tokens, prompt and limit together, of a sequence that may stand for a real load's long."""


def prompts_of(plan: Plan) -> tuple[PromptIdentity, ...]:
    """The manifest's prompts: workload by workload, each with its warm-ups before it.

    Token counts are of the target's tokenizer and template, ``unknown`` where its file is not here.
    Prompt i of the measured ones has seed ``seed + i``.

    Raises:
        RequestError: as ``workloads_of``; or a prompt and its limit do not fit in the context; or a
            typical sequence is not long.
    """
    counter = _counter(plan)
    made: list[PromptIdentity] = []
    measured = 0
    for workload in workloads_of(plan):
        warm_up = workload.warm_up[: max(1, plan.rules.warm_up)]
        made += [_identity(plan, workload, prompt, counter, None) for prompt in warm_up]
        for prompt in workload.prompts:
            made.append(_identity(plan, workload, prompt, counter, measured))
            measured += 1
    return tuple(made)


def _counter(plan: Plan) -> PromptCounter | None:
    try:
        return prompt_counter(plan.target.model)
    except ModelFileError:
        return None


def _identity(
    plan: Plan,
    workload: Workload,
    prompt: WorkloadPrompt,
    counter: PromptCounter | None,
    number: int | None,
) -> PromptIdentity:
    """
    Args:
        number: of the measured prompt; None for a warm-up.
    """
    tokens = counter.tokens(prompt) if counter else UNKNOWN
    limit = min(prompt.max_tokens, plan.sampling.max_tokens)
    typical = number is not None and _is_typical(plan, prompt)
    if isinstance(tokens, int):
        _require_length(plan, prompt, tokens, limit, typical=typical)
    return PromptIdentity(
        id=prompt.id,
        stratum=workload.name,
        task=prompt.task,
        kind=workload.kind,
        sha256=prompt.sha256,
        licence=prompt.licence,
        source=prompt.source,
        tokens=tokens,
        max_tokens=limit,
        seed=plan.sampling.seed + (number or 0),
        judgement=prompt.judgement,
        warm_up=number is None,
        shared=workload.shared or plan.share_texts,
        typical=typical,
        constrained=prompt.constrained,
        judgement_sha256=judgement_digest(prompt),
    )


def judgement_digest(prompt: WorkloadPrompt) -> str:
    """SHA-256 of what a prompt has beside its text, as compact JSON with sorted keys."""
    plain = {name: getattr(prompt, name) for name in ("judgement", "checks", "schema", "tools")}
    raw = msgspec.json.encode({**plain, "constrained": prompt.constrained}, order="sorted")
    return hashlib.sha256(raw).hexdigest()


def _is_typical(plan: Plan, prompt: WorkloadPrompt) -> bool:
    return prompt.id in plan.typical if plan.typical else prompt.typical


def _require_length(
    plan: Plan, prompt: WorkloadPrompt, tokens: int, limit: int, *, typical: bool
) -> None:
    if tokens + limit > plan.context:
        raise RequestError(
            f"prompts and their limits within a context of {plan.context}",
            f"{prompt.id} with {tokens} + {limit} tokens",
            "Raise `context`, or leave the workload out.",
        )
    if typical and tokens + limit < LONG_TOKENS:
        raise RequestError(
            f"a typical sequence of at least {LONG_TOKENS} tokens, prompt and limit together",
            f"{prompt.id} with {tokens} + {limit}",
            "Name a long prompt in `typical`, or raise `max_tokens`.",
        )


def texts_of(plan: Plan, identities: Iterable[PromptIdentity] = ()) -> Mapping[str, WorkloadPrompt]:
    """Prompt id -> its text and judgement, warm-ups included.

    Args:
        identities: of a manifest; every one of them must be there unchanged.

    Raises:
        RequestError: as ``workloads_of``; or a text is not the one that the manifest fixed.
    """
    workloads = workloads_of(plan)
    texts = {p.id: p for workload in workloads for p in (*workload.warm_up, *workload.prompts)}
    for identity in identities:
        text = texts.get(identity.id)
        if text is None or not is_unchanged(text, identity):
            raise RequestError(
                f"the prompt {identity.id} as the manifest fixed it",
                "none of this id" if text is None else "another text or judgement of this id",
                "Restore the workloads, or start a new run.",
            )
    return texts


def is_unchanged(prompt: WorkloadPrompt, identity: PromptIdentity) -> bool:
    """Whether it is the prompt that a manifest fixed, text and judgement."""
    judged_by = identity.judgement_sha256
    return prompt.sha256 == identity.sha256 and judged_by in ("", judgement_digest(prompt))


def questions_of(plan: Plan) -> Mapping[str, str]:
    """Stratum of the manifest -> the question that its report section answers."""
    return {workload.name: workload.question for workload in workloads_of(plan)}


def request_keys(prompt: WorkloadPrompt) -> dict[str, object]:
    """What a request must have beside its prompt: the schema that constrains the output."""
    return {"json_schema": prompt.schema} if prompt.constrained else {}
