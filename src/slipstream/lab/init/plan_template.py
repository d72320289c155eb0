"""The plan that ``slipstream lab init`` writes: complete, commented, ready to run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slipstream.catalog import DEFAULT_MODEL
from slipstream.errors import OptionError
from slipstream.lab.init.plan_running import running_conditions
from slipstream.lab.runtimes.offers import Offer
from slipstream.measure.workload import STRATA

_PLACES: Final = {
    "slipstream": "",
    "llama-server": "llama-server=PATH of a binary or an interpreter",
    "openai": "openai=http://HOST:PORT",
}
_SMALL_STRATA: Final = ("repetitive", "chat")
_UNNAMED: Final = "run"


@dataclass(frozen=True)
class Choices:
    """
    Attributes:
        runtimes: name -> (kind, what it needs: a binary, an interpreter or an address).
        model, draft: path or catalogue name; no draft = only drafters that need none.
        small: a run of minutes, for a first look; too few prompts for a verdict.
        offers: of servers that run already, by name: what each said when it was asked.
    """

    runtimes: Mapping[str, tuple[str, str]]
    model: str = DEFAULT_MODEL
    draft: str = ""
    small: bool = False
    offers: Mapping[str, Offer] = field(default_factory=dict)

    @property
    def restartable(self) -> bool:
        """Whether the lab starts a program itself, so that a rollback can be tried."""
        return any(kind != "openai" for kind, _ in self.runtimes.values())

    @property
    def tells_ids(self) -> bool:
        """Whether every program returns the ids of its tokens."""
        return all(kind != "openai" for kind, _ in self.runtimes.values())


def parse_runtimes(texts: Sequence[str]) -> dict[str, tuple[str, str]]:
    """``slipstream``, ``llama-server=PATH`` (a binary, or an interpreter with ``xllamacpp``) or
    ``openai=URL``, each perhaps after ``NAME:``; nothing = Slipstream.

    Raises:
        OptionError: another kind, or two of one name.
    """
    found: dict[str, tuple[str, str]] = {}
    for text in texts or ("slipstream",):
        head, _, place = text.partition("=")
        name, _, kind = head.rpartition(":")
        _require_place(kind, place, text)
        if (name or kind) in found:
            remedy = "Write NAME:KIND=PLACE, with another name for each."
            raise OptionError("a name for each runtime", f"`{name or kind}` twice", remedy)
        found[name or kind] = (kind, place)
    return found


def _require_place(kind: str, place: str, text: str) -> None:
    if kind not in _PLACES:
        raise OptionError(f"a runtime among {', '.join(_PLACES)}", f"`{kind}`", "Correct it.")
    if bool(place) != bool(_PLACES[kind]):
        expected = _PLACES[kind] or "slipstream, which needs nothing after `=`"
        raise OptionError(expected, f"`{text}`", "Correct it.")


def plan_text(choices: Choices) -> str:
    """A plan.toml that ``read_plan`` accepts."""
    return "\n".join(
        [
            _head(choices),
            _models(choices),
            *(_runtime(name, *given) for name, given in choices.runtimes.items()),
            _conditions(choices),
            _requests(choices),
            _RULES.format(
                comparison="ids" if choices.tells_ids else "text",
                repeats=5 if choices.small else 8,
            ),
            _QUESTION,
        ]
    )


def _head(choices: Choices) -> str:
    stem = Path(choices.model).name.removesuffix(".gguf")
    name = re.sub(r"[^A-Za-z0-9-]+", "-", stem).strip("-")[:48] or _UNNAMED
    strata = _SMALL_STRATA if choices.small else STRATA
    head = _SMALL_HEAD if choices.small else ""
    return head + _HEAD.format(
        name=_quoted(name),
        strata=json.dumps(list(strata)),
        prompts=2 if choices.small else 6,
        rollback=_ROLLBACK if choices.restartable else _NO_ROLLBACK,
    )


def _models(choices: Choices) -> str:
    text = f"{_TARGET}model = {_quoted(choices.model)}\n"
    if choices.draft:
        return f"{text}\n{_DRAFT}[drafts.draft]\nmodel = {_quoted(choices.draft)}\n"
    return f'{text}\n{_DRAFT}# [drafts.draft]\n# model = "qwen2.5-coder-0.5b"\n'


def _runtime(name: str, kind: str, place: str) -> str:
    lines = [f"[runtimes.{_key(name)}]", f"kind = {_quoted(kind)}"]
    if kind == "openai":
        lines.append(f"url = {_quoted(place)}")
    elif place:
        key = "python" if Path(place).name.startswith("python") else "binary"
        lines.append(f"{key} = {_quoted(place)}")
    return _RUNTIME + "\n".join([*lines, ""]) + _RUNTIME_MORE


def _conditions(choices: Choices) -> str:
    own = all(kind == "slipstream" for kind, _ in choices.runtimes.values())
    if not choices.restartable:
        return _CONDITIONS + running_conditions(
            list(choices.offers.values()), has_draft=bool(choices.draft)
        )
    text = _CONDITIONS + _NGRAM + ("" if choices.small else _SWEEP) + (_SUFFIX if own else "")
    return text + (_DRAFT_SIMPLE if choices.draft else "")


def _requests(choices: Choices) -> str:
    return _REQUESTS.format(max_tokens=48 if choices.small else 96)


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


_HEAD: Final = """\
# A plan of the lab. `slipstream lab run plan.toml --dry-run` shows what it would do and starts
# nothing; `slipstream lab run plan.toml` does it, and a run that was interrupted goes on with
# --resume. Paths are relative to the directory where you run it.

name = {name}  # of the run, in file names

