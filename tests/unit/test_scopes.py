"""What one session typed never shows in another's drafts, counts or times; what is learned goes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drafters_for_tests import ScriptedDrafter, TestDrafter
from engines import drain, fake_engine
from fake_model import LETTERS, MakeModel, fake_models
from slipstream import Completion, Model, Piece
from slipstream.cli.statistics import statistics_lines
from slipstream.drafters import PRECEDENCE, implemented
from slipstream.drafters.base import Pool
from slipstream.drafters.ngram_mod import NgramMod
from slipstream.drafters.pools import Pools
from slipstream.engine.sequence import Request
from slipstream.engine.trace_format import EngineRecord, Record, RoundRecord
from slipstream.errors import BackendError, RequestError
from slipstream.options import SamplingOptions

# whole drafts are verified: the cost controller reads the time of passes, which varies
MOD: dict[str, Any] = {
    "spec": "ngram-mod",
    "ngram_mod_n_match": 2,
    "ngram_mod_n_min": 1,
    "fixed": True,
}
# short enough to draft from the few tokens of a test, where a method has such an option
QUICK: dict[str, dict[str, int]] = {
    "ngram-simple": {"ngram_simple_size_n": 2, "ngram_simple_size_m": 4},
    "ngram-map-k": {"ngram_map_k_size_n": 2, "ngram_map_k_size_m": 4},
    "ngram-map-k4v": {"ngram_map_k4v_size_n": 2, "ngram_map_k4v_size_m": 4},
    "ngram-mod": {"ngram_mod_n_match": 2, "ngram_mod_n_min": 1},
}
MODEL_FREE = [
    name for name in implemented() if name in PRECEDENCE and not name.startswith("draft-")
]
TEXTS = ["abcd", "abab", "stustu"]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    return fake_models(monkeypatch)


def what_shows(records: Sequence[Record], sequences: Sequence[int]) -> list[dict[str, Any]]:
    """The rounds of some sequences, without ids and seconds."""
    shown = []
    for record in records:
        if isinstance(record, RoundRecord) and record.sequence in sequences:
            fields = {name: getattr(record, name) for name in record.__struct_fields__}
            fields["asked"] = [(a.method, a.cap, a.tokens, a.parents) for a in record.asked]
            varying = ("sequence", "step", "time_s", "pass_rows", "scope", "affordable")
            shown.append(
                {n: v for n, v in fields.items() if n not in varying and not n.endswith("_s")}
            )
    return shown


def records_of(make: MakeModel, sessions: Sequence[str], **keywords: Any) -> list[Record]:
    """Every text in every session, one after the other."""
    records: list[Record] = []
    model = make(trace=records.append, **keywords)
    for session in sessions:
        for text in TEXTS:
            model.complete(text, max_tokens=40, session=session)
    assert model.trace_failure is None
    return records


@pytest.mark.parametrize("method", MODEL_FREE)
def test_sessions_do_not_see_each_other(make: MakeModel, method: str) -> None:
    keywords = {"spec": method, "fixed": True, **QUICK.get(method, {})}
    alone = records_of(make, ["b"], **keywords)
    after = records_of(make, ["a", "b"], **keywords)
    count = len(TEXTS)
    assert what_shows(after, range(count, 2 * count)) == what_shows(alone, range(count))
    assert what_shows(after, range(count)) == what_shows(alone, range(count))
    assert any(r["tokens"] for r in what_shows(alone, range(count))), "nothing was drafted"


def test_the_same_session_does_see_itself(make: MakeModel) -> None:
    """Else the law above would say nothing."""
    alone, twice = records_of(make, ["b"], **MOD), records_of(make, ["b", "b"], **MOD)
    assert what_shows(twice, range(3, 6)) != what_shows(alone, range(3))


def test_sessions_that_run_side_by_side_do_not_see_each_other(make: MakeModel) -> None:
    def ids(model: Model, *sessions: str) -> list[Any]:
        streams = [model.generate("abcd", max_tokens=40, session=name) for name in sessions]
        pieces: list[list[Any]] = [[] for _ in streams]
        for turn in zip(*streams, strict=False):
            for own, piece in zip(pieces, turn, strict=True):
                own.append(piece)
        for own, stream in zip(pieces, streams, strict=True):
            own += stream
        return [own[-1].statistics for own in pieces]

    [alone] = ids(make(parallel=2, **MOD), "b")
    _, beside = ids(make(parallel=2, **MOD), "a", "b")
    names = ("drafted", "tested", "accepted", "drafted_by", "fired", "proposed", "emitted")
    counts = [[[getattr(r, n) for n in names] for r in s.rounds] for s in (alone, beside)]
    assert counts[0] == counts[1]
    assert (alone.warm, beside.warm) == (False, False)


def test_warm_and_cold_are_told_apart(make: MakeModel) -> None:
    model = make(**MOD)

    def warm(session: str, **keywords: Any) -> bool:
        done = model.complete("abcd", max_tokens=20, session=session, **keywords)
        assert done.stats["warm"] is done.statistics.warm
        return done.statistics.warm

    assert [warm("a"), warm("a"), warm("b"), warm("b"), warm("")] == [
        *(False, True),
        *(False, True),
        False,
    ]
    assert [warm("a", draft_scope="request") for _ in range(2)] == [False, False]
    assert [warm(name, draft_scope="all") for name in "ab"] == [False, True]
    assert [warm("a", spec="none", fixed=False, ngram_mod_n_match=24, ngram_mod_n_min=48)] == [
        False
    ]


def test_a_request_is_warm_where_the_controller_has_evidence(make: MakeModel) -> None:
    """Of a drafter without a pool the controller still learns how it does."""
    model = make(drafters=[ScriptedDrafter([])])

    def warm(session: str, **keywords: Any) -> bool:
        done = model.complete("abcd", max_tokens=20, session=session, **keywords)
        assert ("warm" in " ".join(statistics_of(done))) is done.statistics.warm
        return done.statistics.warm

    assert [warm("a"), warm("a"), warm("b"), warm("b")] == [False, True, False, True]
    assert model.remembered() == {}
    assert [warm("a", draft_scope="request") for _ in range(2)] == [False, False]
    assert [warm(name, draft_scope="all") for name in "cd"] == [False, True]
    assert [warm("e", fixed=True) for _ in range(2)] == [False, False], "it learns nothing there"
    model.forget("a")
    assert [warm("a"), warm("b")] == [False, True]


def statistics_of(done: Completion) -> list[str]:
    """The statistics as `run` and `chat` print them."""
    piece = Piece("", done.tokens, finish_reason=done.finish_reason, statistics=done.statistics)
    return statistics_lines(piece, drawn=False)


def test_what_is_remembered_is_shown_and_erased(make: MakeModel) -> None:
    model = make(**MOD)
    assert model.remembered() == {}
    for session in ("a", "b"):
        model.complete("abcd", max_tokens=20, session=session)
    shown = model.remembered()["ngram-mod"]
    assert set(shown) == {"session a", "session b"}
    assert all(pool.tokens > 4 and pool.bytes > 0 for pool in shown.values())
    model.forget("a")
    assert set(model.remembered()["ngram-mod"]) == {"session b"}
    assert not model.complete("abcd", max_tokens=20, session="a").statistics.warm
    assert model.complete("abcd", max_tokens=20, session="b").statistics.warm
    model.forget("nobody")
    model.forget()
    assert model.remembered() == {}
    assert not model.complete("abcd", max_tokens=20, session="b").statistics.warm


@pytest.mark.parametrize("session", [None, "a"])
def test_erasure_while_a_request_runs(make: MakeModel, session: str | None) -> None:
    plain = make().complete("abcd", max_tokens=60)
    model = make(parallel=2, **MOD)
    stream = model.generate("abcd", max_tokens=60, session="a")
    pieces = [next(stream) for _ in range(5)]
    before = model.remembered()["ngram-mod"]["session a"].tokens
    model.forget(session)
    assert before > 0
    assert model.remembered()["ngram-mod"]["session a"].tokens == 0
    pieces += stream
    assert tuple(i for piece in pieces for i in piece.ids) == plain.ids
    statistics = pieces[-1].statistics
    assert statistics is not None
    assert statistics.rejected_drafts == {}
    assert statistics.accepted > 0


def test_a_session_cannot_be_told_apart_where_all_share(
    make: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(draft_scope="all", **MOD)
    with caplog.at_level(logging.WARNING, "slipstream"):
        for session in ("a", "b"):
            model.complete("abcd", max_tokens=20, session=session)
        model.complete("abcd", max_tokens=20, session="b", fixed=True)
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith("draft_scope=all")
    assert set(model.remembered()["ngram-mod"]) == {"all"}
    model.forget("a")
    assert model.remembered() == {}


def test_the_default_scope_warns_of_nothing(
    make: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(**MOD)
    model.complete("abcd", max_tokens=20)
    model.complete("abcd", max_tokens=20, draft_scope="request")
    assert caplog.records == []


@pytest.mark.parametrize("session", [None, 3, "x" * 257])
def test_what_is_no_name_of_a_session(make: MakeModel, session: Any) -> None:
    with pytest.raises(RequestError, match="session"):
        make(**MOD).complete("abcd", session=session)


def test_a_trace_holds_no_names_of_sessions(make: MakeModel) -> None:
    records = records_of(make, ["a secret key"], **MOD)
    assert any(isinstance(record, EngineRecord) for record in records)
    assert "secret" not in repr(records)


# scopes of one request

REQUEST = {**MOD, "draft_scope": "request"}


def test_scopes_of_requests_vanish(make: MakeModel) -> None:
    model = make(**REQUEST)
    stream = model.generate("abcd", max_tokens=60)
    next(stream)
    next(stream)
    assert list(model.remembered()["ngram-mod"]) == ["request 0"]
    stream.close()  # type: ignore[attr-defined]
    assert model.remembered() == {}
    model.complete("abcd", max_tokens=20)
    assert model.remembered() == {}
    model.loaded.program.logits = _fail  # type: ignore[attr-defined]
    with pytest.raises(BackendError):
        model.complete("abcd", max_tokens=20)
    assert model.remembered() == {}


def _fail(_: Sequence[int]) -> Any:
    raise BackendError("a pass", "none", "Try again.")


def test_a_session_is_erased_from_its_open_requests(make: MakeModel) -> None:
    model = make(parallel=2, **REQUEST)
    streams = [model.generate("abcd", max_tokens=60, session=name) for name in "ab"]
    for stream in streams:
        next(stream), next(stream)
    model.forget("a")
    tokens = [pool.tokens for pool in model.remembered()["ngram-mod"].values()]
    assert sorted(count > 0 for count in tokens) == [False, True]
    for stream in streams:
        stream.close()  # type: ignore[attr-defined]


def test_every_end_of_a_request_erases_its_scope() -> None:
    drafter = TestDrafter()
    engine = fake_engine(drafter, scope="request", parallel=1)
    options = SamplingOptions(max_tokens=4, seed=1)
    ended, cancelled, waiting = (engine.submit(Request([1, 2], options)) for _ in range(3))
    engine.cancel(waiting)
    engine.step()
    while ended in [s.id for s in engine.scheduler.running]:
        engine.step()
    engine.step()
    engine.cancel(cancelled)
    drain(engine)
    assert sorted(map(str, drafter.forgotten)) == [f"request {i}" for i in range(3)]


# pools against a model of them


class PoolMachine(RuleBasedStateMachine):
    """Random openings, closings, forks and erasures."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = Pools(list[int], idle=2)
        self.kept: dict[str, list[int]] = {}
        self.scopes: dict[int, str] = {}
        self.count = 0

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.scopes)), label="sequence")

    @rule(scope=st.sampled_from("abcde"))
    def open(self, scope: str) -> None:
        self.count += 1
        pool = self.pools.open(self.count, scope)
        pool.append(self.count)
        self.kept[scope] = [*self.kept.pop(scope, []), self.count]
        self.scopes[self.count] = scope
        self.evict()

    @precondition(lambda self: self.scopes)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence = self.pick(data)
        self.pools.close(sequence)
        del self.scopes[sequence]
        self.evict()

    @precondition(lambda self: self.scopes)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        source = self.pick(data)
        self.count += 1
        self.pools.fork(source, self.count)
        self.scopes[self.count] = self.scopes[source]

    @rule(scope=st.sampled_from([*"abcde", None]))
    def forget(self, scope: str | None) -> None:
        names = list(self.kept) if scope is None else [scope] if scope in self.kept else []
        anew = self.pools.forget(scope)
        assert sorted(anew) == sorted(s for s, name in self.scopes.items() if name in names)
        for name in names:
            if name in self.scopes.values():
                self.kept[name] = []
            else:
                del self.kept[name]

    def evict(self) -> None:
        idle = [name for name in self.kept if name not in self.scopes.values()]
        for name in idle[: max(len(idle) - 2, 0)]:
            del self.kept[name]

    @invariant()
    def pools_agree(self) -> None:
        assert dict(self.pools.all()) == self.kept
        for sequence, scope in self.scopes.items():
            assert self.pools.of(sequence) is self.pools.all()[scope]
            assert sequence in self.pools.mates(sequence)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def letters() -> Iterator[int]:
    return iter(range(len(LETTERS)))


def test_pools_of_a_drafter_are_told_by_scope() -> None:
    drafter = NgramMod(2, 8, 1)
    drafter.open(0, list(letters()), "session a")
    drafter.open(1, [1, 2], "session b")
    assert drafter.pools()["session a"].tokens == len(LETTERS)
    assert drafter.pools()["session b"] == Pool(0, drafter.pools()["session b"].bytes)
