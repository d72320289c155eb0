"""plan.toml: every fault names the key, its line and the nearest name; the template is sound."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from slipstream.errors import OptionError, RequestError
from slipstream.lab.contract.methods import canonical
from slipstream.lab.contract.plan import Plan
from slipstream.lab.evidence.definitions import FEWEST_FOR_P95
from slipstream.lab.evidence.noise import FEWEST_PAIRS
from slipstream.lab.freezing.workload_sets import workloads_of
from slipstream.lab.init.plan_template import Choices, parse_runtimes, plan_text
from slipstream.lab.planning.plan_checks import check_plan
from slipstream.lab.planning.plan_file import MOST_PLAN_BYTES, parse_plan, read_plan
from slipstream.lab.planning.plan_lines import KeyLines, dotted

HEAD = """\
name = "study"
[target]
model = "smollm2-135m"
[runtimes.slipstream]
kind = "slipstream"
"""
LLAMA = """\
name = "study"
[target]
model = "smollm2-135m"
[runtimes.b1]
kind = "llama-server"
binary = "llama-server"
"""
NGRAM = """\
[[conditions]]
name = "a"
stage = "ngram"
method = "ngram-mod"
parameters = { ngram_mod_n_max = 64, n_match = 24 }
"""


def fault(text: str) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse_plan(text)
    return caught.value


def test_the_smallest_plan() -> None:
    plan = parse_plan(HEAD)
    assert plan.name == "study"
    assert plan.runtimes["slipstream"].kind == "slipstream"
    assert plan.rules.repeats == 5


def test_values_have_their_types() -> None:
    plan = parse_plan(HEAD + "[rules]\nmargin = 1\nrows_range = [2, 16]\n")
    assert plan.rules.margin == 1.0
    assert isinstance(plan.rules.margin, float)
    assert plan.rules.rows_range == (2, 16)


@pytest.mark.parametrize(
    ("more", "expected", "found", "remedy"),
    [
        ("[rules]\nmargn = 0.1\n", "`rules`", "`rules.margn` (line 7)", "`margin`"),
        ("[rules]\n\nmargin = 'x'\n", "`rules.margin` (line 8) to be a number", "'x'", "lab init"),
        ("[arrivals]\nkind = 'posson'\n", "(line 7) to be one of closed", "'posson'", "`poisson`"),
        ("[arrivals]\nslots = 0\n", "`arrivals.slots` (line 7) to be from 1", "0", ""),
        ("[drafts]\nd = { modl = 'x' }\n", "`drafts.d`", "`drafts.d.modl` (line 7)", "`model`"),
        ("[drafts.d]\nsource = 'x'\n", "the key `model` in `drafts.d`", "line 6", ""),
        ("[[conditions]]\nstage = 'none'\n", "the key `name` in `conditions[0]`", "line 6", ""),
        ("[runtimes.x]\nkind = 'openai'\n", "`runtimes.x` (line 6) to have one of url", "none", ""),
        ("[rules]\nrows_range = [5, 2]\n", "rows_range` (line 7)", "[5, 2]", ""),
        ("[rules]\nmargin = nan\n", "`rules.margin` (line 7) to be from 0 to 100", "nan", ""),
        ("[sampling]\nsampler = { top_p = 0.9 }\n", "a temperature above 0", "0.0", "real"),
        ("[sampling.sampler]\ntempratur = 1\n", "(line 6)", "`tempratur`", "`temperature`"),
        ("[arrivals]\nrate_per_s = 2.0\n", "above 0 for Poisson", "2.0 with kind closed", ""),
        ("[arrivals.mix]\nchta = 1.0\n", "`arrivals.mix.chta` (line 7)", "`chta`", "`chat`"),
    ],
)
def test_a_fault_is_located(more: str, expected: str, found: str, remedy: str) -> None:
    problem = fault(HEAD + more)
    assert expected in problem.expected
    assert found in problem.found
    assert remedy in problem.remedy


def test_top_level_faults() -> None:
    assert "`strata[1]` (line 1)" in fault("strata = ['chat', 'chats']\n" + HEAD).expected
    assert "`strta` (line 1)" in fault("strta = ['chat']\n" + HEAD).found
    assert "`name` (line 1)" in fault(HEAD.replace('"study"', '"../up"')).expected
    assert fault("rollback = 'kept'\n" + HEAD).remedy == "Did you mean `slipstream`?"


def test_no_toml_tells_the_line() -> None:
    assert "line 2" in fault('name = "x"\nbroken = \n').found


@pytest.mark.parametrize(
    ("condition", "expected", "found"),
    [
        ("method = 'ngram-mood'", "`conditions[0].method` (line 9)", "`ngram-mood`"),
        ("method = 'draft-simple'", "to be of stage ngram", "`draft-simple`"),
        ("method = 'none'", "to be of stage ngram", "`none`"),
        ("method = 'ngram-mod'\ndraft = 'x'", "reads a draft model", "ngram-mod"),
        ("method = 'ngram-mod'\nvaries = 'n_max'", "only in a condition of stage", "stage ngram"),
        ("method = 'ngram-mod'\nparameters = { n_maxx = 3 }", "a known option", "`n_maxx`"),
        ("method = 'ngram-mod'\nparameters = { n_match = 0 }", "at least 1", "0"),
    ],
)
def test_faults_of_a_condition(condition: str, expected: str, found: str) -> None:
    problem = fault(HEAD + f"[[conditions]]\nname = 'a'\nstage = 'ngram'\n{condition}\n")
    assert expected in problem.expected
    assert found in problem.found


def test_a_draft_is_needed_and_must_be_known() -> None:
    text = "[[conditions]]\nname = 'd'\nstage = 'draft-simple'\nmethod = 'draft-simple'\n"
    assert "to name its `draft`" in fault(HEAD + text).expected
    drafts = "[drafts.small]\nmodel = 'x'\n"
    problem = fault(HEAD + drafts + text + "draft = 'smal'\n")
    assert problem.remedy == "Did you mean `small`?"
    parse_plan(HEAD + drafts + text + "draft = 'small'\n")


def test_heads_in_the_targets_own_file_need_no_draft() -> None:
    text = "[[conditions]]\nname = 'm'\nstage = 'trained'\nmethod = 'draft-mtp'\n"
    assert parse_plan(HEAD + text).conditions[0].draft == ""


def test_what_another_program_knows_is_not_judged_here() -> None:
    more = "[[conditions]]\nname='a'\nstage='ngram'\nmethod='ngram-mod'\nparameters={future = 1}\n"
    assert parse_plan(LLAMA + more).conditions[0].parameters == {"future": 1}
    assert "`future`" in fault(HEAD + more).found


SWEEP = "[[conditions]]\nname = 's'\nstage = 'ngram-sweep'\n"


@pytest.mark.parametrize(
    "more",
    ["", "parent = 'a'\n", "varies = 'n_match'\nparameters = { n_match = [8, 16] }\n"],
)
def test_a_sweep(more: str) -> None:
    parse_plan(HEAD + NGRAM + SWEEP + more)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("parent = 'b'\n", "an n-gram condition before it"),
        ("method = 'suffix'\n", "to be that of `a`"),
        ("varies = 'n_match'\nparameters = { n_match = 8, n_max = 3 }\n", "in `varies` alone"),
        ("varies = 'n_match'\nparameters = { n_match = [0, 8] }\n", "`conditions[1].parameters`"),
        ("varies = 'n_match'\nparameters = { n_match = 24 }\n", "a value that the sweep `s` tries"),
    ],
)
def test_faults_of_a_sweep(more: str, expected: str) -> None:
    assert expected in fault(HEAD + NGRAM + SWEEP + more).expected


def test_a_sweep_before_its_parent() -> None:
    assert fault(HEAD + SWEEP + NGRAM).remedy == "Place one before it."


def test_names_are_unique() -> None:
    assert "unique" in fault(HEAD + NGRAM + NGRAM).expected


def test_spellings_of_a_parameter() -> None:
    assert canonical(("ngram-mod",), "n_max") == "ngram_mod_n_max"
    assert canonical(("ngram-mod",), "--spec-ngram-mod-n-max") == "ngram_mod_n_max"
    assert canonical(("draft-simple",), "n_max") == "n_max"
    assert canonical(("draft-simple",), "nothing") is None


@pytest.mark.parametrize("at", ["2026-11-30T12:00:00", "yesterday", ""])
def test_pages_have_a_zoned_time(at: str) -> None:
    page = f"[question]\npages = [{{ url = 'https://x', at = '{at}' }}]\n"
    assert "zone" in fault(HEAD + page).expected


def test_a_toml_time_is_taken_as_it_is_written() -> None:
    page = "[question]\npages = [{ url = 'https://x', at = 2026-11-30T12:00:00Z }]\n"
    assert parse_plan(HEAD + page).question.pages[0]["at"] == "2026-11-30T12:00:00+00:00"


@pytest.mark.parametrize("more", ["url = 'http://x'", "python = 'python3'", "binary = 'x'"])
def test_a_runtime_reads_only_its_own_keys(more: str) -> None:
    assert "only where" in fault(HEAD + more + "\n").expected


def test_both_of_binary_and_python() -> None:
    assert "to have one of binary, python" in fault(LLAMA + "python = 'p'\n").expected


def test_a_pairing_names_its_source() -> None:
    draft = "[drafts.d]\nmodel = 'x'\npairing = {{ {} = '{}' }}\n"
    assert "`template`" in fault(HEAD + draft.format("templat", "x")).remedy
    assert "source" in fault(HEAD + draft.format("template", " ")).expected
    parse_plan(HEAD + draft.format("template", "https://example.org/card"))


def test_files_that_are_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    with pytest.raises(OptionError, match="No such file"):
        read_plan(path)
    path.write_bytes(b"\xff")
    with pytest.raises(OptionError, match="UTF-8"):
        read_plan(path)
    path.write_bytes(b"#" * (MOST_PLAN_BYTES + 1))
    with pytest.raises(OptionError, match="at most"):
        read_plan(path)
    path.write_text(HEAD)
    assert read_plan(path).name == "study"


def test_deep_nesting_is_no_crash() -> None:
    fault("x = " + "[" * 100_000)


def test_a_plan_made_in_python_is_checked() -> None:
    plan = parse_plan(HEAD)
    with pytest.raises(OptionError, match="`prompts` to be from 1 to 4096"):
        check_plan(Plan(name="x", target=plan.target, runtimes=plan.runtimes, prompts=0))


@pytest.mark.parametrize(
    "text",
    [
        "[rules]\nrepeats = 1000000000",
        "prompts = 1000000000",
        "[rules]\nbudget_s = inf",
        "\n".join(
            f'[[conditions]]\nname = "c{i}"\nstage = "ngram"\nmethod = "ngram-simple"'
            for i in range(65)
        ),
        '[[conditions]]\nname = "a"\nstage = "ngram"\nmethod = "ngram-simple"\n'
        '[[conditions]]\nname = "s"\nstage = "ngram-sweep"\nparent = "a"\n'
        'varies = "ngram_simple_size_n"\n'
        f"parameters = {{ ngram_simple_size_n = {list(range(1, 70))} }}",
    ],
)
def test_a_plan_of_absurd_size_is_refused(text: str) -> None:
    """Its blocks would fill the memory before the first request."""
    with pytest.raises(OptionError, match=r"to be (from|at)"):
        parse_plan(f"{HEAD.split('[')[0]}{text}\n[{HEAD.split('[', 1)[1]}")


def test_lines_of_keys() -> None:
    text = (
        'a = """\nb = 1\n"""\n'  # 1 to 3: b is text
        "c = [\n  { d = 1 },\n]\n"  # 4 to 6
        "[t.'x y'] # [no]\n'q' = \"[\" # {\n\n"  # 7, 8
        "[[e]]\nf = 1\n[e.g]\nh = 2\n[[e]]\nf.i = 1\n"  # 10 to 15
    )
    lines = KeyLines(text)
    assert lines.line(("a",)) == 1
    assert lines.line(("b",)) is None
    assert lines.line(("c", 0, "d")) == 4
    assert lines.line(("t", "x y", "q")) == 8
    assert lines.line(("e", 0, "g", "h")) == 13
    assert lines.line(("e", 1)) == 14
    assert lines.line(("e", 1, "f", "i")) == 15
    assert lines.shown(("e", 1, "f", "i")) == "`e[1].f.i` (line 15)"
    assert dotted(("e", 1, "f")) == "e[1].f"


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("draft", ["", "qwen2.5-coder-0.5b"])
@pytest.mark.parametrize(
    "runtimes",
    [(), ("old:llama-server=a b", "new:llama-server=/x/bin/python3"), ("openai=http://h:1",)],
)
def test_every_template_is_a_plan(runtimes: tuple[str, ...], draft: str, small: bool) -> None:
    choices = Choices(parse_runtimes(runtimes), draft=draft, small=small)
    plan = parse_plan(plan_text(choices))
    assert plan.target.model == "smollm2-135m"
    assert list(plan.runtimes) == list(choices.runtimes)
    assert ("draft-simple" in {c.name for c in plan.conditions}) == (
        bool(draft) and not (runtimes and runtimes[0].startswith("openai"))
    )


def test_the_template_states_the_defaults() -> None:
    plan = parse_plan(plan_text(Choices(parse_runtimes(()))))
    bare = parse_plan(HEAD)
    for name in ("rules", "arrivals", "sampling", "tenants", "strata", "context", "prompts"):
        found = getattr(plan, name)
        if name == "rules":  # as many blocks as a machine in use may need
            found = msgspec.structs.replace(found, repeats=bare.rules.repeats)
        assert found == getattr(bare, name)
    assert plan.question == bare.question


def test_a_template_with_a_hostile_name() -> None:
    text = plan_text(Choices(parse_runtimes(()), model='dir/a "b"\\.gguf'))
    assert parse_plan(text).target.model == 'dir/a "b"\\.gguf'


@pytest.mark.parametrize(
    "given", [("llama",), ("llama-server",), ("slipstream=x",), ("slipstream", "slipstream")]
)
def test_runtimes_that_are_none(given: tuple[str, ...]) -> None:
    with pytest.raises(OptionError):
        parse_runtimes(given)


def test_a_newcomers_plan_can_end_in_a_verdict() -> None:
    plan = parse_plan(plan_text(Choices(parse_runtimes(()))))
    assert plan.rollback == "same"
    assert plan.prompts * plan.rules.repeats >= FEWEST_FOR_P95
    assert plan.rules.repeats >= FEWEST_PAIRS
    assert any(p.typical for w in workloads_of(plan) for p in w.prompts)


def test_a_first_look_says_that_it_is_none() -> None:
    text = plan_text(Choices(parse_runtimes(()), small=True))
    assert "no better word than\n# `inconclusive`" in text
    plan = parse_plan(text)
    short = plan.prompts * plan.rules.repeats < FEWEST_FOR_P95
    assert short or not any(p.typical for w in workloads_of(plan) for p in w.prompts)


def test_a_server_that_runs_already_has_no_way_back_and_tells_no_ids() -> None:
    text = plan_text(Choices(parse_runtimes(["openai=http://127.0.0.1:8080"])))
    plan = parse_plan(text)
    assert (plan.rollback, plan.rules.comparison) == ("", "text")
    assert "nothing can be adopted" in text


def test_a_word_of_the_rollback_is_no_runtimes_name() -> None:
    assert (
        "a word of `rollback`"
        in fault(HEAD.replace("runtimes.slipstream", "runtimes.same")).expected
    )


WORDS = ("none", "mix", "rollback", "trial", "logits", "paths", "isolation", "Rollback", "target")


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_labs_own_is_no_name(word: str) -> None:
    asked = NGRAM.replace('"a"', f'"{word}"')
    texts = [
        HEAD.replace("runtimes.slipstream", f"runtimes.{word}"),
        HEAD + f"[drafts.{word}]\nmodel = 'x'\n",
    ]
    texts += [HEAD + asked] if word != "none" else []
    for text in texts:
        problem = fault(text)
        assert "a word of the lab's own" in problem.expected
        assert f"`{word}`" in problem.found
    parse_plan(HEAD + NGRAM.replace('"a"', f'"my-{word}"'))


def test_the_baseline_may_be_listed() -> None:
    parse_plan(HEAD + "[[conditions]]\nname = 'none'\nstage = 'none'\n")
    listed = "[[conditions]]\nname = 'none'\nstage = 'ngram'\nmethod = 'ngram-mod'\n"
    assert "the baseline" in fault(HEAD + listed).found


@pytest.mark.parametrize(
    ("stage", "remedy"),
    [("slots", "arrivals.slots"), ("sampler", "sampling.sampler"), ("none", "leave it out")],
)
def test_a_stage_that_no_condition_is_of(stage: str, remedy: str) -> None:
    problem = fault(HEAD + NGRAM.replace('"ngram"', f'"{stage}"'))
    assert "`conditions[0].stage` (line 8)" in problem.expected
    assert problem.found == stage
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("names", "expected"),
    [("['a', 'a']", "to be unique"), ("['a', '']", "1 to 64 letters"), ("['a b']", "1 to 64")],
)
def test_tenants_are_told_apart(names: str, expected: str) -> None:
    assert expected in fault(HEAD + f"[tenants]\nnames = {names}\n").expected


def test_an_imported_category_is_no_word_of_the_labs_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "Ours?", "category": "mix", "kind": "chat"}\n')
    plan = msgspec.structs.replace(parse_plan(HEAD), imports={str(path): "jsonl"}, strata=())
    with pytest.raises(RequestError, match="words of the lab's own"):
        workloads_of(plan)
    path.write_text('{"prompt": "Ours?", "category": "mixed", "kind": "chat"}\n')
    assert [w.name for w in workloads_of(plan)] == ["mixed"]
