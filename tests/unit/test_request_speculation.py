"""What a request chooses of its engine's drafters, and what it forbids them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from draft_models import fake_draft_simple, recorder_of
from drafters_for_tests import ScriptedDrafter, TestDrafter
from engines import check_counts, drain, fake_engine, greedy, joined, run_all
from fake_program import FakeProgram
from slipstream.drafters import among
from slipstream.drafters.base import Draft, DraftRequest
from slipstream.engine.controller import DoublingController
from slipstream.engine.drafts import likely, long_enough
from slipstream.engine.engine import Engine
from slipstream.engine.sequence import Request, Speculation
from slipstream.errors import OptionError
from slipstream.options import DraftScope, SamplingOptions
from slipstream.verify.rejection import Rejection
from slipstream.verify.synthetic import Synthetic
from structured_for_tests import FIXED, Job, json_engine

PROMPT = [1, 2, 3, 4, 5]
TRUTH = [*PROMPT, *greedy(PROMPT, 60)]


def request(speculation: Speculation | None = None, count: int = 30, **keywords: Any) -> Request:
    options = SamplingOptions(seed=1, max_tokens=count)
    return Request(PROMPT, options, speculation=speculation, **keywords)


class Named(TestDrafter):
    """Proposes the truth, with estimates."""

    def __init__(self, name: str, length: int = 8, estimate: float | None = None) -> None:
        super().__init__()
        self.name = name
        self.length = length
        self.estimate = estimate
        self.asked: list[DraftRequest] = []

    def propose(self, request: DraftRequest) -> Draft:
        self.asked.append(request)
        start = len(request.tokens)
        tokens = TRUTH[start : start + self.length]
        estimates = [] if self.estimate is None else [self.estimate**i for i in range(len(tokens))]
        return Draft.chain(tokens, self.name, estimates)


def engine_of(*names: str, **keywords: Any) -> tuple[Engine, dict[str, Named]]:
    drafters = {name: Named(name) for name in names}
    fixed = DoublingController(fixed=True)
    return fake_engine(list(drafters.values()), controller=fixed, **keywords), drafters


# who drafts


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        (["suffix"], ("suffix",)),
        (["draft-simple", "suffix"], ("suffix", "draft-simple")),
        (["auto"], ("suffix", "draft-simple")),
        (["auto", "ngram-mod"], ("ngram-mod", "suffix", "draft-simple")),
        (["none"], ()),
        ([], ()),
        (["none", "none"], ()),
        (["suffix", "suffix"], ("suffix",)),
    ],
)
def test_names_among_those_at_work(methods: list[str], expected: tuple[str, ...]) -> None:
    assert among(methods, ("ngram-mod", "suffix", "draft-simple")) == expected


def test_auto_is_what_there_is_of_it() -> None:
    assert among(["auto"], ("ngram-mod", "suffix")) == ("suffix",)
    assert among(["auto"], ("draft-simple",)) == ("draft-simple",)
    with pytest.raises(OptionError, match="none, ngram-mod"):
        among(["auto"], ("ngram-mod",))


@pytest.mark.parametrize("methods", [["sufix"], ["medusa"], ["suffix", "x" * 10_000_000], [""]])
def test_a_method_that_the_engine_lacks_is_refused(methods: list[str]) -> None:
    engine, _ = engine_of("suffix", "mine")
    with pytest.raises(OptionError, match="none, suffix, mine, auto") as caught:
        engine.submit(request(Speculation(methods=methods)))
    assert len(str(caught.value)) < 400
    assert not engine.busy


MALFORMED: dict[str, Speculation] = {
    "none beside others": Speculation(methods=("none", "suffix")),
    "a text": Speculation(methods="suffix"),
    "no text": Speculation(methods=(1,)),  # type: ignore[arg-type]
    "no list": Speculation(methods=7),  # type: ignore[arg-type]
    "many names": Speculation(methods=("suffix",) * 65),
    "n_max below 0": Speculation(n_max=-1),
    "n_max too large": Speculation(n_max=1025),
    "n_max no number": Speculation(n_max="3"),  # type: ignore[arg-type]
    "n_max true": Speculation(n_max=True),
    "n_min below 0": Speculation(n_min=-1),
    "n_min too large": Speculation(n_min=1025),
    "n_min above n_max": Speculation(n_max=3, n_min=4),
    "n_min fractional": Speculation(n_min=1.5),  # type: ignore[arg-type]
    "p_min below 0": Speculation(p_min=-0.1),
    "p_min above 1": Speculation(p_min=1.1),
    "p_min no number": Speculation(p_min=float("nan")),
    "p_min a text": Speculation(p_min="0.5"),  # type: ignore[arg-type]
    "no scope": Speculation(scope="key"),  # type: ignore[arg-type]
    "a wider scope": Speculation(scope="all"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_choice_is_refused(kind: str) -> None:
    engine, drafters = engine_of("suffix")
    with pytest.raises(OptionError):
        engine.submit(request(MALFORMED[kind]))
    assert not engine.busy
    assert not drafters["suffix"].opened


@pytest.mark.parametrize("deadline", [0, -1.0, float("nan"), float("inf"), "5", True])
def test_a_deadline_that_is_none_is_refused(deadline: Any) -> None:
    with pytest.raises(OptionError, match="deadline_s"):
        fake_engine().submit(request(deadline_s=deadline))


def test_only_the_chosen_drafters_hear_of_a_request() -> None:
    engine, drafters = engine_of("ngram-mod", "suffix", "draft-simple", parallel=4, scope="request")
    choices = [None, ("suffix",), ("draft-simple", "ngram-mod"), ()]
    wanted = [None if names is None else Speculation(methods=names) for names in choices]
    outputs = run_all(engine, [request(one) for one in wanted])
    assert [output.statistics.drafters for output in outputs] == [
        ("ngram-mod", "suffix", "draft-simple"),
        ("suffix",),
        ("ngram-mod", "draft-simple"),
        (),
    ]
    told = {"ngram-mod": [0, 2], "suffix": [0, 1], "draft-simple": [0, 2]}
    for name, sequences in told.items():
        drafter = drafters[name]
        assert drafter.opened == sequences
        assert sorted(drafter.closed) == sequences
        assert sorted(drafter.outcomes) == sorted(drafter.positions) == sequences
        assert sorted(map(str, drafter.forgotten)) == [f"request {i}" for i in sequences]
        assert {asked.sequence for asked in drafter.asked} <= set(sequences)
    for output in outputs:
        assert output.ids == TRUTH[5:35]
        check_counts(output)
        methods = {name for r in output.statistics.rounds for name in (*r.asked, *r.drafted_by)}
        assert methods <= set(output.statistics.drafters)
    assert [bool(output.statistics.accepted) for output in outputs] == [True, True, True, False]


def test_a_drafter_that_fails_for_one_choice_is_lost_by_it_alone() -> None:
    class Failing(Named):
        def observe(self, sequence: int, outcome: Any) -> None:
            if sequence == 0:
                raise OptionError("a", "b", "c")
            super().observe(sequence, outcome)

    failing = Failing("suffix")
    engine = fake_engine([failing, Named("mine")], parallel=2)
    outputs = run_all(engine, [request(), request(Speculation(methods=("suffix",)))])
    assert [output.ids for output in outputs] == [TRUTH[5:35]] * 2
    assert outputs[1].statistics.rejected_drafts == {}
    assert outputs[1].statistics.accepted > 10


# how much


def test_n_max_bounds_the_tokens_on_a_path() -> None:
    for n_max in (1, 2, 5):
        program = FakeProgram()
        engine, drafters = engine_of("suffix", program=program)
        [output] = run_all(engine, [request(Speculation(n_max=n_max))])
        assert output.ids == TRUTH[5:35]
        check_counts(output)
        assert max(len(step.sequences) for step in program.steps[1:]) == n_max + 1
        assert {asked.n_max for asked in drafters["suffix"].asked} <= set(range(1, n_max + 1))


def test_no_token_on_a_path_is_no_drafting() -> None:
    engine, drafters = engine_of("suffix")
    for methods in (None, ("suffix",)):
        [output] = run_all(engine, [request(Speculation(methods=methods, n_max=0))])
        assert output.ids == TRUTH[5:35]
        assert output.statistics.drafters == ()
    assert not drafters["suffix"].opened


def test_a_proposal_that_is_too_short_is_dropped_with_a_reason() -> None:
    engine, drafters = engine_of("suffix", "mine")
    drafters["suffix"].length = 3
    [output] = run_all(engine, [request(Speculation(n_min=4), 28)])  # 1 + 3 times 8 + 1
    assert output.ids == TRUTH[5:33]
    check_counts(output)
    statistics = output.statistics
    short = statistics.rejected_drafts["suffix: a proposal shorter than n_min"]
    assert short == sum("suffix" in r.asked for r in statistics.rounds) > 2
    assert {name for r in statistics.rounds for name in r.drafted_by} == {"mine"}
    assert all(r.drafted >= 4 or not r.drafted for r in statistics.rounds)
    assert {asked.n_min for asked in drafters["mine"].asked} == {4}


def test_nodes_that_are_unlikely_are_not_verified() -> None:
    drafter = Named("suffix", 8, 0.5)
    engine = fake_engine(drafter, controller=DoublingController(fixed=True))
    [output] = run_all(engine, [request(Speculation(p_min=0.25))])
    assert output.ids == TRUTH[5:35]
    assert {r.drafted for r in output.statistics.rounds[1:-1]} == {3}  # 1, 0.5, 0.25
    assert {asked.p_min for asked in drafter.asked} == {0.25}
    [silent] = run_all(engine, [request(Speculation(p_min=0.25, n_min=4))])
    assert silent.statistics.drafted == 0
    drafter.estimate = None
    [stated_nothing] = run_all(engine, [request(Speculation(p_min=1.0))])
    assert stated_nothing.statistics.drafted > 10


TREE = Draft((1, 2, 3, 4, 5, 6), (-1, -1, 0, 1, 2, -1), ("a",) * 6, (0.9, 0.2, 0.6, 0.9, 0.1, 0.5))


@pytest.mark.parametrize(
    ("p_min", "spared", "drawn", "tokens"),
    [
        (0.0, 0, False, (1, 2, 3, 4, 5, 6)),
        (0.1, 0, True, (1, 2, 3, 4, 5, 6)),
        (0.15, 0, False, (1, 2, 3, 4, 6)),
        (0.3, 0, False, (1, 3, 6)),
        (0.3, 0, True, (1, 3)),  # of drawn siblings the later ones go too
        (0.3, 1, True, (1, 2, 3, 4, 6)),
        (0.3, 3, True, (1, 2, 3, 4, 5, 6)),
        (0.95, 0, False, ()),
    ],
)
def test_what_an_estimate_leaves(
    p_min: float, spared: int, drawn: bool, tokens: tuple[int, ...]
) -> None:
    left = likely(TREE, p_min, spared=spared, drawn=drawn)
    assert left.tokens == tokens
    assert len(left.methods) == len(left.probabilities) == len(tokens)
    for node, parent in enumerate(left.parents):
        above = TREE.parents[TREE.tokens.index(left.tokens[node])]
        assert parent == above == -1 or left.tokens[parent] == TREE.tokens[above]


def test_the_longest_path_counts() -> None:
    assert long_enough(TREE, 3)
    assert not long_enough(TREE, 4)
    assert long_enough(Draft(), 4)
    assert long_enough(Draft.chain((1,), "a"), 1)


def test_a_draft_model_stops_where_nothing_would_be_verified() -> None:
    def rows(p_min: float, branches: int) -> tuple[int, Draft]:
        drafter = fake_draft_simple(FakeProgram(), n_max=6, draft_branches=branches)
        drafter.open(0, [], "")
        [draft] = drafter.draft([DraftRequest(0, PROMPT, 24, p_min=p_min)])
        return len(recorder_of(drafter).histories), draft

    for branches in (1, 3):
        many, whole = rows(0.0, branches)
        few, some = rows(0.4, branches)
        assert len(PROMPT) <= few < many
        assert some.tokens == likely(whole, 0.4, spared=0, drawn=False).tokens or branches > 1
        assert all(estimate >= 0.4 for estimate in some.probabilities)
        none, nothing = rows(1.0, branches)
        assert (none, len(nothing)) == (len(PROMPT), 0)


def test_a_draft_model_is_not_run_for_fewer_tokens_than_wanted() -> None:
    drafter = fake_draft_simple(FakeProgram(), n_max=6)
    drafter.open(0, [], "")
    assert drafter.draft([DraftRequest(0, PROMPT, 3, n_min=4)]) == [Draft()]
    assert drafter.draft([DraftRequest(0, PROMPT, 24, n_min=7)]) == [Draft()]
    assert recorder_of(drafter).rows == []


def test_limits_of_one_request_are_not_those_of_another() -> None:
    drafter = fake_draft_simple(FakeProgram(), n_max=4, draft_branches=1)
    wanted = [None, Speculation(n_max=1), Speculation(p_min=1.0), Speculation(n_min=4)]
    engine = fake_engine(drafter, parallel=4, controller=DoublingController(fixed=True))
    outputs = run_all(engine, [request(one) for one in wanted])
    longest = [max(r.drafted for r in output.statistics.rounds) for output in outputs]
    assert longest == [4, 1, 0, 4]
    assert {r.drafted for r in outputs[3].statistics.rounds} == {0, 4}
    assert [output.ids for output in outputs] == [TRUTH[5:35]] * 4


# grammars and verifiers


@pytest.mark.parametrize("methods", [(), ("none",)])
def test_what_a_grammar_dictates_is_not_drafted_either(methods: Sequence[str]) -> None:
    job = Job([11], {"json_schema": FIXED})
    engine = json_engine(TestDrafter(), parallel=2)
    asked = job.request(max_tokens=60)
    plain = Request(
        asked.prompt,
        asked.sampling,
        constraint=asked.constraint,
        speculation=Speculation(methods=methods),
    )
    dictated, none = run_all(engine, [asked, plain])
    assert dictated.ids == none.ids
    assert dictated.statistics.accepted > 10
    assert none.statistics.drafted == 0
    assert all(not r.asked for r in none.statistics.rounds)


def test_nothing_drafted_is_plain_decoding_whatever_the_rule() -> None:
    options = SamplingOptions(temperature=0.9, seed=5, max_tokens=20)
    [plain] = run_all(fake_engine(), [Request(PROMPT, options)])
    for verifier in (Rejection(), Synthetic((0.5,))):
        engine = fake_engine(ScriptedDrafter([TRUTH]), verifier=verifier)
        wanted = Speculation(methods=())
        [output] = run_all(engine, [Request(PROMPT, options, speculation=wanted)])
        assert output.visible() == plain.visible()
        statistics = output.statistics
        assert (statistics.verification, statistics.seed_exact) == ("matching", True)
        assert statistics.output_valid


# scopes


@pytest.mark.parametrize(
    ("engine_scope", "wanted", "told"),
    [
        ("all", None, "all"),
        ("all", "all", "all"),
        ("all", "session", "session s"),
        ("all", "request", "request 0"),
        ("session", None, "session s"),
        ("session", "request", "request 0"),
        ("request", None, "request 0"),
        ("request", "request", "request 0"),
    ],
)
def test_a_request_narrows_the_scope(
    engine_scope: DraftScope, wanted: DraftScope | None, told: str
) -> None:
    drafter = TestDrafter()
    engine = fake_engine(drafter, scope=engine_scope)
    run_all(engine, [request(Speculation(scope=wanted), session="s")])
    assert drafter.scopes == [told]
    assert (told in drafter.forgotten) is told.startswith("request")


@pytest.mark.parametrize(
    ("engine_scope", "wanted"), [("request", "session"), ("request", "all"), ("session", "all")]
)
def test_a_request_does_not_widen_the_scope(engine_scope: DraftScope, wanted: DraftScope) -> None:
    engine = fake_engine(TestDrafter(), scope=engine_scope)
    with pytest.raises(OptionError, match="`scope` to be request"):
        engine.submit(request(Speculation(scope=wanted)))


def test_forgetting_a_session_reaches_its_private_requests() -> None:
    drafter = TestDrafter()
    engine = fake_engine(drafter, parallel=3)
    private = Speculation(scope="request")
    for session, one in (("a", private), ("a", None), ("b", private)):
        engine.submit(request(one, session=session))
    engine.step()
    engine.forget("a")
    assert drafter.forgotten == ["session a", "request 0"]
    drain(engine)


# places and time


def test_a_request_that_is_late_ends_by_an_error_and_the_others_go_on() -> None:
    engine = fake_engine(TestDrafter(), parallel=2)
    late = engine.submit(request(count=1000, deadline_s=0.05))
    good = engine.submit(request(count=40))
    waiting = engine.submit(request(deadline_s=0.02))
    events = drain(engine)
    last = {event.request: event for event in events if event.finish_reason is not None}
    for identity in (late, waiting):
        event = last[identity]
        assert event.finish_reason == "error"
        assert type(event.error).__name__ == "DeadlineError"
        assert event.statistics is not None
    assert "no place" in str(last[waiting].error)
    assert 0 < len(joined(events, late).tokens) < 40
    assert joined(events, late).ids == TRUTH[5 : 5 + len(joined(events, late).ids)]
    assert joined(events, good).ids == TRUTH[5:45]
    assert engine.program.memory.bytes() == 0
    assert engine.scheduler.places.free == 2
    assert last[waiting].statistics.queue_s == last[waiting].statistics.total_s


def test_a_request_in_time_is_not_touched() -> None:
    [output] = run_all(fake_engine(), [request(deadline_s=1e6)])
    assert output.ids == TRUTH[5:35]


def test_places_go_to_the_session_with_the_fewest_running() -> None:
    engine = fake_engine(parallel=3)
    ids: dict[int, str] = {}
    started: list[str] = []

    def submit(sessions: str) -> None:
        for session in sessions:
            ids[engine.submit(request(count=6 + 4 * len(ids), session=session))] = session

    def step() -> None:
        before = {sequence.id for sequence in engine.scheduler.running}
        engine.step()
        started.extend(ids[s.id] for s in engine.scheduler.running if s.id not in before)

    submit("aaaa")
    step()
    assert started == ["a", "a", "a"]
    submit("babc")
    while engine.busy:
        step()
    # the next two places that come free are b's and c's, though an a came before them
    assert started[3:5] == ["b", "c"]
    assert sorted(started) == sorted(ids.values())
    assert engine.scheduler.places.running == {}


def test_places_that_are_free_at_once_go_round() -> None:
    engine = fake_engine(parallel=4)
    for session in "aaabbc":
        engine.submit(request(session=session))
    engine.step()
    running = [sequence.session for sequence in engine.scheduler.running]
    assert running == ["a", "b", "c", "a"]
    drain(engine)


def test_time_in_the_queue_is_told() -> None:
    engine = fake_engine()
    first, second = run_all(engine, [request(), request()])
    times = [output.statistics for output in (first, second)]
    assert times[0].queue_s is not None
    assert times[1].queue_s is not None
    assert times[0].queue_s < 0.01 < times[1].queue_s < (times[1].ttft_s or 0.0)
    assert times[1].summary()["queue_s"] == times[1].queue_s
