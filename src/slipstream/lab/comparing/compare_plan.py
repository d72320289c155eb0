"""The plan that ``slipstream lab compare A B`` writes: two builds, two draft lengths, one of each
thing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slipstream.errors import OptionError
from slipstream.lab.contract.plan import ComparisonRule, Plan
from slipstream.lab.planning.few_rows import DEFAULT_ROWS, FewRows, few_rows
from slipstream.lab.planning.plan_file import parse_plan

INSIDE, OUTSIDE = "few-rows", "many-rows"
BUILDS: Final = ("a", "b")
OWN: Final = "slipstream"
NGRAM_MATCH: Final = 8
"""Key of ngram-mod: short, so that it drafts often; how well is not what is asked."""
REPEATS: Final = 6
"""Pairs of blocks; of five, a two-sided sign test can show nothing."""
MOST_ROWS: Final = 128
_FIXED: Final = "--spec-fixed"


@dataclass(frozen=True)
class Choices:
    """
    Attributes:
        a, b: a llama-server's binary, an interpreter with xllamacpp, or ``slipstream``.
        releases: tags of A and B as their user knows them; empty = unknown.
        target, draft: path or catalogue name; without a draft model ngram-mod drafts.
        rows: of a step, at one slot, within the few-row range; ``outside`` beyond it.
        flags: of every start of both.
        same_build: that A and B are one build, for a check of the procedure.
        comparison: what equality of outputs is taken of; text where a build returns no ids.
    """

    a: str
    b: str
    target: str
    draft: str = ""
    releases: tuple[str, str] = ("", "")
    rows: int = DEFAULT_ROWS
    outside: int = 0
    slots: int = 1
    strata: Sequence[str] = ("repetitive",)
    prompts: int = 3
    tokens: int = 96
    repeats: int = REPEATS
    threads: int = 0
    context: int = 4096
    timeout_s: float = 600.0
    budget_s: float = 0.0
    flags: Sequence[str] = ()
    same_build: bool = False
    comparison: ComparisonRule = "ids"


def written(choices: Choices, weight_types: Iterable[str]) -> tuple[str, Plan]:
    """The plan's text, and the plan that it is.

    Args:
        weight_types: of the target's file; none where the file is not here.

    Raises:
        OptionError: no step can have so many rows, or the plan would contradict itself.
    """
    ranges = few_rows(weight_types)
    outside = choices.outside or _default_outside(choices, ranges)
    _require_rows(choices, ranges, outside)
    text = "\n".join(_parts(choices, ranges, outside))
    return text, parse_plan(text)


def _default_outside(choices: Choices, ranges: FewRows) -> int:
    """As far beyond the range as the inside lies within it, so that a short draft stays beyond."""
    return ranges.most + choices.rows


def _require_rows(choices: Choices, ranges: FewRows, outside: int) -> None:
    most = ranges.most // max(choices.slots, 1)
    if not ranges.least <= choices.rows <= most:
        slots = f" at each of {choices.slots} slots" if choices.slots > 1 else ""
        types = ", ".join(f"{name} from {n}" for name, n in ranges.types.items())
        raise OptionError(
            f"--rows from {ranges.least} to {most}{slots}, where every weight type of the file "
            f"meets a few-row kernel ({types})",
            f"{choices.rows}",
            "Leave it out, or ask for fewer slots.",
        )
    if not ranges.most < outside <= MOST_ROWS:
        expected = f"--outside-rows from {ranges.most + 1} to {MOST_ROWS}"
        raise OptionError(expected, f"{outside}", "Leave it out.")
    if choices.tokens < 2 * outside:
        expected = f"--tokens of at least {2 * outside}, as the last draft of an output is cut"
        raise OptionError(expected, f"{choices.tokens}", "Ask for more, or for fewer rows.")


def _parts(choices: Choices, ranges: FewRows, outside: int) -> Iterator[str]:
    yield _HEAD.format(
        name=_quoted(_name(choices)),
        strata=json.dumps(list(choices.strata)),
        prompts=choices.prompts,
        threads=choices.threads,
        context=choices.context,
    )
    yield _TARGET.format(model=_quoted(choices.target))
    if choices.draft:
        yield _DRAFT.format(model=_quoted(choices.draft))
    for name, place, release in zip(BUILDS, (choices.a, choices.b), choices.releases, strict=True):
        yield _runtime(name, place, release, choices.flags)
    yield _COMPARISON.format(inside=INSIDE, outside=OUTSIDE, same=str(choices.same_build).lower())
    yield _condition(choices, INSIDE, choices.rows, (ranges.least, ranges.most))
    yield _condition(choices, OUTSIDE, outside, (ranges.most + 1, 0))
    yield _REST.format(
        tokens=choices.tokens,
        slots=choices.slots,
        timeout_s=float(choices.timeout_s),
        budget_s=float(choices.budget_s),
        repeats=choices.repeats,
        comparison=choices.comparison,
        question=_quoted(_question(choices)),
    )


def _name(choices: Choices) -> str:
    stem = Path(choices.target).name.removesuffix(".gguf")
    word = "aa" if choices.same_build else "compare"
    return f"{word}-{re.sub(r'[^A-Za-z0-9-]+', '-', stem).strip('-')[:40] or 'builds'}"


def _question(choices: Choices) -> str:
    if choices.same_build:
        return "A check of the procedure: what does it say of a build beside itself?"
    return (
        "Does build B take another time than build A where a step has few rows, and is it the same "
        "where it has many?"
    )


def _runtime(name: str, place: str, release: str, flags: Sequence[str]) -> str:
    given: dict[str, Any] = {"kind": "llama-server"}
    if place == OWN:
        given = {"kind": OWN}
        flags = (*flags, *(() if _FIXED in flags else (_FIXED,)))
    elif is_interpreter(place):
        given["python"] = place
    else:
        given["binary"] = place
    given |= {"release": release} if release else {}
    given |= {"flags": list(flags)} if flags else {}
    return _RUNTIME + f"[runtimes.{name}]\n" + _lines(given)


def is_interpreter(place: str) -> bool:
    """Whether a path names Python, and so a wheel in its environment, rather than a server."""
    return re.fullmatch(r"python[0-9.]*(\.exe)?", Path(place).name) is not None


def _condition(choices: Choices, name: str, rows: int, limits: tuple[int, int]) -> str:
    if choices.draft:
        method, parameters = "draft-simple", {"n_max": rows - 1, "n_min": 0, "p_min": 0.0}
    else:
        method = "ngram-mod"
        parameters = {
            "ngram_mod_n_match": NGRAM_MATCH,
            "ngram_mod_n_min": rows - 1,
            "ngram_mod_n_max": rows - 1,
        }
    given: dict[str, Any] = {
        "name": name,
        "stage": "draft-simple" if choices.draft else "ngram",
        "method": method,
    }
    given |= {"draft": "draft"} if choices.draft else {}
    given |= {"parameters": parameters, "rows_range": list(limits)}
    return "[[conditions]]\n" + _lines(given)


def _lines(given: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in given.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False)


_HEAD: Final = """\
# A comparison of two builds, written by `slipstream lab compare A B`. `slipstream lab run` runs it
# too. Only the length of drafts differs between the two conditions, and only the build between A
# and B; a build that is not the one of the manifest ends the run.

name = {name}
strata = {strata}
prompts = {prompts}
threads = {threads}  # 0 = each program's own choice
context = {context}
"""
_TARGET: Final = """\
[target]
model = {model}
"""
_DRAFT: Final = """\
[drafts.draft]
model = {model}
"""
_RUNTIME: Final = """\
# `device = { backend = "Metal" }` ends a run on another device before it begins.
"""
_COMPARISON: Final = """\
[comparison]
builds = ["a", "b"]  # figures are B's over A's
inside = "{inside}"
outside = "{outside}"
same_build = {same}  # true: A and B are one build, a check of the procedure
"""
_REST: Final = """\
[sampling]
max_tokens = {tokens}

[arrivals]
slots = {slots}

[rules]
comparison = "{comparison}"
tolerance_logit_gap = 0.05  # outputs that part at a nearer tie of A's two best logits go on
margin = 0.03  # least difference in time worth telling
timeout_s = {timeout_s}
budget_s = {budget_s}
repeats = {repeats}

[question]
text = {question}
"""
