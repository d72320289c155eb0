"""Gates: what passes, what fails, and what is not measurable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from lab_records import DIGESTS, PROMPTS, SUFFIX, Story, digest, manifest, observed, rolled_back
from slipstream.lab.contract.manifest import ArtifactIdentity, MethodIdentity
from slipstream.lab.contract.plan import Artifact, Rules, SamplingPlan, Tenants
from slipstream.lab.contract.records import (
    BlockRecord,
    Counts,
    Divergence,
    FindingRecord,
    Line,
    RequestRecord,
)
from slipstream.lab.evidence.definitions import paired_ratio
from slipstream.lab.judging.cells import Cell, Evidence
from slipstream.lab.judging.gate_result import GateResult
from slipstream.lab.judging.gates import GATES, gate_results
from slipstream.lab.judging.time_gate import decided

CELL = Cell("own", "suffix", "chat")
Changed = Callable[[int, str, str], Mapping[str, Any]]


def faster(turn: int, condition: str, _prompt: str) -> float:
    """By 25 %, with noise of 0.5 % that differs from turn to turn."""
    noise = 1 + 0.005 * ((turn * 7 + (condition == "suffix") * 3) % 5 - 2)
    return noise * (1.0 if condition == "none" else 0.8)


def gate(name: str, lines: list[Line], cell: Cell = CELL, **more: Any) -> GateResult:
    return GATES[name](Evidence(manifest(**more), lines), cell)


def changed(condition: str, prompt: str | None = None, **fields: Any) -> Changed:
    def change(_turn: int, name: str, of: str) -> Mapping[str, Any]:
        return fields if name == condition and prompt in (None, of) else {}

    return change


def test_an_output_of_a_disturbed_block_is_an_output() -> None:
    lost = Story(block=lambda _turn, _name: {"outcome": "inconclusive"})
    assert gate("output", lost.lines(2)).passed is True
    lost.changed = changed("suffix", ids_sha256=digest("another"))
    assert gate("output", lost.lines(2)).passed is False
    assert gate("time", lost.lines(2)).evidence == "no block of none counts"


def test_a_good_condition_passes_every_gate() -> None:
    lines = [*Story(seconds=faster).lines(6), *rolled_back()]
    results = gate_results(manifest(), lines, CELL)
    assert [r.name for r in results] == list(GATES)
    assert {r.name: r.passed for r in results} == dict.fromkeys(GATES, True)


def test_without_records_nothing_is_a_pass() -> None:
    results = {r.name: r.passed for r in gate_results(manifest(), [], CELL)}
    assert results.pop("pinned") is True
    assert results.pop("isolation") is True
    assert set(results.values()) == {None}


# Output


def diverged(cause: Any, gap: float | None = None, judged: Mapping[str, bool] | None = None) -> Any:
    where = Divergence(at=3, gap=gap, cause=cause)
    fields = {"ids_sha256": digest("another"), "verdict": "diverged", "divergence": where}
    return changed("suffix", PROMPTS[0], **fields, judged=judged or {})


@pytest.mark.parametrize("cause", ["defect", "unknown"])
def test_an_unexplained_divergence_fails(cause: str) -> None:
    made = gate("output", Story(changed=diverged(cause)).lines(5))
    assert made.passed is False
    assert f"{PROMPTS[0]} at 3: {cause}" in made.evidence


def test_an_explained_divergence_is_left_to_the_tasks_checks() -> None:
    assert gate("output", Story(changed=diverged("near-tie", 0.01)).lines(5)).passed is None

    def judged(good: bool) -> Changed:
        own = diverged("numeric path", 2.0, {"schema": good, "exact": False})

        def change(turn: int, name: str, prompt: str) -> Mapping[str, Any]:
            return own(turn, name, prompt) or {"judged": {"schema": True, "exact": True}}

        return change

    assert gate("output", Story(changed=judged(True)).lines(5)).passed is True
    assert gate("output", Story(changed=judged(False)).lines(5)).passed is False


def test_the_plans_tolerance_explains_a_recorded_gap() -> None:
    lines = Story(changed=diverged("unknown", 0.3)).lines(5)
    assert gate("output", lines).passed is False
    assert gate("output", lines, rules=Rules(tolerance_logit_gap=0.5)).passed is None


def test_the_runs_own_verdict_counts_where_there_are_no_digests() -> None:
    def fields(verdict: str) -> Changed:
        return lambda _turn, _name, _prompt: {"ids_sha256": "", "verdict": verdict}

    assert gate("output", Story(changed=fields("equal")).lines(5)).passed is True
    assert gate("output", Story(changed=fields("diverged")).lines(5)).passed is False
    assert gate("output", Story(changed=fields("")).lines(5)).passed is None


def test_digests_count_more_than_the_runs_own_verdict() -> None:
    liar = changed("suffix", ids_sha256=digest("another"), verdict="equal")
    assert gate("output", Story(changed=liar).lines(5)).passed is False


def test_a_prompt_that_was_never_compared_is_not_measurable() -> None:
    made = gate("output", Story(changed=changed("suffix", PROMPTS[2], error="broke")).lines(5))
    assert made.passed is None
    assert PROMPTS[2] in made.evidence


def test_the_rule_says_what_is_compared() -> None:
    lines = Story(changed=changed("suffix", ids_sha256=digest("x"))).lines(5)
    assert gate("output", lines, rules=Rules(comparison="text")).passed is True
    assert gate("output", lines).passed is False


def sampled(worse: int, better: int = 0, turns: int = 5) -> list[Line]:
    """Of the pairs of prompt and repeat so many in which one of the two fails its check."""

    def judged(turn: int, name: str, prompt: str) -> Mapping[str, Any]:
        number = turn * len(PROMPTS) + PROMPTS.index(prompt)
        lost = number < worse if name == "suffix" else worse <= number < worse + better
        return {"judged": {"schema": not lost}}

    return Story(stage="sampler", first_block=500, changed=judged).lines(turns)


def test_the_plans_sampler_is_judged_by_the_checks() -> None:
    plan = {"sampling": SamplingPlan(sampler={"temperature": 0.8})}
    greedy = Story().lines(5)
    assert gate("output", greedy, plan=plan).passed is None
    assert gate("output", [*greedy, *sampled(0)], plan=plan).passed is True
    assert gate("output", [*greedy, *sampled(2, 3)], plan=plan).passed is True
    assert gate("output", [*greedy, *sampled(3, 2)], plan=plan).passed is None
    assert gate("output", [*greedy, *sampled(12)], plan=plan).passed is False


# Time


def test_a_gain_is_shown_with_enough_pairs() -> None:
    made = gate("time", Story(seconds=faster).lines(6))
    assert made.passed is True
    assert made.values["ratio"] == pytest.approx(1.25, rel=0.03)
    assert 1 < made.values["low"] <= made.values["ratio"] <= made.values["high"]
    assert made.values["pairs"] == 6
    assert made.values["pairs_needed"] == 5


def test_four_pairs_never_pass() -> None:
    assert gate("time", Story(seconds=faster).lines(4)).passed is None


def test_without_noise_that_is_known_nothing_passes() -> None:
    story = Story(seconds=faster, changed=changed("none", PROMPTS[0], total_s=None))
    made = gate("time", story.lines(4))
    assert made.passed is None
    assert "noise unknown" in made.evidence


def test_less_than_the_margin_fails_however_sure_it_is() -> None:
    lines = Story(seconds=lambda _t, name, _p: 1.0 if name == "none" else 1 / 1.02).lines(8)
    made = gate("time", lines)
    assert made.passed is False
    assert made.observed.endswith("a gain of 5.0% is excluded")
    assert gate("time", lines, rules=Rules(margin=0.02)).passed is True


def noisy_loss(times: Sequence[float]) -> Story:
    """A condition whose pairs of blocks take so many times as long as ``none``."""

    def seconds(turn: int, name: str, _prompt: str) -> float:
        uneven = (1.0, 1.9, 0.8, 1.7, 0.9)[turn % 5]
        return uneven if name == "none" else uneven * times[turn]

    return Story(seconds=seconds)


def test_under_five_pairs_the_time_gate_says_nothing() -> None:
    slow = Story(seconds=lambda _turn, name, _prompt: 1.0 if name == "none" else 2.0)
    for pairs in (1, 2, 3, 4):
        made = gate("time", slow.lines(pairs), rules=Rules(slo_total_s=1.5))
        assert made.passed is None
        assert "fewer than 5 pairs say nothing" in made.evidence
    assert gate("time", slow.lines(5)).passed is False


def test_with_fewer_pairs_than_needed_a_loss_needs_interval_and_sign_test() -> None:
    lost = gate("time", noisy_loss((1.5, 2.5, 1.3, 3.0, 1.7)).lines(5))
    assert lost.values["pairs_needed"] > 5
    assert lost.passed is False
    assert lost.observed.endswith("slower by 5.0% and more")
    one_won = gate("time", noisy_loss((1.5, 2.5, 1.3, 3.0, 0.9)).lines(5))
    assert one_won.passed is None
    slight = noisy_loss((1.01, 1.02, 1.09, 1.01, 1.1))
    assert gate("time", slight.lines(5), rules=Rules(margin=0.02)).passed is None


@pytest.mark.parametrize(
    ("slow", "ratios"),
    [
        (8, [0.5] * 8 + [1.2] * 2),  # an interval below 0.95, eight of ten: p 0.055
        (59, [0.9] * 59 + [1.1] * 41),  # p 0.044, an interval that reaches 1
    ],
)
def test_interval_and_sign_test_must_agree(slow: int, ratios: list[float]) -> None:
    def answer(of: list[float], wanted: int) -> bool | None:
        made = paired_ratio(of, 0.95)
        assert made is not None
        return decided(of, made, Rules(), wanted, wanted)[0]

    shift = 1.05**2
    for wanted, values in ((1000, ratios), (5, [r * shift for r in ratios])):
        assert answer(values, wanted) is None
        assert answer(values[:slow], wanted) is False


def test_to_exclude_a_gain_takes_more_pairs_than_to_show_it() -> None:
    ratios = [0.99] * 8
    made = paired_ratio(ratios, 0.95)
    assert made is not None
    assert decided(ratios, made, Rules(), 5, 8) == (False, "a gain of 5.0% is excluded")
    for excluding in (9, None):
        assert decided(ratios, made, Rules(), 5, excluding) == (None, "")
    slow = paired_ratio([0.9] * 8, 0.95)
    assert slow is not None
    assert decided([0.9] * 8, slow, Rules(), 5, None)[0] is False


def test_few_pairs_have_extremes_and_no_interval() -> None:
    story = noisy_loss((1.25, 2.0, 1.6, 1.6, 1.6))
    one = gate("time", story.lines(1))
    assert one.observed == "speed-up 0.800 (1 pair)"
    assert one.evidence.startswith("fewer than 5 pairs say nothing; 1 pair, ")
    four = gate("time", story.lines(4))
    assert four.observed == "speed-up 0.625 (0.500 to 0.800, 4 pairs)"
    assert not {"low", "high"} & four.values.keys()
    assert (four.values["least"], four.values["most"]) == (0.5, 0.8)
    assert "[" in gate("time", story.lines(5)).observed


def test_noise_asks_for_more_pairs() -> None:
    noisy = Story(
        seconds=lambda turn, name, prompt: (
            faster(turn, name, prompt)
            * (1.0, 1.3, 0.8, 1.2, 0.9, 1.1)[(turn + (name == "suffix")) % 6]
        )
    )
    made = gate("time", noisy.lines(6))
    assert made.passed is None
    assert made.values["pairs_needed"] > 6


@pytest.mark.parametrize(
    ("rules", "passed"),
    [
        ({"slo_total_s": 0.9}, True),
        ({"slo_total_s": 0.7}, False),
        ({"slo_ttft_s": 0.09}, True),
        ({"slo_ttft_s": 0.07}, False),
        ({"slo_tok_s": 10.0}, True),
        ({"slo_tok_s": 20.0}, False),
    ],
)
def test_the_plans_slo_holds_for_medians(rules: dict[str, Any], passed: bool) -> None:
    lines = Story(seconds=faster).lines(6)
    assert gate("time", lines, rules=Rules(**rules)).passed is passed


def test_throughput_has_the_slo_under_load() -> None:
    lines = Story(seconds=faster, slots=4).lines(6)
    cell = Cell("own", "suffix", "chat", 4)
    made = gate("time", lines, cell, slots=4, rules=Rules(slo_tok_s=45.0))
    assert made.passed is True
    assert "throughput" in made.observed
    assert gate("time", lines, cell, slots=4, rules=Rules(slo_tok_s=60.0)).passed is False


# Tail


def test_p95_needs_twenty_requests() -> None:
    assert gate("tail", Story().lines(4)).passed is None
    assert gate("tail", Story().lines(5)).passed is True


def slow_tail(share: float) -> Story:
    def seconds(_turn: int, name: str, prompt: str) -> float:
        return share if name == "suffix" and prompt == PROMPTS[0] else 1.0

    return Story(seconds=seconds)


def test_a_longer_tail_fails() -> None:
    made = gate("tail", slow_tail(2.0).lines(6))
    assert made.passed is False
    assert made.values["p95_ratio"] == pytest.approx(2.0)
    assert gate("tail", slow_tail(0.5).lines(6)).passed is True


def test_a_tail_that_is_longer_now_and_then_is_not_measurable() -> None:
    def seconds(turn: int, name: str, _prompt: str) -> float:
        late = name == "suffix" and turn == 0
        return 5.0 if late else 1.0

    assert gate("tail", Story(seconds=seconds).lines(5)).passed is None


def test_of_few_blocks_no_tail_is_judged() -> None:
    prompts = tuple(f"chat/{i}" for i in range(12))
    story = slow_tail(2.0)
    story.prompts = prompts
    assert gate("tail", story.lines(4)).passed is None
    assert gate("tail", Story(prompts=prompts).lines(4)).passed is None
    assert gate("tail", story.lines(5)).passed is False


def test_a_tail_of_blocks_that_win_and_lose_is_not_failed_by_its_interval_alone() -> None:
    def seconds(turn: int, name: str, prompt: str) -> float:
        if prompt != PROMPTS[0]:
            return 0.1
        return (2.0, 2.1, 2.2, 2.0, 1.4)[turn] if name == "suffix" else 1.5

    lines = Story(seconds=seconds).lines(5)
    made = gate("tail", lines)
    assert made.values["p95_ratio_low"] > 1
    assert made.passed is None


def late(worse: int) -> Story:
    """The first turns of ``suffix`` have a request each that came to no end in time."""
    fields = {"error": "late", "timed_out": True}
    return Story(
        changed=lambda turn, name, prompt: (
            fields if name == "suffix" and prompt == PROMPTS[1] and turn < worse else {}
        )
    )


def test_a_timeout_may_be_the_machines_and_many_are_not() -> None:
    once = gate("tail", late(1).lines(8))
    assert once.passed is None
    assert "more timeouts than with none" in once.evidence
    assert gate("tail", late(4).lines(8)).passed is None
    assert gate("tail", late(5).lines(8)).passed is False


@pytest.mark.parametrize("fields", [{"error": "broke"}])
def test_more_failures_fail(fields: dict[str, Any]) -> None:
    def once(turn: int, name: str, prompt: str) -> Mapping[str, Any]:
        return fields if (turn, name, prompt) == (2, "suffix", PROMPTS[1]) else {}

    made = gate("tail", Story(changed=once).lines(6))
    assert made.passed is False
    assert "than with none" in made.evidence

    def both(turn: int, _name: str, prompt: str) -> Mapping[str, Any]:
        return fields if (turn, prompt) == (2, PROMPTS[1]) else {}

    assert gate("tail", Story(changed=both).lines(6)).passed is True


def test_a_block_that_failed_is_an_error() -> None:
    lines = Story(
        block=lambda turn, name: {"outcome": "failed"} if (turn, name) == (5, "suffix") else {}
    ).lines(6)
    assert gate("tail", lines).passed is False


# Memory, identities


def test_memory_stays_inside_the_margin() -> None:
    def grown(by: int | None) -> list[Line]:
        return Story(
            block=lambda turn, name: {
                "peak_rss_bytes": by and (1 << 30) + (by if name == "suffix" and turn == 1 else 0)
            }
        ).lines(5)

    rules = Rules(memory_margin_bytes=1000)
    assert gate("memory", grown(1000), rules=rules).passed is True
    assert gate("memory", grown(1001), rules=rules).passed is False
    assert gate("memory", grown(None), rules=rules).passed is None


TARGET = manifest().artifacts[0]


@pytest.mark.parametrize("part", ["sha256", "licence", "terms"])
def test_everything_is_pinned(part: str) -> None:
    lacking = msgspec.structs.replace(TARGET, **{part: "unknown"})
    made = gate("pinned", [], artifacts=[lacking])
    assert made.passed is None
    assert "of the target" in made.observed


def test_the_draft_model_is_pinned_too() -> None:
    drafting = MethodIdentity(
        condition="suffix", stage="draft-simple", method="draft-simple", draft="small"
    )
    plan = {"drafts": {"small": Artifact(model="small.gguf")}}
    more: dict[str, Any] = {"methods": [drafting], "plan": plan}
    assert gate("pinned", [], **more).passed is None
    draft = ArtifactIdentity(
        role="draft:small", file="small.gguf", sha256="c" * 64, licence="MIT", terms="free"
    )
    assert gate("pinned", [], artifacts=[TARGET, draft], **more).passed is True
    nameless = msgspec.structs.replace(draft, licence="unknown")
    assert gate("pinned", [], artifacts=[TARGET, nameless], **more).passed is None


def test_a_changed_identity_fails() -> None:
    found = FindingRecord(run="r", name="identity-changed", text="another digest", stops=True)
    assert gate("pinned", [found]).passed is False


# Rollback


def rollback(*again: Line, **more: Any) -> GateResult:
    return gate("rollback", [*Story().lines(5), *again], **more)


def test_the_kept_build_is_what_it_was() -> None:
    assert rollback(*rolled_back(1.05)).passed is True


def test_a_rollback_that_is_another_fails() -> None:
    assert rollback(*rolled_back(1.2)).passed is False
    assert rollback(*rolled_back(1.2), rules=Rules(drift_limit=0.3)).passed is True
    assert rollback(*rolled_back(ids_sha256=digest("another"))).passed is False
    assert rollback(*rolled_back(error="broke")).passed is False
    other = {f"sha256:{k}": v for k, v in {**DIGESTS, "target": "f" * 64}.items()}
    assert rollback(*rolled_back()[:-1], observed("rollback", other)).passed is False


def test_the_way_back_may_be_the_same_program() -> None:
    assert rollback(*rolled_back(), plan={"rollback": "same"}).passed is True
    assert rollback(*rolled_back(1.2), plan={"rollback": "same"}).passed is False


def test_noise_may_explain_a_rollback_that_took_another_time() -> None:
    def uneven(turn: int, condition: str, _prompt: str) -> float:
        return 1.0 + 0.1 * ((turn + (condition == "none")) % 2)

    noisy = Story(seconds=uneven).lines(5)
    made = gate("rollback", [*noisy, *rolled_back(1.25)])
    assert made.passed is None
    assert gate("rollback", [*noisy, *rolled_back(2.5)]).passed is False


def test_one_block_of_the_way_back_fails_only_beyond_all_that_none_took() -> None:
    def once_slow(turn: int, condition: str, _prompt: str) -> float:
        return 1.3 if turn == 2 and condition == "none" else 1.0 + 0.001 * turn

    uneven = Story(seconds=once_slow)
    assert gate("rollback", [*uneven.lines(8), *rolled_back(1.35)]).passed is None
    assert gate("rollback", [*uneven.lines(8), *rolled_back(1.5)]).passed is False
    assert gate("rollback", [*Story().lines(4), *rolled_back(1.5)]).passed is None


def test_a_disturbed_rollback_has_an_output_and_no_time() -> None:
    def disturbed(lines: list[Line]) -> list[Line]:
        lost = {"outcome": "inconclusive"}
        return [
            msgspec.structs.replace(x, **lost) if isinstance(x, BlockRecord) else x for x in lines
        ]

    assert rollback(*disturbed(rolled_back(3.0))).passed is None
    other = rolled_back(ids_sha256=digest("another"))
    assert rollback(*disturbed(other)).passed is False


def test_a_rollback_without_digests_is_not_measurable() -> None:
    assert rollback(*rolled_back()[:-1]).passed is None
    some = {"sha256:target": DIGESTS["target"]}
    assert rollback(*rolled_back()[:-1], observed("rollback", some)).passed is None


def test_without_a_kept_build_there_is_no_rollback() -> None:
    assert rollback().passed is None
    made = rollback(*rolled_back(), plan={"rollback": ""})
    assert made.passed is None
    assert "only measures drift" in made.evidence
    assert rollback(*rolled_back(), kind="openai").passed is None


# Isolation

TENANTS = {"tenants": Tenants(names=("red", "blue"))}


def of_method(method: str, kind: str = "slipstream", **parameters: Any) -> GateResult:
    named = msgspec.structs.replace(SUFFIX, method=method, parameters=parameters)
    return gate("isolation", [], methods=[named], kind=kind, plan=TENANTS)


def test_no_tenants_need_no_isolation() -> None:
    shared = msgspec.structs.replace(SUFFIX, parameters={"draft_scope": "all"})
    assert gate("isolation", [], methods=[shared]).passed is True


@pytest.mark.parametrize(
    ("method", "kind", "parameters", "passed"),
    [
        ("suffix", "slipstream", {}, True),
        ("suffix", "slipstream", {"draft_scope": "request"}, True),
        ("suffix", "slipstream", {"draft_scope": "all"}, False),
        ("ngram-cache", "slipstream", {"ngram_cache_dynamic": "file"}, False),
        ("ngram-mod", "llama-server", {}, False),
        ("ngram-simple,ngram-mod", "llama-server", {}, False),
        ("ngram-simple", "llama-server", {}, True),
        ("draft-simple", "llama-server", {}, True),
        ("ngram-mod", "openai", {}, None),
        ("draft-simple", "openai", {}, True),
        ("unheard-of", "llama-server", {}, None),
    ],
)
def test_a_pool_between_tenants_is_never_adopted(
    method: str, kind: str, parameters: dict[str, Any], passed: bool | None
) -> None:
    assert of_method(method, kind, **parameters).passed is passed


def test_the_scope_in_effect_counts_more_than_the_one_asked_for() -> None:
    told = observed("suffix", {"draft_scope": "all"})
    assert gate("isolation", [told], plan=TENANTS).passed is False


def isolation(alone: int, after: int) -> list[Line]:
    def blocks(repeat: int, accepted: int) -> list[Line]:
        story = Story(
            stage="isolation",
            slots=2,
            first_block=900 + 10 * repeat,
            block=lambda _turn, _name: {"stratum": "mix", "repeat": repeat},
            changed=lambda _turn, _name, _prompt: {
                "warm_up": True,
                "tenant": "blue",
                "counts": Counts(drafted=90, accepted=accepted, source="request"),
            },
        )
        return story.lines(1)

    return [*blocks(0, alone), *blocks(1, after)]


def test_the_probe_shows_what_nobody_tells() -> None:
    more: dict[str, Any] = {"plan": TENANTS, "kind": "openai"}
    assert gate("isolation", isolation(1, 9), **more).passed is False
    assert gate("isolation", isolation(1, 2), **more).passed is True
    assert gate("isolation", isolation(1, 9), plan=TENANTS).passed is False


def test_a_named_pool_fails() -> None:
    found = FindingRecord(run="r", name="shared-pool", text="one table", condition="suffix")
    assert gate("isolation", [found], plan=TENANTS).passed is False


def test_gates_read_records_only_through_the_evidence() -> None:
    """The same lines in another order of requests give the same answers."""
    lines = Story(seconds=faster).lines(6)
    requests = [x for x in lines if isinstance(x, RequestRecord)]
    others = [x for x in lines if not isinstance(x, RequestRecord)]
    shuffled = [*reversed(requests), *others]
    assert gate_results(manifest(), lines, CELL) == gate_results(manifest(), shuffled, CELL)
