"""Profile files: rules, limits, echoes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slipstream.errors import OptionError
from slipstream.options import SamplingOptions
from slipstream.server.order import Order
from slipstream.server.profile import MOST_PROFILE_BYTES, Profile, Rule
from slipstream.server.wire import Speculation

ROOT = Path(__file__).resolve().parents[2]
TEXT = """
default = { type = "none", max_tokens = 100 }
[workload.code_edit]
type = "suffix,ngram-mod"
n_max = 24
n_min = 2
p_min = 0.25
scope = "request"
max_tokens = 50
deadline_s = 2.5
[workload."two words"]
type = ["suffix"]
"""


def order(max_tokens: int = 10, **fields: object) -> Order:
    return Order([1], SamplingOptions(max_tokens=max_tokens), **fields)  # type: ignore[arg-type]


def test_a_tag_gets_its_rule() -> None:
    assert Profile.parse(TEXT).speculation("code_edit") == Speculation(
        methods=("suffix", "ngram-mod"), n_max=24, n_min=2, p_min=0.25, scope="request"
    )
    assert Profile.parse(TEXT).speculation("two words").methods == ("suffix",)


@pytest.mark.parametrize("tag", [None, "", "Code_edit", "workload", "code_edit "])
def test_without_a_known_tag_the_default_runs(tag: str | None) -> None:
    effect = Profile.parse(TEXT).in_effect(tag)
    assert effect.echo() == {"workload": "default", "workload_known": False}
    assert effect.rule.speculation.methods == ()


def test_a_known_tag_is_echoed() -> None:
    profile = Profile.parse(TEXT)
    assert profile.in_effect("code_edit").echo()["workload_known"] is True
    assert profile.in_effect("default").echo() == {"workload": "default", "workload_known": True}


def test_an_empty_profile_drafts_nothing() -> None:
    assert Profile.parse("") == Profile()
    assert Profile().speculation("anything") == Speculation(methods=())


@pytest.mark.parametrize(
    ("tag", "asked", "given"),
    [("code_edit", 10, 10), ("code_edit", 60, 50), ("code_edit", -1, 50), (None, 1000, 100)],
)
def test_a_rule_caps_the_tokens(tag: str | None, asked: int, given: int) -> None:
    changed, _ = Profile.parse(TEXT).applied(order(asked, workload=tag))
    assert changed.sampling.max_tokens == given


@pytest.mark.parametrize(("asked", "given"), [(None, 2.5), (9.0, 2.5), (1.0, 1.0)])
def test_the_nearer_deadline_counts(asked: float | None, given: float) -> None:
    changed, _ = Profile.parse(TEXT).applied(order(workload="code_edit", deadline_s=asked))
    assert changed.deadline_s == given


def test_what_a_request_says_of_speculation_stays() -> None:
    own = Speculation(methods=("ngram-simple",))
    changed, effect = Profile.parse(TEXT).applied(order(500, workload="code_edit", speculation=own))
    assert changed.speculation == own
    assert changed.sampling.max_tokens == 50
    assert effect.workload == "code_edit"


def test_an_order_within_its_limits_is_only_given_the_method() -> None:
    asked = order(workload="two words")
    changed, _ = Profile.parse(TEXT).applied(asked)
    assert changed.sampling is asked.sampling
    assert changed.deadline_s is None
    assert changed.speculation == Speculation(methods=("suffix",))


def test_an_empty_profile_says_nothing() -> None:
    assert not Profile.parse("# nothing\n")
    assert Profile.parse(TEXT)
    assert Profile.parse("default = { max_tokens = 5 }")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("defualt = {}", "Did you mean `default`"),
        ("[workloads.a]", "Did you mean `workload`"),
        ("default = { n_mx = 3 }", "Did you mean `n_max`"),
        ('[workload.a]\ntpye = "suffix"', "Did you mean `type`"),
        ('[workload.a]\ntype = "sufix"', "Did you mean `suffix`"),
        ('[workload.a]\ntype = ["none", "suffix"]', "none or some drafting methods"),
        ("[workload.a]\nn_max = -1", "at least 0"),
        ("[workload.a]\nn_max = true", "a whole number"),
        ("[workload.a]\nn_max = 3\nn_min = 4", "`n_min` at most `n_max`"),
        ("[workload.a]\nmax_tokens = 0", "at least 1"),
        ("[workload.a]\ndeadline_s = 0", "above 0"),
        ("[workload.a]\ndeadline_s = inf", "at most"),
        ("[workload.a]\ndeadline_s = nan", "deadline_s"),
        ("[workload.a]\np_min = 1.5", "at most 1"),
        ('[workload.a]\nscope = "world"', "one of request, session, all"),
        ("[workload.a]\nfixed = true", "belongs to the server"),
        ("[workload.a]\nngram_mod_n_match = 9", "belongs to the server"),
        ("[workload.default]", "beside `workload`"),
        ("workload = 3", "to be a table"),
        ("[workload]\na = 3", "to be a table"),
        ("default = 3", "to be a table"),
        ("default = {", "a profile in TOML"),
        ("a = " + "[" * 5000, "a profile in TOML"),
    ],
)
def test_a_mistake_is_named(text: str, found: str) -> None:
    with pytest.raises(OptionError, match=re.escape(found)):
        Profile.parse(text)


def test_the_table_at_fault_is_named() -> None:
    with pytest.raises(OptionError, match=re.escape("in `workload.b`")):
        Profile.parse("[workload.a]\nn_max = 2\n[workload.b]\nn_max = -2")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(TEXT)
    assert Profile.load(path) == Profile.parse(TEXT)
    assert Profile.load(str(path)) == Profile.parse(TEXT)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"#" * (MOST_PROFILE_BYTES + 1)])
def test_what_is_no_profile_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "profile.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=re.escape("profile.toml")):
        Profile.load(path)


def test_methods_that_are_not_offered_are_named_with_their_reason() -> None:
    profile = Profile.parse(TEXT)
    offered = {"offered": True}
    profile.require_offered({"suffix": offered, "ngram-mod": offered})
    without = {"suffix": offered, "ngram-mod": {"offered": False, "reason": "no table"}}
    with pytest.raises(OptionError, match=re.escape("`ngram-mod`: no table")):
        profile.require_offered(without)
    with pytest.raises(OptionError, match="not among the methods"):
        profile.require_offered({"ngram-mod": offered})


def test_auto_is_left_to_the_server() -> None:
    profile = Profile.parse('default = { type = "auto", n_max = 5 }')
    profile.require_offered({})
    assert profile.speculation(None) == Speculation(methods=("auto",), n_max=5)


def test_the_example_is_the_page_and_loads() -> None:
    example = (ROOT / "examples" / "profile.toml").read_text()
    page = (ROOT / "docs" / "profile.md").read_text()
    [shown] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert Profile.parse(shown) == Profile.load(ROOT / "examples" / "profile.toml")
    assert Profile.parse(example).default == Rule()
    for name in Rule.__struct_fields__:
        assert f"`{name}`" in page
