"""Conditions as command lines, for llama-server's builds and for Slipstream."""

from __future__ import annotations

from typing import Any

import pytest

from lying_replies import help_text
from slipstream.errors import OptionError
from slipstream.lab.contract.manifest import MethodIdentity
from slipstream.lab.contract.methods import methods_of, most_proposed, parameters_of
from slipstream.lab.contract.plan import Artifact, ConditionPlan, Plan, RuntimePlan
from slipstream.lab.freezing.help_text import Help
from slipstream.lab.runtimes import llama_flags, slipstream_flags

PLAN = Plan(
    name="x",
    target=Artifact(model="target.gguf"),
    drafts={"small": Artifact(model="small.gguf")},
    runtimes={"r": RuntimePlan(kind="slipstream")},
)
HELP = Help(help_text(frozenset()))
OLD = Help("--draft-max N   most tokens (default: 16)\n-md, --model-draft FNAME   a model\n")


def condition(method: str, draft: str = "", **parameters: Any) -> ConditionPlan:
    return ConditionPlan(name="c", stage="ngram", method=method, parameters=parameters, draft=draft)


def llama(method: str, draft: str = "", **parameters: Any) -> MethodIdentity:
    return llama_flags.method_identity(condition(method, draft, **parameters), PLAN, HELP)


def own(method: str, draft: str = "", **parameters: Any) -> MethodIdentity:
    words = [f"--{name.replace('_', '-')} N" for name in slipstream_flags_names()]
    helped = Help("\n".join([*words, "--spec NAME,..", "--fixed"]))
    return slipstream_flags.method_identity(condition(method, draft, **parameters), PLAN, helped)


def slipstream_flags_names() -> list[str]:
    from slipstream.options import SpeculationOptions, describe

    return [option.name for option in describe(SpeculationOptions) if option.name != "fixed"]


def test_none_is_said() -> None:
    made = llama("none")
    assert (made.flags, made.most_proposed, made.not_run) == (("--spec-type", "none"), 0, "")
    assert own("none").flags == ("--spec", "none")
    assert own("none").most_proposed == 0


@pytest.mark.parametrize(
    "key",
    ["ngram_simple_size_m", "size_m", "--spec-ngram-simple-size-m", "spec_ngram_simple_size_m"],
)
def test_a_parameter_may_be_spelled_in_several_ways(key: str) -> None:
    asked: dict[str, Any] = {key: 9}
    made = llama("ngram-simple", **asked)
    assert made.flags == ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "9")
    assert made.most_proposed == 9
    assert made.parameters["ngram_simple_size_m"] == 9
    assert own("ngram-simple", **asked).flags == (
        "--spec", "ngram-simple", "--ngram-simple-size-m", "9",
    )  # fmt: skip


def test_what_is_left_is_recorded_with_the_help_s_default() -> None:
    made = llama("ngram-mod", n_max=16)
    assert made.parameters == {
        "ngram_mod_n_max": 16, "left.ngram_mod_n_match": "24", "left.ngram_mod_n_min": "48",
    }  # fmt: skip
    assert made.most_proposed == 16
    assert llama("ngram-mod").most_proposed == 64
    assert own("ngram-mod").parameters["left.ngram_mod_n_min"] == 48


def test_a_draft_model_stands_by_its_key() -> None:
    made = llama("draft-simple", "small", n_max=5, p_min=0.25)
    assert made.flags == (
        *("--spec-type", "draft-simple", "--spec-draft-model", "{draft}"),
        *("--spec-draft-n-max", "5", "--spec-draft-p-min", "0.25"),
    )
    assert (made.most_proposed, made.draft, made.not_run) == (5, "small", "")
    assert llama("draft-simple", "small").most_proposed == 3
    assert own("draft-simple", "small").flags[2:] == ("--draft-model", "{draft}")


def test_a_flag_that_the_help_lacks_is_the_reason() -> None:
    lacking = Help(help_text(frozenset({"missing-flag"})))
    made = llama_flags.method_identity(condition("ngram-simple", size_m=4), PLAN, lacking)
    assert "--spec-ngram-simple-size-m" in made.not_run
    assert "ngram_simple_size_m" in made.not_run
    assert "suffix" in llama("suffix").not_run
    assert (
        "--spec-draft-sampling" in llama("draft-simple", "small", draft_sampling="greedy").not_run
    )


