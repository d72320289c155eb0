"""The checks, and one run of them against a server and the same server without speculation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slipstream.lab.conformance import (
    control_checks,
    count_checks,
    error_checks,
    isolation_checks,
    output_checks,
    sampling_checks,
)
from slipstream.lab.conformance.asking import Asker, chat
from slipstream.lab.conformance.checks import CANCEL_S, Check, Room, require
from slipstream.lab.conformance.comparing import Output, differ_in_logprobs
from slipstream.lab.conformance.judging import judged
from slipstream.lab.conformance.outcomes import CheckResult, Conformance
from slipstream.lab.conformance.prompts import SHORT
from slipstream.lab.conformance.recognising import Sides, require_other_server, server_at, sides_of

TIMEOUT_S: Final = 120.0

Progress = Callable[[int, int, str], None]


def _answers(asker: Asker, room: Room) -> list[Output]:
    del room
    reply = asker.answer(chat(SHORT, 4))
    require(reply.text, "a reply without text", reply)
    return []


ANSWERS: Final = Check("answers", "a plain request gets a reply of chat completions", _answers)
CHECKS: Final[tuple[Check, ...]] = (
    Check(
        "drafts",
        "something is drafted; accepted <= drafted, accepted <= output, steps <= drafted",
        count_checks.drafts,
        both=False,
    ),
    Check(
        "logprobs",
        "each token of the output, drafted or not, has its log-probability and the 3 likeliest",
        output_checks.logprobs,
        differ=differ_in_logprobs,
    ),
    Check(
        "stop",
        "the output ends just before the first stop text, streamed or not, finish reason stop",
        output_checks.stop_texts,
    ),
    Check(
        "usage",
        "usage tells the tokens that came, the same streamed and not, and sums up",
        count_checks.usage,
    ),
    Check(
        "max_tokens",
        "the first max_tokens tokens of the output and not one more, finish reason length",
        count_checks.max_tokens,
    ),
    Check(
        "finish_reason",
        "length where the limit ended the output, stop where it ended by itself",
        count_checks.finish_reason,
    ),
    Check(
        "streaming",
        "a stream has the text of the whole reply, one finish reason, one id and [DONE]",
        output_checks.streaming,
    ),
    Check(
        "greedy",
        "at temperature 0 the same text as without speculation, each time",
        output_checks.greedy,
        compares=True,
    ),
    Check(
        "seeds",
        "the same seed gives the same output, with and without speculation; others differ",
        sampling_checks.seeds,
    ),
    Check(
        "penalties",
        "a frequency penalty changes an output that repeats itself as it does without speculation",
        sampling_checks.penalties,
    ),
    Check(
        "json_schema",
        "every output is whole JSON of the schema, at temperature 0 and 1",
        sampling_checks.json_schema,
    ),
    Check(
        "grammar",
        "every output is in the language of the grammar, at temperature 0 and 1",
        sampling_checks.grammar,
    ),
    Check(
        "control",
        "a request that wants no drafts gets none, or is refused; the choice is echoed",
        control_checks.control,
        both=False,
    ),
    Check(
        "slots",
        "requests at the same time give what they give alone, and nothing of another's text",
        isolation_checks.slots,
    ),
    Check(
        "scopes",
        "what one session asked makes another's request neither cached nor better drafted",
        isolation_checks.scopes,
        both=False,
    ),
    Check(
        "cancel",
        "a stream that its client leaves frees its slot within a quarter of the time it had left",
        isolation_checks.cancel,
    ),
    Check(
        "errors",
        "a request at fault gets 4xx and OpenAI's error object, and the server goes on",
        error_checks.errors,
    ),
    Check(
        "unknown_keys",
        "an unknown key is refused by its name",
        error_checks.unknown_keys,
    ),
)


def conformance(
    url: str,
    *,
    without: str = "",
    model: str = "",
    api_key_file: str = "",
    timeout_s: float = TIMEOUT_S,
    cancel_s: float = CANCEL_S,
    progress: Progress | None = None,
) -> Conformance:
    """Every check against a server that runs.

    Args:
        url: of the server.
        without: of the same server without speculation, used where a request cannot switch it off.
        model: to ask for; empty = the first that the server lists.
        api_key_file: its first line is sent as the key of both servers.
        timeout_s: of each check, on each side.
        cancel_s: how long a stream that is cancelled would go on.
        progress: called with (checks done, of, name of the next).

    Raises:
        OptionError: no address of a server, no key in the file, or ``without`` is the same server.
        PeerRuntimeError: nobody listens.
    """
    if without:
        require_other_server(url, without)
    server = server_at(url, model=model, api_key_file=api_key_file)
    other = server_at(without, model=model, api_key_file=api_key_file) if without else None
    room, usual = server.room(cancel_s), server.side()
    first = judged(ANSWERS, room, Sides(usual, None, "", "not compared"), timeout_s)
    if first.outcome == "passed":
        sides = sides_of(server, other, timeout_s)
        results = _all(room, sides, timeout_s, progress)
    else:
        sides = Sides(usual, None, "unknown", "it does not answer a plain request")
        results = [_not_made(check, sides.without) for check in CHECKS]
    return Conformance(
        url=server.endpoint.url,
        flavour=server.flavour,
        model=server.endpoint.model,
        speculation=sides.speculation,
        without=sides.without,
        results=(first, *results),
    )


def _all(
    room: Room, sides: Sides, timeout_s: float, progress: Progress | None
) -> list[CheckResult]:
    results = []
    for place, check in enumerate(CHECKS):
        if progress is not None:
            progress(place, len(CHECKS), check.name)
        results.append(judged(check, room, sides, timeout_s))
    return results


def _not_made(check: Check, why: str) -> CheckResult:
    return CheckResult(
        check=check.name, outcome="not measurable", expected=check.expected, found=why
    )
