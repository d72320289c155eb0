"""Statistics recomputed from a trace, the balance of time, and other policies over it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drafters_for_tests import HostileDrafter, MalformedDrafter, ScriptedDrafter, TestDrafter
from engines import greedy, named_drafters
from fake_model import fake_models
from slipstream.drafters.base import Drafter
from slipstream.engine.controller import DoublingController
from slipstream.engine.trace_format import End, EngineRecord, Record, RoundRecord
from slipstream.errors import OptionError, TraceError
from slipstream.measure import traces as traces_module
from slipstream.measure.balance import (
    Balance,
    Reference,
    parts_of_pass,
    summed,
    time_balance,
)
from slipstream.measure.trace_passes import Pass, passes
from slipstream.measure.trace_policies import POLICIES, policy_maker
from slipstream.measure.trace_replay import Outcome
from slipstream.measure.trace_tally import DrafterTally
from slipstream.measure.trace_times import TimeFit
from slipstream.measure.traces import (
    TraceReport,
    conditions,
    read_report,
    report_mapping,
    unfinished,
)
from slipstream.options import SpeculationOptions
from traces import a_round, changed, trace_engine, write

PROMPT = [1, 2, 3, 4, 5]
OTHER = [9, 8, 7]
TRUTH = [[*prompt, *greedy(prompt, 60)] for prompt in (PROMPT, OTHER)]


def merged(report: TraceReport) -> list[dict[str, DrafterTally]]:
    """The drafters of all conditions, cold and warm together."""
    found: dict[str, DrafterTally] = {}
    for condition in conditions(report):
        for name, tally in condition.drafters.items():
            found.setdefault(name, DrafterTally()).merge(tally)
    return [found]


def report_of(tmp_path: Path, records: Sequence[Record], policy: str | None = None) -> TraceReport:
    path = write(tmp_path / "t.jsonl", records)
    return read_report(path, None if policy is None else policy_maker(policy))


DRAFTERS: dict[str, Any] = {
    "none": lambda: (),
    "silent": TestDrafter,
    "true chains": lambda: ScriptedDrafter(TRUTH),
    "chains that go wrong": lambda: ScriptedDrafter(TRUTH, wrong_at=2),
    "trees": lambda: HostileDrafter(24, 5, TRUTH),
    "malformed": lambda: MalformedDrafter(24),
    "two": lambda: (HostileDrafter(24, 6, TRUTH), ScriptedDrafter(TRUTH)),
    "methods": lambda: named_drafters(
        ["ngram-simple", "ngram-mod"],
        SpeculationOptions(
            type=("ngram-simple", "ngram-mod"),
            ngram_simple_size_n=1,
            ngram_simple_size_m=4,
            ngram_mod_n_match=1,
            ngram_mod_n_min=1,
        ),
    ),
}


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("cancel_after", [0, 6])
def test_every_summary_equals_its_rounds(
    tmp_path: Path, kind: str, parallel: int, cancel_after: int
) -> None:
    records = trace_engine(
        DRAFTERS[kind](), [PROMPT, OTHER], parallel=parallel, cancel_after=cancel_after
    )
    report = report_of(tmp_path, records)
    assert [r.differences() for r in report.requests.values()] == [[], []]
    assert report.equal is True
    names = {name for request in report.requests.values() for name in request.recomputed()}
    ends = [record for record in records if isinstance(record, End)]
    left = set(ends[0].summary) - names
    recorded = {"seed", "warm", "reused_tokens", "not_reused", "queue_s"}
    recorded |= {"ttft_s", "total_s", "complete"}
    recorded |= {"verification", "lossless", "seed_exact", "output_valid"}
    assert left == recorded, "every other statistic is recomputed"
    [condition] = merged(report)
    for name, tally in condition.items():
        rounds = [r for r in records if isinstance(r, RoundRecord)]
        assert tally.verified == sum(r.methods.count(name) for r in rounds)
        assert tally.accepted == sum(tally.accepted_at.values())
        assert all(tally.accepted_at[d] <= tally.reached[d] for d in tally.accepted_at)


@pytest.mark.parametrize("sampling", [{"temperature": 1.0}, {"stop": ("xk",)}])
def test_sampling_and_stops(tmp_path: Path, sampling: dict[str, Any]) -> None:
    records = trace_engine(HostileDrafter(24, 5, TRUTH), [PROMPT], sampling=sampling)
    assert report_of(tmp_path, records).equal is True


def the_trace() -> list[Record]:
    return trace_engine(HostileDrafter(24, 5, TRUTH), [PROMPT])


def place_of(records: Sequence[Record], least: int = 1) -> int:
    """A round of which at least so many nodes were accepted, and none rejected emission."""
    return next(
        place
        for place, record in enumerate(records)
        if isinstance(record, RoundRecord) and len(record.path) >= least
    )


TAMPERED: dict[str, dict[str, Any]] = {
    "tested": {"tested": 99},
    "emitted": {"emitted": 0},
    "cut_for_time": {"cut_for_time": 1},
    "context": {"context": 3},
    "rejected_drafts": {"reasons": {"too long": 1}},
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_round_that_says_otherwise_is_seen(tmp_path: Path, name: str) -> None:
    records = the_trace()
    report = report_of(tmp_path, changed(records, place_of(records), **TAMPERED[name]))
    assert report.equal is False
    [request] = report.requests.values()
    assert any(name in difference for difference in request.differences())


SUMMARY_NAMES = [
    *("prompt_tokens", "emitted", "target_passes", "verification_steps", "drafted", "tested"),
    *("accepted", "discarded", "acceptance_rate", "tokens_per_pass", "mean_acceptance_length"),
    *("acceptance_at", "drafters", "never_fired", "never_asked", "cut_for_time", "rejected_drafts"),
    "decode_tok_s",
]


@pytest.mark.parametrize("name", SUMMARY_NAMES)
def test_a_summary_that_says_otherwise_is_seen(tmp_path: Path, name: str) -> None:
    records = the_trace()
    end = records[-1]
    assert isinstance(end, End)
    names = {key: ["x"] for key in ("drafters", "never_fired", "never_asked")}
    wrong = {"acceptance_at": [0.5], **names}.get(name, 12345)
    for value in (wrong, None):
        tampered = changed(records, -1, summary={**end.summary, name: value})
        if tampered[-1] != end:
            assert report_of(tmp_path, tampered).equal is False
    short = {key: value for key, value in end.summary.items() if key != name}
    report = report_of(tmp_path, changed(records, -1, summary=short))
    [request] = report.requests.values()
    assert [difference.split(":")[0] for difference in request.differences()] == [name]


def test_a_killed_run_has_nothing_to_compare(tmp_path: Path) -> None:
    report = report_of(tmp_path, the_trace()[:-1])
    assert report.equal is None
    assert list(unfinished(report)) == [0]
    assert report_of(tmp_path, the_trace()[:1]).equal is None


def test_ids_belong_to_one_request(tmp_path: Path) -> None:
    records = the_trace()
    with pytest.raises(TraceError, match="0 again"):
        report_of(tmp_path, [*records, records[-2]])


def test_a_trace_of_too_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = trace_engine(None, [PROMPT, OTHER], parallel=2)
    monkeypatch.setattr(traces_module, "MOST_REQUESTS", 1)
    with pytest.raises(TraceError, match="at most 1 requests"):
        report_of(tmp_path, records)


def test_a_report_is_plain_json(tmp_path: Path) -> None:
    report = report_of(tmp_path, the_trace(), "off")
    again = msgspec.json.decode(msgspec.json.encode(report_mapping(report)))
    assert again["equal"] is True
    assert again["requests"][0]["recomputed"]["drafted"] > 0
    assert again["conditions"][0]["drafters"]["hostile"]["by_position"]
    assert again["conditions"][0]["replay"]["rounds"] > 0
    assert again["conditions"][0]["memory"] == again["requests"][0]["memory"] == "cold"


# passes


def test_rounds_of_one_pass_are_joined() -> None:
    records = trace_engine(ScriptedDrafter(TRUTH), [PROMPT, OTHER], parallel=2)
    found = [item for item in passes(records) if isinstance(item, Pass)]
    assert sum(len(item.rounds) for item in found) == sum(
        isinstance(record, RoundRecord) for record in records
    )
    assert max(len(item.rounds) for item in found) == 2
    for item in found:
        assert {(r.engine, r.step) for r in item.rounds} == {(0, item.first.step)}
        assert item.first.pass_rows >= sum(r.rows for r in item.rounds)
    others = [item for item in passes(records) if not isinstance(item, Pass)]
    assert others == [record for record in records if not isinstance(record, RoundRecord)]


# times


def timed(rows: int, context: int, seconds: float, **changes: Any) -> Pass:
    nodes = rows - 1
    record = a_round(
        asked=(),
        tokens=tuple(range(10, 10 + nodes)),
        parents=tuple(range(-1, nodes - 1)),
        methods=("a",) * nodes,
        path=(),
        sampled=(3,),
        rejected=nodes > 0,
        tested=min(nodes, 1),
        emitted=1,
        rows=rows,
        pass_rows=rows,
        context=context,
        verify_s=seconds,
        draft_s=0.0,
        sample_s=0.001,
        commit_s=0.001,
    )
    return Pass((msgspec.structs.replace(record, **changes),))


def test_times_of_rows_are_recovered() -> None:
    def truth(rows: int, context: float) -> float:
        return 0.02 + 0.005 * rows + 1e-5 * context

    fit, chance = TimeFit(), random.Random(2)
    for _ in range(400):
        rows, context = chance.choice([1, 2, 4, 8]), chance.randrange(2000)
        fit.add(timed(rows, context, truth(rows, context)), drafting=True)
    times = fit.times()
    assert times is not None
    assert times.slope == pytest.approx(1e-5)
    for rows in (1, 2, 3, 4, 6, 8, 12):
        assert times(rows, 500) == pytest.approx(truth(rows, 500))


def test_more_rows_never_take_less_and_prompt_rows_are_left_out() -> None:
    fit = TimeFit()
    for rows, seconds in [(1, 0.03), (2, 0.02), (4, 0.05)]:
        fit.add(timed(rows, 0, seconds), drafting=True)
    fit.add(timed(8, 0, 9.0, prompt_rows=7), drafting=True)
    times = fit.times()
    assert times is not None
    assert times.base == pytest.approx({1: 0.025, 2: 0.025, 4: 0.05})
    assert TimeFit().times() is None


def test_plain_requests_give_the_plain_time() -> None:
    fit = TimeFit()
    for _ in range(8):
        fit.add(timed(1, 0, 0.02), drafting=False)
        fit.add(timed(1, 0, 0.03), drafting=True)
    times = fit.times()
    assert times is not None
    assert times(1, 0) == pytest.approx(0.02)


def test_the_balance_adds_up() -> None:
    reference = Reference("plain rounds", {1: 0.02}, 0.0, 0.002)
    accepted = timed(
        *(4, 0, 0.035),
        path=(0, 1),
        sampled=(10, 11, 3),
        emitted=3,
        draft_s=0.004,
        asked=a_round().asked,
        sample_s=0.002,
        commit_s=0.003,
    )
    balance = Balance()
    for made in (timed(1, 0, 0.02, draft_s=0.001), accepted, timed(8, 0, 9.0, prompt_rows=7)):
        for _, part in parts_of_pass(made):
            balance.add(part, reference)
    assert balance.plain_s == pytest.approx(4 * 0.022)
    assert balance.saved_s == pytest.approx(2 * 0.022)
    assert balance.draft_s == pytest.approx(0.001 + 0.004)
    assert balance.extra_rows_s == pytest.approx(0.015)
    assert balance.bookkeeping_s == pytest.approx(0.003)
    # what was spent beyond plain decoding, whichever way it is added up
    took = 0.02 + 0.001 + 0.002 + accepted.seconds
    assert balance.net_s == pytest.approx(took - balance.plain_s)
    assert balance.cost_percent == pytest.approx(100 * balance.net_s / 0.088)
    assert balance.passes == 2
    assert Balance().cost_percent is None


def test_the_parts_of_a_pass_are_the_whole(tmp_path: Path) -> None:
    """Sequences that share passes: their balances add up to the time of the passes."""
    records = trace_engine(DRAFTERS["methods"](), [PROMPT, OTHER], parallel=2)
    report = report_of(tmp_path, records)
    assert report.reference is not None
    whole = summed(report.balances.values())
    assert whole is not None
    pure = [item for item in passes(records) if isinstance(item, Pass) and item.pure]
    rows = [item.first.pass_rows - item.drafted for item in pure]
    assert max(rows) == 2
    spent = sum(item.seconds for item in pure)
    slow = sum(
        item.first.verify_s - report.reference(count, item.context)
        for item, count in zip(pure, rows, strict=True)
        if not item.drafted
    )
    assert whole.net_s == pytest.approx(spent - slow - whole.plain_s)
    assert whole.passes == sum(len(item.decoding) for item in pure)


def test_the_balance_of_a_run_is_that_of_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"spec": "ngram-mod", "ngram_mod_n_match": 2, "ngram_mod_n_min": 1}
    for number, with_plain in enumerate((False, True)):
        path = tmp_path / f"{number}.jsonl"
        model = fake_models(monkeypatch)(trace=path, fixed=True, **quick)
        done = model.complete("abab", max_tokens=60)
        off = {"spec": "none", "fixed": False, "ngram_mod_n_match": 24, "ngram_mod_n_min": 48}
        plain = model.complete("abab", max_tokens=60, **off).statistics.rounds if with_plain else ()
        expected = time_balance(done.statistics.rounds, plain)
        assert expected is not None
        report = read_report(path)
        [found] = [c.balance for c in conditions(report) if c.record.drafters]
        assert found.reference == expected.reference
        assert found.passes == expected.passes == len(done.statistics.rounds) - 1
        for name in ("plain_s", "draft_s", "extra_rows_s", "bookkeeping_s", "saved_s", "net_s"):
            # the slope is taken from other origins: a difference in rounding only
            assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-9), name
        assert done.statistics.accepted


# other policies


def replay_of(
    tmp_path: Path, drafter: Drafter | Sequence[Drafter], policy: str, **keywords: Any
) -> tuple[Outcome, list[RoundRecord]]:
    records = trace_engine(drafter, [PROMPT, OTHER], **keywords)
    report = report_of(tmp_path, records, policy)
    [outcome] = report.outcomes.values()
    rounds = [r for r in records if isinstance(r, RoundRecord)]
    pure = [r for r in rounds if not r.prompt and not r.prompt_rows]
    return outcome, pure


@pytest.mark.parametrize("kind", ["true chains", "chains that go wrong", "trees", "two"])
@pytest.mark.parametrize("parallel", [1, 2])
def test_the_recorded_policy_replays_as_it_was(tmp_path: Path, kind: str, parallel: int) -> None:
    replay, rounds = replay_of(tmp_path, DRAFTERS[kind](), "doubling", parallel=parallel)
    assert replay.rounds == len(rounds)
    assert replay.censored == 0
    assert replay.drafted == sum(len(r.tokens) for r in rounds)
    assert replay.accepted == sum(len(r.path) for r in rounds)
    assert replay.tokens == replay.recorded_tokens
    assert replay.seconds == pytest.approx(replay.recorded_seconds)


def test_without_drafts_every_pass_gives_one_token(tmp_path: Path) -> None:
    replay, rounds = replay_of(tmp_path, ScriptedDrafter(TRUTH), "off")
    assert (replay.tokens, replay.drafted, replay.accepted) == (len(rounds), 0, 0)
    assert replay.censored == 0
    # the fake program takes a millisecond per row
    beside = sum(r.draft_s + r.sample_s + r.commit_s for r in rounds)
    asked = sum(a.seconds for r in rounds for a in r.asked)
    assert replay.seconds == pytest.approx(0.001 * len(rounds) + beside - asked, rel=0.05)
    assert replay.tok_s is not None
    assert replay.recorded_tok_s is not None


def test_fewer_nodes_than_recorded(tmp_path: Path) -> None:
    controller = DoublingController(first=15, most=15)
    replay, rounds = replay_of(tmp_path, ScriptedDrafter(TRUTH), "fixed:2", controller=controller)
    expected = [min(2, len(r.path)) for r in rounds]
    assert replay.drafted == sum(min(2, len(r.tokens)) for r in rounds)
    assert replay.accepted == sum(expected)
    assert replay.tokens == sum(expected) + len(rounds)
    assert replay.censored == 0


def test_more_nodes_than_recorded_are_censored(tmp_path: Path) -> None:
    controller = DoublingController(first=2, most=2)
    drafter = ScriptedDrafter(TRUTH, length=2)
    replay, rounds = replay_of(tmp_path, drafter, "fixed:5", controller=controller)
    filled = [r for r in rounds if r.asked and len(r.asked[0].tokens) >= r.asked[0].cap]
    assert replay.censored == sum(r.nodes > 2 for r in filled) > 5
    assert replay.accepted == sum(len(r.path) for r in rounds)


def test_what_was_proposed_and_not_verified_is_known(tmp_path: Path) -> None:
    controller = DoublingController(first=2, most=2)
    drafter = ScriptedDrafter(TRUTH, length=8)  # whatever was asked
    replay, rounds = replay_of(tmp_path, drafter, "fixed:5", controller=controller)
    assert replay.censored == 0
    assert replay.accepted == sum(min(5, r.nodes) for r in rounds if r.nodes > 0)
    assert replay.accepted > sum(len(r.path) for r in rounds)


def test_a_drafter_that_was_not_asked_is_censored(tmp_path: Path) -> None:
    drafters = (ScriptedDrafter(TRUTH, wrong_at=0), HostileDrafter(24, 1))
    replay, rounds = replay_of(tmp_path, drafters, "doubling")
    assert replay.censored == 0
    records: list[Record] = trace_engine(drafters, [PROMPT])
    engine = next(r for r in records if isinstance(r, EngineRecord))
    place = records.index(engine)
    swapped = changed(records, place, drafters=engine.drafters[::-1])
    [outcome] = report_of(tmp_path, swapped, "doubling").outcomes.values()
    assert outcome.censored > 0
    assert rounds


@pytest.mark.parametrize("text", ["fastest", "fixed", "fixed:0", "fixed:x", "off:3", "doubling:"])
def test_policies_that_do_not_exist(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionError):
        report_of(tmp_path, the_trace(), text)


def test_every_policy_has_its_form() -> None:
    for name, policy in POLICIES.items():
        assert policy.form.partition(":")[0] == name
        assert policy_maker(policy.form.replace("N", "3"))(["suffix"]) is not None


# a model


def test_threads_and_conditions_share_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    model = fake_models(monkeypatch)(parallel=3, trace=path)
    quick = {"ngram_mod_n_match": 2, "ngram_mod_n_min": 1}
    options: list[dict[str, Any]] = [
        {},
        {"spec": "ngram-mod", **quick},
        {"spec": "ngram-mod", **quick, "fixed": True},
        {"spec": "ngram-mod", **quick, "draft_scope": "request"},
    ]
    work = [(text, chosen) for text in ("abab", "bcd", "xwxw") for chosen in options]
    with ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(model.complete, t, max_tokens=30, **chosen) for t, chosen in work]
        for run in runs:
            run.result(timeout=300)
    model.forget()
    model.complete("abab", max_tokens=30, **options[1])
    report = read_report(path, policy_maker("off"))
    assert report.equal is True
    assert len(report.requests) == len(work) + 1
    assert len(report.engines) == len(options) + 1
    joined = conditions(report)
    assert {c.name for c in joined} == {"none", "ngram-mod", "ngram-mod #2", "ngram-mod #3"}
    assert len({(c.name, c.memory) for c in joined}) == len(joined)
    assert sum(c.requests for c in joined) == len(work) + 1
    last = report.engines[max(report.engines)].options
    alone = [r for r in report.requests.values() if report.engines[r.engine].options == last]
    assert len({r.engine for r in alone}) == 2
    assert {r.memory for r in alone} == {"cold", "warm"}
    for condition in joined:
        if condition.record.options == last:
            own = [r for r in alone if r.memory == condition.memory]
            [tally] = condition.drafters.values()
            assert condition.requests == len(own) > 0
            assert tally.proposed == sum(r.tallies["ngram-mod"].proposed for r in own)
            reached = sum((r.tallies["ngram-mod"].reached for r in own), Counter())
            assert tally.reached == reached
            balances = [b for r in own if (b := report.balances.get(r.sequence))]
            assert condition.balance.plain_s == pytest.approx(sum(b.plain_s for b in balances))
    drafting = [r for r in report.requests.values() if r.drafters]
    rounds = sum(outcome.rounds for outcome in report.outcomes.values())
    assert 0 < rounds <= sum(r.rounds - 1 for r in drafting)
    assert rounds == sum(condition.outcome.rounds for condition in joined)
    assert [c.outcome.rounds for c in joined if c.name == "none"] == [0]
