"""What is counted: draft tokens, usage, the limit of an output, why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slipstream.lab.client import told
from slipstream.lab.conformance.asking import Asker, chat
from slipstream.lab.conformance.checks import Room, measurable, require
from slipstream.lab.conformance.comparing import Output
from slipstream.lab.conformance.outcomes import ContractError, RefusedError
from slipstream.lab.conformance.prompts import COPY, COUNT, SHORT
from slipstream.lab.conformance.replies import Reply

REASONS: Final = ("stop", "length")
_LIMITS: Final = ((1, False), (2, True), (5, False), (16, True), (17, False))


def drafts(asker: Asker, room: Room) -> list[Output]:
    """Something is drafted, and its counts can be true."""
    del room
    for prompt in (COPY, COUNT):
        reply = asker.answer(chat(prompt, 96))
        _require_possible(reply)
    drafted = asker.drafted
    measurable(drafted is not None, "it does not tell what it drafts")
    measurable(drafted, "nothing was drafted: what passes here says nothing of speculation")
    return []


def _require_possible(reply: Reply) -> None:
    drafted, accepted = reply.drafted, reply.accepted
    if drafted is None or accepted is None:
        return
    steps = told.whole(reply.timings.get("verification_steps"))
    tokens = reply.output_tokens
    require(accepted <= drafted, f"{accepted} draft tokens accepted of {drafted}", reply)
    if tokens is not None:
        require(accepted <= tokens, f"{accepted} accepted, {tokens} tokens output", reply)
    if steps is not None:
        require(steps <= drafted, f"{steps} verification steps with {drafted} drafted", reply)


def usage(asker: Asker, room: Room) -> list[Output]:
    """``usage`` tells the tokens that came, streamed or not."""
    del room
    found = []
    for label, prompt, most in (("long", COPY, 32), ("short", SHORT, 96)):
        whole = asker.answer(chat(prompt, most))
        stream = asker.answer(chat(prompt, most, stream=True))
        for reply in (whole, stream):
            _require_sums(reply, most)
        require(
            whole.output_tokens == stream.output_tokens or whole.text != stream.text,
            f"{whole.output_tokens} tokens whole, {stream.output_tokens} streamed, the same text",
            stream,
        )
        _require_came(asker, prompt, most, whole)
        counts = [told.whole(whole.usage.get("prompt_tokens")), whole.output_tokens]
        found.append(Output(f"{label} prompt", counts, whole.request, whole.text))
    return found


def _require_sums(reply: Reply, most: int) -> None:
    prompt, output, total = (
        told.whole(reply.usage.get(f"{name}_tokens")) for name in ("prompt", "completion", "total")
    )
    if prompt is None or output is None or total is None:
        raise ContractError("no `usage` with three counts", reply.request)
    require(total == prompt + output, f"{prompt} + {output} tokens make {total}", reply)
    require(prompt > 0, "a prompt of no tokens", reply)
    require(output <= most, f"{output} tokens of at most {most}", reply)
    require(reply.pieces <= output, f"{output} tokens came in {reply.pieces} pieces", reply)
    predicted = told.whole(reply.timings.get("predicted_n"))
    require(
        predicted in (None, output), f"`usage` tells {output} tokens, timings {predicted}", reply
    )


def _require_came(asker: Asker, prompt: str, most: int, whole: Reply) -> None:
    """Tokens are counted by their log-probabilities, where the server has them."""
    try:
        counted = asker.answer(chat(prompt, most, logprobs=True, top_logprobs=1))
    except RefusedError:
        return
    if counted.entries is None or counted.text != whole.text:
        return
    came, tokens = len(counted.entries), counted.output_tokens or 0
    ended = counted.finish_reason == "stop"
    require(tokens - ended <= came <= tokens, f"{tokens} tokens told, {came} came", counted)
    require(
        tokens == whole.output_tokens,
        f"the same text is {tokens} tokens and {whole.output_tokens}",
        counted,
    )


def max_tokens(asker: Asker, room: Room) -> list[Output]:
    """An output of so many tokens as were allowed, to the token."""
    del room
    tokens = _tokens(asker)
    found = []
    for most, stream in _LIMITS:
        reply = asker.answer(chat(COUNT, most, stream=stream))
        if reply.finish_reason == "stop":
            continue
        _require_exact(reply, most, tokens)
        found.append(Output(f"{most} tokens", reply.output_tokens, reply.request, reply.text))
    measurable(found, "every output ended by itself before its limit")
    return found


def _tokens(asker: Asker) -> Sequence[str]:
    """Texts of the first tokens; empty where the server does not tell them."""
    try:
        reply = asker.answer(chat(COUNT, _LIMITS[-1][0], logprobs=True, top_logprobs=1))
    except RefusedError:
        return ()
    return [told.text(entry.get("token")) for entry in reply.entries or ()]


def _require_exact(reply: Reply, most: int, tokens: Sequence[str]) -> None:
    require(reply.finish_reason == "length", f"finish reason {reply.finish_reason!r}", reply)
    output = reply.output_tokens
    require(output in (None, most), f"{output} tokens, {most} were asked for", reply)
    if len(tokens) >= most and not reply.reasoned:
        wanted = "".join(tokens[:most])
        require(
            reply.text.strip() == wanted.strip(),
            f"the text is not that of the first {most} tokens: {reply.text!r:.80}",
            reply,
        )


def finish_reason(asker: Asker, room: Room) -> list[Output]:
    """``length`` where the limit ended it, ``stop`` where it ended by itself."""
    del room
    found = []
    for prompt, most in ((SHORT, 96), (COUNT, 8), (COPY, 3)):
        whole = asker.answer(chat(prompt, most))
        stream = asker.answer(chat(prompt, most, stream=True))
        for reply in (whole, stream):
            _require_reason(reply, most)
        require(
            whole.finish_reason == stream.finish_reason or whole.text != stream.text,
            f"{whole.finish_reason!r} whole, {stream.finish_reason!r} streamed, the same text",
            stream,
        )
        label = f"at most {most} tokens"
        found.append(Output(label, whole.finish_reason, whole.request, whole.text))
    return found


def _require_reason(reply: Reply, most: int) -> None:
    reason, tokens = reply.finish_reason, reply.output_tokens
    require(reason in REASONS, f"finish reason {reason!r}", reply)
    if tokens is None:
        return
    if reason == "length":
        require(tokens >= most, f"`length` after {tokens} of {most} tokens", reply)
    else:
        require(tokens <= most, f"`stop` after {tokens} of {most} tokens", reply)