def test_an_older_build_spells_it_differently() -> None:
    made = llama_flags.method_identity(condition("draft-simple", "small", n_max=4), PLAN, OLD)
    assert made.flags == ("--model-draft", "{draft}", "--draft-max", "4")
    assert "--spec-type" in made.not_run
    plain = llama_flags.method_identity(condition("none"), PLAN, OLD)
    assert (plain.flags, plain.not_run) == ((), "")


def test_a_build_where_a_draft_model_alone_drafts() -> None:
    words = "--draft-max N   most\n-md, --model-draft FNAME   a model\n"
    helped = Help(f"{words}--spec-type NAME [none | ngram - mod]   without a draft model\n")
    drafts = condition("draft-simple", "small", n_max=4)
    made = llama_flags.method_identity(drafts, PLAN, helped)
    assert (made.flags, made.not_run) == (("--model-draft", "{draft}", "--draft-max", "4"), "")
    plain = llama_flags.method_identity(condition("none"), PLAN, helped)
    assert (plain.flags, plain.not_run) == (("--spec-type", "none"), "")
    other = llama_flags.method_identity(condition("suffix"), PLAN, helped)
    assert "may not be `suffix`" in other.not_run


def test_a_method_that_slipstream_does_not_run() -> None:
    assert "draft-eagle3" in own("draft-eagle3", "small").not_run


@pytest.mark.parametrize(
    "made",
    [
        condition("ngram-simpel"),
        condition("none,ngram-mod"),
        condition("draft-simple"),
        condition("draft-simple", "large"),
        condition("ngram-simple", n_max=4, ngram_mod_n_max=3),
        condition("ngram-simple", size_m=4, ngram_simple_size_m=4),
    ],
)
def test_conditions_that_contradict_themselves(made: ConditionPlan) -> None:
    with pytest.raises(OptionError):
        llama_flags.method_identity(made, PLAN, HELP)
    with pytest.raises(OptionError):
        slipstream_flags.method_identity(made, PLAN, HELP)


def test_slipstream_refuses_values_out_of_bounds_and_foreign_keys() -> None:
    with pytest.raises(OptionError):
        own("ngram-simple", size_m=99999)
    with pytest.raises(OptionError, match="Did you mean"):
        own("suffix", threads_draft=2)


def test_most_proposed_is_unknown_where_a_part_is() -> None:
    assert most_proposed(("ngram-cache",), {}) == 8
    assert most_proposed(("ngram-mod", "ngram-cache"), {"ngram_mod_n_max": 4}) == 8
    assert most_proposed(("ngram-mod", "ngram-cache"), {}) == "unknown"
    assert methods_of(condition("ngram-mod, draft-simple", "small")) == (
        "ngram-mod",
        "draft-simple",
    )
    assert parameters_of(condition("ngram-mod", n_max=3)) == {"ngram_mod_n_max": 3}


@pytest.mark.parametrize(
    "flags", [("-m", "x"), ("--model=x",), ("--models-dir", "x"), ("--parallel", "2"), ("-md", "x")]
)
def test_a_plan_s_flags_may_not_say_what_the_lab_says(flags: tuple[str, ...]) -> None:
    with pytest.raises(OptionError, match="no"):
        llama_flags.common_flags(flags, HELP)


def test_a_plan_s_flags_must_be_in_the_help() -> None:
    with pytest.raises(OptionError, match="nearest"):
        llama_flags.common_flags(("--cache-typ-k", "f16"), HELP)


def test_common_flags_are_those_that_the_help_has() -> None:
    assert llama_flags.common_flags((), HELP) == (
        *("-m", "{target}", "-c", "{context}", "-np", "{slots}", "--no-ui", "--metrics"),
        *("--slots", "--cache-ram", "0", "-lv", "4"),
    )
    given = ("--cache-ram", "100", "-lv", "3")
    assert llama_flags.common_flags(given, HELP)[-4:] == given
    assert "--cache-ram" not in llama_flags.common_flags(given, HELP)[:-4]
