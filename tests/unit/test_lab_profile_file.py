"""``profile.toml``: what was adopted, read and applied by the server's own code."""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec

from lab_records import SUFFIX, manifest
from slipstream.lab.contract.manifest import Manifest, MethodIdentity
from slipstream.lab.contract.plan import Arrivals, Artifact
from slipstream.lab.judging.gate_result import GateResult
from slipstream.lab.judging.profile_file import profile_text
from slipstream.lab.judging.verdict import Verdict
from slipstream.options import SamplingOptions
from slipstream.server.order import Order
from slipstream.server.profile import Profile


def verdict(
    stratum: str = "chat", condition: str = "suffix", low: float = 1.2, **more: Any
) -> Verdict:
    time = GateResult(
        name="time",
        passed=True,
        observed=f"speed-up {low + 0.05:.2f}",
        limit="",
        values={"low": low, "pairs": 6.0},
    )
    made: dict[str, Any] = {
        "runtime": "own",
        "stratum": stratum,
        "condition": condition,
        "slots": 1,
        "word": "adopt",
        "reasons": (),
        "gates": (time,),
    }
    return Verdict(**{**made, **more})


def loaded(verdicts: list[Verdict], given: Manifest | None = None, **more: Any) -> Profile:
    return Profile.parse(profile_text(manifest() if given is None else given, verdicts, **more))


def order(workload: str | None) -> Order:
    return Order(prompt=[1], sampling=SamplingOptions(), workload=workload)


def test_the_server_applies_what_was_adopted() -> None:
    profile = loaded([verdict(), verdict("prose", word="reject")])
    changed, effect = profile.applied(order("chat"))
    assert effect.known
    assert changed.speculation is not None
    assert changed.speculation.methods == ("suffix",)
    assert changed.speculation.n_max == 16


def test_everything_else_is_none() -> None:
    profile = loaded([verdict(), verdict("prose", word="inconclusive")])
    for workload in (None, "prose", "unheard-of"):
        changed, effect = profile.applied(order(workload))
        assert changed.speculation is not None
        assert changed.speculation.methods == ()
        assert effect.workload == "default"
    assert list(profile.workloads) == ["chat"]


def test_nothing_adopted_is_a_profile_that_drafts_nothing() -> None:
    text = profile_text(manifest(), [verdict(word="reject")])
    assert tomllib.loads(text) == {"default": {"type": "none"}}
    assert "# chat: none (suffix reject)" in text


def test_the_header_binds_it() -> None:
    given = manifest()
    text = profile_text(given, [verdict()])
    head = text.partition("default =")[0]
    for part in (given.run, given.digest, "a processor", given.artifacts[0].sha256, "1 at a time"):
        assert part in head
    assert "slipstream serve target.gguf --profile profile.toml --parallel 1 --spec suffix" in head
    assert "# suffix at 1 slot(s): speed-up 1.25, 6 pairs" in text


def test_it_is_for_one_concurrency() -> None:
    given = manifest(slots=4)
    both = [verdict(), verdict(slots=4, stratum="prose")]
    assert list(loaded(both, given).workloads) == ["prose"]
    assert list(loaded(both, given, slots=1).workloads) == ["chat"]


def test_the_surest_gain_is_taken() -> None:
    other = msgspec.structs.replace(SUFFIX, condition="long", parameters={"n_max": 48})
    given = manifest(methods=[SUFFIX, other])
    profile = loaded([verdict(low=1.1), verdict(condition="long", low=1.3)], given)
    assert profile.workloads["chat"].n_max == 48


def test_parameters_of_the_server_become_its_command_line() -> None:
    method = msgspec.structs.replace(
        SUFFIX,
        parameters={
            "n_max": 8,
            "spec_draft_p_min": 0.4,
            "draft_scope": "request",
            "suffix_match": 3,
            "fixed": True,
            "left.suffix_factor": 4.0,
        },
    )
    text = profile_text(manifest(methods=[method]), [verdict()])
    rule = Profile.parse(text).workloads["chat"]
    assert (rule.n_max, rule.p_min, rule.scope) == (8, 0.4, "request")
    assert "--spec suffix --fixed --suffix-match 3\n" in text


def test_a_draft_model_is_named_for_the_server() -> None:
    method = MethodIdentity(
        condition="pair", stage="draft-simple", method="draft-simple", draft="small"
    )
    plan = {"drafts": {"small": Artifact(model="my models/small.gguf")}}
    text = profile_text(manifest(methods=[method], plan=plan), [verdict(condition="pair")])
    assert "--draft-model 'my models/small.gguf'" in text
    assert Profile.parse(text).workloads["chat"].type == ("draft-simple",)


def test_entries_that_need_different_servers_are_not_both_kept() -> None:
    short, long = (
        msgspec.structs.replace(SUFFIX, condition=f"match-{n}", parameters={"suffix_match": n})
        for n in (2, 5)
    )
    given = manifest(methods=[short, long])
    found = [verdict("chat", "match-2", 1.1), verdict("prose", "match-5", 1.4)]
    text = profile_text(given, found)
    assert list(Profile.parse(text).workloads) == ["prose"]
    assert "# chat: none (match-2 needs another suffix_match of the server)" in text
    again = profile_text(given, [*found, verdict("chat", "match-5", 1.05)])
    assert list(Profile.parse(again).workloads) == ["chat", "prose"]


def test_a_mix_holds_for_its_workloads_that_agree() -> None:
    given = manifest(plan={"arrivals": Arrivals(slots=4, mix={"chat": 1.0, "prose": 1.0})})
    alone = [verdict("chat"), verdict("prose", word="reject")]
    assert list(loaded([*alone, verdict("mix", slots=4)], given).workloads) == ["chat"]
    rejected = verdict("mix", slots=4, word="reject")
    assert list(loaded([*alone, rejected], given).workloads) == []


def test_other_runtimes_have_no_entry() -> None:
    assert loaded([verdict()], manifest(kind="llama-server")).workloads == {}


def test_hostile_names_stay_names() -> None:
    name = 'a]\n[workload."b"]\ntype = "suffix" # \x7f\u2028'
    given = msgspec.structs.replace(manifest(), run='r\ndefault = { type = "suffix" }')
    profile = loaded([verdict(name)], given)
    assert list(profile.workloads) == [name]
    assert profile.default.speculation.methods == ()


def test_the_same_verdicts_give_the_same_bytes() -> None:
    found = [verdict("prose", low=1.1), verdict("chat")]
    assert profile_text(manifest(), found) == profile_text(manifest(), found[::-1])
