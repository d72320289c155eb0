"""What chat and completions have in common in their replies: identity, usage, timings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from slipstream.server.order import Generation, Service, Timing
from slipstream.server.timings import timings
from slipstream.server.wire import WireToken

FINGERPRINT_DIGITS: Final = 12


class Frame:
    """What every reply and chunk of a generation says, and the numbers at its end.

    Args:
        service: the model.
        generation: the one whose id, seed and speculation are echoed.
        prefix: of the id (``chatcmpl``).
        kind: OpenAI's ``object``.
    """

    def __init__(self, service: Service, generation: Generation, prefix: str, kind: str) -> None:
        digest = service.facts.get("sha256")
        self._generation = generation
        self._facts = service.facts
        self.head: dict[str, Any] = {
            "id": f"{prefix}-{generation.id}",
            "object": kind,
            "created": generation.created_s,
            "model": service.name,
            "system_fingerprint": f"fp_{digest[:FINGERPRINT_DIGITS]}" if digest else None,
        }

    def timings(self, timing: Timing) -> dict[str, Any]:
        return timings(timing, self._facts)

    def extras(self, timing: Timing) -> dict[str, Any]:
        """Ours at the end: what it cost, the seed in use, and who drafted."""
        return {
            "timings": self.timings(timing),
            "speculative": self._generation.speculation,
            "seed": self._generation.order.sampling.seed,
        }


def usage(prompts: Iterable[int], choices: Sequence[Sequence[Timing]]) -> dict[str, Any]:
    """OpenAI's counts.

    Draft tokens are not among them: ``accepted_prediction_tokens`` speaks of a text that the
    client predicted and is billed for. They stand in ``timings``.

    Args:
        prompts: tokens of each prompt, which counts once whatever the number of its choices.
        choices: of each prompt, what each choice cost; an end-of-generation token counts.
    """
    prompt_tokens = sum(prompts)
    completion_tokens = sum(timing.tokens for timings in choices for timing in timings)
    cached = sum(timings[0].summary.get("reused_tokens", 0) for timings in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def shown_drafts(tokens: Sequence[WireToken]) -> Mapping[str, Any]:
    """``slipstream`` of a chunk: which text was drafted."""
    return {"tokens": [[token.text, token.from_draft] for token in tokens]}
