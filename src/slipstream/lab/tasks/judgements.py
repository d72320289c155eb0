"""Judging an output by what its prompt says of it; pure functions, no judge model.

Four judgements: ``exact`` (equality with the output of ``none``, at temperature 0), ``schema`` (the
answer is JSON of the prompt's schema), ``tools`` (every call names an offered tool, its arguments
are of that tool's schema) and ``rubric`` (every named check of ``lab.tasks.rubric`` passed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from slipstream.errors import RequestError
from slipstream.lab.tasks.json_answers import NotJsonError, json_value, tool_calls
from slipstream.lab.tasks.rubric import Answer, parse_check
from slipstream.lab.tasks.schema_subset import matches, require_schema
from slipstream.measure.workload import WorkloadPrompt

WHOLE: Final = frozenset({"stop", "eos", "word", "tool_calls", "end_turn", "stop_sequence"})
"""Finish reasons of a text that its limit did not cut; any other one may have."""
LONGEST: Final = 1 << 18
"""Characters; a longer text is compared with the baseline and not judged otherwise."""

Judged = dict[str, bool | None]


def judge(
    prompt: WorkloadPrompt, text: str, baseline_text: str | None, finish_reason: str
) -> Judged:
    """Judgement or check -> passed, failed, or None where that cannot be told.

    Always ``exact``; ``schema`` and ``tools`` where the prompt has them; every check by its own
    name and, over all of them, ``rubric``.

    Args:
        text: the output, not one of a failed request.
        baseline_text: of ``none`` for the same prompt and seed; None where there is none to be
            equal to (the stage of the user's sampler).
        finish_reason: the runtime's. A text cut by its limit fails only what no continuation could
            mend.

    Raises:
        RequestError: the prompt's own judgement is malformed (see ``require_judgeable``).
    """
    judged: Judged = {"exact": None if baseline_text is None else text == baseline_text}
    answer = Answer(text, _source(prompt), finish_reason in WHOLE)
    if prompt.schema is not None:
        judged["schema"] = _judged(answer, lambda: _is_of_schema(text, prompt.schema or {}))
    if prompt.tools:
        judged["tools"] = _judged(answer, lambda: _calls_fit(text, prompt.tools))
    if prompt.checks:
        found = {check: _checked(check, answer) for check in prompt.checks}
        judged["rubric"] = _all(found.values())
        judged |= found
    return judged


def measured(judged: Mapping[str, bool | None]) -> dict[str, bool]:
    """Only what could be told, as records keep it."""
    return {name: passed for name, passed in judged.items() if passed is not None}


def _source(prompt: WorkloadPrompt) -> str:
    asked = [message.content for message in prompt.messages if message.role == "user"]
    return asked[-1] if asked else ""


def _judged(answer: Answer, test: Callable[[], bool]) -> bool | None:
    if not answer.whole or len(answer.text) > LONGEST:
        return None
    try:
        return test()
    except NotJsonError:
        return False


def _checked(check: str, answer: Answer) -> bool | None:
    test = parse_check(check)
    return None if len(answer.text) > LONGEST else test(answer)


def _all(results: Iterable[bool | None]) -> bool | None:
    seen = set(results)
    return False if False in seen else (None if None in seen else True)


def _is_of_schema(text: str, schema: Mapping[str, Any]) -> bool:
    return matches(json_value(text), schema)


def _calls_fit(text: str, tools: Iterable[Mapping[str, Any]]) -> bool:
    offered = {tool["name"]: tool["parameters"] for tool in tools}
    return all(
        call.name in offered and matches(call.arguments, offered[call.name])
        for call in tool_calls(text)
    )


def require_judgeable(prompt: WorkloadPrompt) -> None:
    """Check that a prompt brings what its judgement needs.

    Raises:
        RequestError: the judgement lacks its schema, tools or checks; one of these is malformed; or
            an output is to be constrained without a schema.
    """
    needs = {"schema": prompt.schema, "tools": prompt.tools, "rubric": prompt.checks}
    if prompt.judgement in needs and not needs[prompt.judgement]:
        key = "checks" if prompt.judgement == "rubric" else prompt.judgement
        raise _bad(prompt, f"judgement `{prompt.judgement}` without `{key}`")
    if prompt.constrained and prompt.schema is None:
        raise _bad(prompt, "`constrained` without `schema`")
    if prompt.schema is not None:
        require_schema(prompt.schema, f"`schema` of {prompt.id}")
    for tool in prompt.tools:
        _require_tool(prompt, tool)
    if len({tool["name"] for tool in prompt.tools}) != len(prompt.tools):
        raise _bad(prompt, "two tools of one name")
    for check in prompt.checks:
        parse_check(check)


def _require_tool(prompt: WorkloadPrompt, tool: Mapping[str, Any]) -> None:
    if not isinstance(tool.get("name"), str) or tool.keys() - {"name", "description", "parameters"}:
        raise _bad(prompt, "a tool with other keys than name, description and parameters")
    require_schema(tool.get("parameters"), f"tool `{tool['name'][:64]}` of {prompt.id}")


def _bad(prompt: WorkloadPrompt, found: str) -> RequestError:
    expected = f"a judgement that {prompt.id} can be judged by"
    return RequestError(expected, found, "See workloads/README.md for the keys.")
