"""What is wrong with an answer, seen from the answer alone; each begins with a finding's name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Final

from slipstream.lab.client import told
from slipstream.lab.client.answer import Answer, Prompt
from slipstream.measure.degenerate import degenerate_reason
from slipstream.options import SamplingOptions

STALL_S: Final = 2.0
STALL_RATIO: Final = 25.0
"""A wait is a stall when it is longer than both ``STALL_S`` and so many usual waits."""

_MOST_HELD: Final = 64
# option -> keys of the echo, of which one must agree: ik_llama.cpp's n_predict is its own
_ECHOED: Final = {
    "temperature": ("temperature",),
    "seed": ("seed",),
    "max_tokens": ("n_predict", "max_tokens"),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "repetition_penalty": ("repeat_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "presence_penalty": ("presence_penalty",),
}


def diagnose(answer: Answer, prompt: Prompt, options: SamplingOptions) -> tuple[str, ...]:
    """Everything noticed, in a fixed order; nothing of it is an error."""
    return (
        *_count_faults(answer, options),
        *_draft_faults(answer),
        *_prompt_faults(answer, prompt),
        *_stalls(answer),
        *_ignored(answer, options),
        *_degenerate(answer, options),
    )


def _count_faults(answer: Answer, options: SamplingOptions) -> Iterator[str]:
    told_tokens = answer.output_tokens
    if told_tokens is None or answer.error:
        return
    if answer.ids and not 0 <= told_tokens - len(answer.ids) <= _unsent(answer):
        yield f"counts-disagree: {told_tokens} tokens told, {len(answer.ids)} came"
    elif not answer.ids and answer.tops and told_tokens < len(answer.tops):
        yield f"counts-disagree: {told_tokens} tokens told, {len(answer.tops)} came"
    elif told_tokens == 0 and answer.whole_text:
        yield "counts-disagree: no tokens told, text came"
    if 0 < options.max_tokens < max(told_tokens, len(answer.ids)):
        most = max(told_tokens, len(answer.ids))
        yield f"counts-disagree: {most} tokens, at most {options.max_tokens} were asked for"


def _unsent(answer: Answer) -> int:
    """Tokens that a server counts and need not send: the end token, those of a stop text."""
    return {"eos": 1, "stop": 1, "word": _MOST_HELD}.get(answer.finish_reason, 0)


def _draft_faults(answer: Answer) -> Iterator[str]:
    counts, tokens = answer.counts, answer.output_tokens
    drafted, accepted = counts.drafted or 0, counts.accepted or 0
    if accepted > drafted:
        yield f"counts-disagree: {accepted} draft tokens accepted of {drafted}"
    elif tokens is not None and accepted > tokens and not (answer.error or _unsent(answer)):
        yield f"counts-disagree: {accepted} draft tokens accepted, {tokens} tokens emitted"
    if counts.steps is not None and counts.steps > drafted:
        yield f"counts-disagree: {counts.steps} verification steps with {drafted} draft tokens"


def _prompt_faults(answer: Answer, prompt: Prompt) -> Iterator[str]:
    if prompt.ids and answer.prompt_tokens not in (None, len(prompt.ids)):
        yield (
            f"counts-disagree: a prompt of {answer.prompt_tokens} tokens told, "
            f"{len(prompt.ids)} were sent"
        )
    if answer.reused_tokens:
        yield f"reused-prompt: {answer.reused_tokens} prompt tokens came from a cache"


def _stalls(answer: Answer) -> Iterator[str]:
    times = answer.token_times_s
    waits = [later - earlier for earlier, later in pairwise(times)]
    if not waits:
        return
    longest = max(waits)
    if longest > max(STALL_S, STALL_RATIO * median(waits)):
        place = waits.index(longest) + 1
        yield f"stalled: {longest:.1f} s before token {place + 1}"


def _ignored(answer: Answer, options: SamplingOptions) -> Iterator[str]:
    """Settings that the server echoes with another value than the one sent."""
    for name, keys in _ECHOED.items():
        wanted = getattr(options, name)
        echoed = [told.logarithm(answer.settings.get(key)) for key in keys]
        known = [value for value in echoed if value is not None]
        if wanted is None or not known:
            continue
        if all(abs(found - wanted) > 1e-6 * max(1.0, abs(wanted)) for found in known):
            yield f"flag-ignored: {name} {wanted:g} asked, {known[0]:g} in effect"


def _degenerate(answer: Answer, options: SamplingOptions) -> Iterator[str]:
    if answer.error or answer.tool_calls or options.ignore_eos:
        return
    reason = degenerate_reason(answer.whole_text, answer.ids)
    if reason is not None:
        yield f"degenerate-output: {reason}"