# Workloads: each gets a verdict of its own, never their mixture. See workloads/README.md.
strata = {strata}
prompts = {prompts}  # most of each; p95 needs 20 requests, prompts x repeats
# workloads = "my_workloads"  # a folder of your own .jsonl files
# imports = {{ "questions.jsonl" = "jsonl" }}  # or spec-bench, speed-bench
# typical = ["mine/long-1"]  # ids of long prompts like your load's; empty = those marked so
#   (long_input has one). A condition that answered none of them is not adopted.
# share_texts = false  # whether texts of your own may appear in reports

{rollback}
threads = 0  # 0 = each program's own choice
context = 4096  # positions per slot; prompts and outputs must fit
cold = false  # true: measure the first request of every process instead of warm ones

# What only you can know; left empty it is `unknown` in the manifest.
power = ""  # for example "mains, 65 W"
cooling = ""
load_note = ""  # what else ran
"""
_SMALL_HEAD: Final = """\
# A first look (`lab init --small`): it shows the way to a report and can end in no better word than
# `inconclusive`. An `adopt` takes at least 20 requests of a workload for p95 (prompts x repeats)
# and a long sequence typical of the load; `lab init` without --small writes a plan that has both.

"""
_ROLLBACK: Final = """\
# The way back, tried at the end: the build that you use now, started with `none` once more.
# "same": what you use now is this very program without drafting, so the way back is to switch
# drafting off. If another build is replaced, add it under [runtimes] and write its name here; it
# then runs `none` alone. Empty: nothing is kept, the rollback is not measurable, and nothing can be
# adopted.
rollback = "same"
"""
_NO_ROLLBACK: Final = """\
# The way back, tried at the end: the build that you use now, started with `none` once more. A
# server that runs already cannot be started again: its rollback and its memory are not measurable,
# so nothing can be adopted; give the lab a program that it starts (`--runtime slipstream`).
rollback = ""
"""
_TARGET: Final = """\
# The model that answers: a path, a catalogue name or owner/repo:file. Its digest, quantisation,
# tokenizer, template and licence are read from the file and the catalogue; what you know better
# can be said by `source`, `revision`, `licence`, `terms`.
[target]
"""
_DRAFT: Final = """\
# A smaller model of the same family that drafts. It is used only where tokenizer, vocabulary,
# template and architecture are each confirmed; that a file loads proves nothing.
"""
_RUNTIME: Final = """\
# A program to measure.
"""
_RUNTIME_MORE: Final = """\
# flags = []  # given to every start, checked against its --help
# device = { layers = "0", kv_type = "f16" }  # the placement asked for, to be recorded
"""
_CONDITIONS: Final = """\
# Ways of drafting. `none` is always measured and need not be listed. Each stage is unlocked by the
# one before: none, ngram, ngram-sweep, draft-simple, trained, then `slots` and `sampler` below.
"""
_NGRAM: Final = """
[[conditions]]
name = "ngram-simple"
stage = "ngram"
method = "ngram-simple"
starting_point = true  # llama.cpp's defaults, passed explicitly; no recommendation
parameters = { ngram_simple_size_n = 12, ngram_simple_size_m = 48 }
"""
_SWEEP: Final = """
[[conditions]]
name = "sweep"
stage = "ngram-sweep"  # one parameter at a time, on the repetitive workload alone
parent = "ngram-simple"
varies = "ngram_simple_size_n"
parameters = { ngram_simple_size_n = [4, 24] }
"""
_SUFFIX: Final = """
[[conditions]]
name = "suffix"
stage = "ngram"
method = "suffix"
starting_point = true
parameters = { suffix_n_max = 48, suffix_match = 1, suffix_factor = 4.0, suffix_p_min = 0.1 }
"""
_DRAFT_SIMPLE: Final = """
[[conditions]]
name = "draft-simple"
stage = "draft-simple"
method = "draft-simple"
draft = "draft"
starting_point = true
parameters = { n_max = 4, n_min = 0, p_min = 0.0 }
"""
_REQUESTS: Final = """
[sampling]
seed = 1  # of prompt i it is seed + i
max_tokens = {max_tokens}
# The first stage is temperature 0, where the output must be that of `none`. Give your real sampler
# for a second one, judged by checks instead of equality:
# sampler = {{ temperature = 0.7, top_p = 0.9 }}

[arrivals]
kind = "closed"  # or poisson (rate_per_s), recorded (file)
slots = 1  # requests at a time; above 1 only conditions that survived at 1 run again
# mix = {{ chat = 3, structured = 1 }}

# [tenants]
# names = ["a", "b"]  # who must not learn of one another
"""
_RULES: Final = """\
# Fixed before the first request; none of them is learnt from a result, ours or published.
[rules]
comparison = "{comparison}"  # equality with `none` is taken of token `ids`, or of `text`
tolerance_logit_gap = 0.05  # the two best logits nearer than this make a divergence a near-tie
margin = 0.05  # least speed-up minus 1 that is worth adopting
slo_total_s = 0.0  # limits of medians; 0 = none
slo_tok_s = 0.0
slo_ttft_s = 0.0
memory_margin_bytes = 1073741824  # most peak memory over `none`
timeout_s = 600.0
repeats = {repeats}  # blocks of every condition and workload; under 5 there is no verdict, and what
#   this machine's noise asks for stands in the report: more, if it is large
warm_up = 1  # requests before a block, on prompts that are not measured
drift_limit = 0.2  # a block on a machine that changed by more is repeated, then inconclusive
rows_range = [0, 0]  # least and most rows of a verification step; 0, 0 = any
budget_s = 0.0  # seconds for the whole run; 0 = no limit
confidence = 0.95
"""
_QUESTION: Final = """\
[question]
text = "Does speculation pay on this machine, with these files, for these workloads?"
# pages = [{ url = "https://...", commit = "...", at = "2026-01-31T12:00:00+00:00" }]
"""
