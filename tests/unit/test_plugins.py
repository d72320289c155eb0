"""Drafters of others: objects and installed packages, broken and hostile ones included."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import tiny_model
from engines import fake_engine, greedy, run
from fake_model import MakeModel, fake_models
from plugin_packages import GOOD, install
from slipstream import Model, plugin_names
from slipstream.drafters import PRECEDENCE, arranged, check_names
from slipstream.drafters.base import (
    BaseDrafter,
    Distribution,
    Draft,
    DrafterNeeds,
    DraftRequest,
    Outcome,
    TargetPass,
)
from slipstream.drafters.plugins import MEMBERS, GuardedDrafter, guarded
from slipstream.errors import OptionError, PairingError, SlipstreamError, UnsupportedError
from slipstream.options import SpeculationOptions

PROMPT = [1, 2, 3, 4, 5]


class Truth(BaseDrafter):
    """Proposes the true continuation of one prompt."""

    name = "truth"

    def __init__(self, output: Sequence[int]) -> None:
        self.output = tuple(output)
        self.opened: list[tuple[int, str]] = []

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        del tokens
        self.opened.append((sequence, scope))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [
            Draft.chain(self.output[len(r.tokens) : len(r.tokens) + r.n_max], self.name)
            for r in requests
        ]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    return fake_models(monkeypatch)


def truth_of(model: Model, prompt: Sequence[int], count: int) -> Truth:
    return Truth([*prompt, *model.complete(prompt, max_tokens=count).ids])


# objects


def test_an_object_drafts_in_every_call_of_its_model(make: MakeModel) -> None:
    plain = make().complete(PROMPT, max_tokens=30)
    drafter = truth_of(make(), PROMPT, 30)
    model = make(drafters=[drafter], fixed=True)
    drafted = model.complete(PROMPT, max_tokens=30)
    assert drafted.ids == plain.ids
    assert drafted.statistics.accepted > 20
    assert drafted.statistics.drafters == ("truth",)
    assert drafted.statistics.rounds[1].drafted_by == {"truth": 28}
    off = model.complete(PROMPT, max_tokens=30, spec="none")
    assert (off.ids, off.statistics.drafters) == (plain.ids, ())
    assert model.complete(PROMPT, max_tokens=3, drafters=()).statistics.drafters == ()


def test_an_object_in_one_call(make: MakeModel) -> None:
    model = make(spec="ngram-mod", fixed=True)
    drafter = truth_of(model, PROMPT, 30)
    done = model.complete(PROMPT, max_tokens=30, drafters=[drafter], draft_scope="request")
    assert done.statistics.drafters == ("ngram-mod", "truth")
    assert done.statistics.accepted > 20
    again = model.complete(PROMPT, max_tokens=30, drafters=[drafter], draft_scope="request")
    assert len(model.engines.mailboxes) == 2  # the same object has the same engine
    assert again.ids == done.ids
    (first, one), (second, other) = drafter.opened
    assert first != second
    assert one == f"request {first}"
    assert other == f"request {second}"


def test_sequences_differ_over_the_engines_of_a_model(make: MakeModel) -> None:
    model = make()
    drafter = truth_of(model, PROMPT, 8)
    for fixed in (False, True):
        model.complete(PROMPT, max_tokens=8, drafters=[drafter], fixed=fixed)
    assert len({sequence for sequence, _ in drafter.opened}) == 2


def test_precedence_is_built_in_methods_then_others_then_draft_models() -> None:
    def named(name: str) -> BaseDrafter:
        made = Truth(())
        made.name = name
        return made

    given = [named(name) for name in ("draft-simple", "mine", "ngram-cache", "ngram-simple", "a")]
    names = [drafter.name for drafter in arranged(given)]
    assert names == ["ngram-simple", "ngram-cache", "mine", "a", "draft-simple"]
    assert "mine" not in PRECEDENCE


def with_name(name: Any) -> BaseDrafter:
    drafter = Truth(())
    drafter.name = name
    return drafter


@pytest.mark.parametrize(
    ("drafters", "part"),
    [
        ([with_name("ngram-mod")], "`ngram-mod`"),
        ([with_name("auto")], "`auto`"),
        ([with_name("grammar")], "`grammar`"),
        ([with_name("a,b")], "'a,b'"),
        ([with_name("")], "''"),
        ([with_name(3)], "3"),
        ([with_name("x" * 65)], "xxx"),
        ([with_name("one"), with_name("one")], "`one` twice"),
    ],
)
def test_names_that_cannot_be(make: MakeModel, drafters: list[BaseDrafter], part: str) -> None:
    with pytest.raises(OptionError, match=part):
        make(drafters=drafters)
    with pytest.raises(OptionError, match=part):
        make().generate(PROMPT, drafters=drafters)


@pytest.mark.parametrize("member", [*MEMBERS, "name", "needs"])
def test_a_missing_member_is_named(make: MakeModel, member: str) -> None:
    bare = type("Bare", (), {name: getattr(BaseDrafter, name) for name in MEMBERS})
    drafter = bare()
    drafter.name, drafter.needs = "bare", DrafterNeeds()
    guarded([drafter])
    lacking = type("Lacking", (), {n: getattr(BaseDrafter, n) for n in MEMBERS if n != member})()
    for name in {"name", "needs"} - {member}:
        setattr(lacking, name, getattr(drafter, name))
    with pytest.raises(UnsupportedError, match=f"Lacking.*`{member}`"):
        make(drafters=[lacking])


def test_a_class_is_no_drafter_and_needs_are_checked(make: MakeModel) -> None:
    with pytest.raises(UnsupportedError, match="the class Truth"):
        make(drafters=[Truth])
    for needs in ({"hidden": ()}, None):
        drafter = Truth(())
        drafter.needs = needs  # type: ignore[assignment]
        with pytest.raises(UnsupportedError, match="DrafterNeeds"):
            make(drafters=[drafter])
    for member in ("target_memory", "target_embedding"):
        drafter = Truth(())
        drafter.needs = DrafterNeeds(**{member: True})
        with pytest.raises(UnsupportedError, match=f"needs.{member}"):
            make(drafters=[drafter])


@pytest.mark.parametrize("hidden", [None, "final_norm", ["final_norm"]])
def test_names_of_hidden_outputs_are_a_set(make: MakeModel, hidden: Any) -> None:
    drafter = Truth(())
    drafter.needs = DrafterNeeds(hidden=hidden)
    with pytest.raises(UnsupportedError, match="set of names"):
        make(drafters=[drafter])


@pytest.mark.parametrize("drafters", [3, "suffix", Truth(()), {}])
def test_drafters_are_a_list(make: MakeModel, drafters: Any) -> None:
    with pytest.raises(OptionError, match="a list of drafters"):
        make(drafters=drafters)
    with pytest.raises(OptionError, match="a list of drafters"):
        make().generate(PROMPT, drafters=drafters)


# failures


class Broken(Truth):
    """Raises in one member."""

    name = "broken"

    def __init__(self, member: str, problem: BaseException, output: Sequence[int]) -> None:
        super().__init__(output)
        self._problem = problem
        setattr(self, member, self._raise)

    def _raise(self, *_: object) -> Any:
        raise self._problem


PROBLEMS: list[BaseException] = [
    *(ValueError("no"), KeyError(3), ZeroDivisionError(), AssertionError(), RecursionError()),
    *(SystemExit(3), GeneratorExit()),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: type(problem).__name__)
@pytest.mark.parametrize("member", ["open", "process", "draft", "observe", "close"])
def test_any_exception_costs_drafts_only(member: str, problem: BaseException) -> None:
    truth = greedy(PROMPT, 12)
    [guard] = guarded([Broken(member, problem, [*PROMPT, *truth])])
    [output] = run(fake_engine(guard), PROMPT, max_tokens=12)
    assert output.ids == truth
    [(reason, count)] = output.statistics.rejected_drafts.items()
    assert count == 1
    assert all(part in reason for part in ("broken", member, type(problem).__name__)), reason


def test_other_drafters_go_on_when_one_fails() -> None:
    truth = [*PROMPT, *greedy(PROMPT, 12)]
    guards = guarded([Broken("draft", ValueError(), truth), Truth(truth)])
    [output] = run(fake_engine(guards), PROMPT, max_tokens=12)
    assert output.ids == truth[5:]
    assert output.statistics.accepted > 5


def test_ctrl_c_is_not_caught() -> None:
    [guard] = guarded([Broken("draft", KeyboardInterrupt(), ())])
    with pytest.raises(KeyboardInterrupt):
        run(fake_engine(guard), PROMPT, max_tokens=12)


def test_a_drafter_that_cannot_forget_is_an_error_and_one_that_cannot_tell_is_silent(
    make: MakeModel,
) -> None:
    model = make(drafters=[Broken("forget", ValueError("stuck"), ())], draft_scope="request")
    done = model.complete(PROMPT, max_tokens=3)
    assert any("stuck" in reason for reason in done.statistics.rejected_drafts)
    with pytest.raises(SlipstreamError, match="stuck"):
        model.forget()
    model = make(drafters=[Broken("pools", ValueError(), ())])
    assert model.complete(PROMPT, max_tokens=3).statistics.warm is False
    assert model.remembered() == {}


class Answers(BaseDrafter):
    """Gives one answer to every call."""

    name = "answers"

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def draft(self, requests: Sequence[DraftRequest]) -> Any:
        del requests
        return self.answer()


def _odd_draft(**fields: Any) -> Draft:
    return Draft(**{"tokens": (1,), "parents": (-1,), **fields})


ANSWERS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "a number": lambda: 3,
    "no drafts": lambda: [None],
    "tokens instead of a draft": lambda: [[1, 2, 3]],
    "too many": lambda: [Draft(), Draft()],
    "drafts without end": lambda: itertools.repeat(Draft()),
    "tokens without end": lambda: [_odd_draft(tokens=itertools.repeat(1))],
    "no tokens": lambda: [_odd_draft(tokens=None)],
    "tokens of text": lambda: [_odd_draft(tokens=("1",))],
    "estimates of text": lambda: [_odd_draft(probabilities=("much",))],
    "estimates that are no numbers": lambda: [_odd_draft(probabilities=(float("nan"),))],
    "a distribution of text": lambda: [_odd_draft(distributions=("x",))],
    "a ragged distribution": lambda: [
        _odd_draft(distributions=(Distribution([[1], [1, 2]], [1.0]),))  # type: ignore[arg-type]
    ],
    "a distribution of two dimensions": lambda: [
        _odd_draft(distributions=(Distribution(np.ones((1, 1), int), np.ones((1, 1))),))
    ],
    "an id outside": lambda: [_odd_draft(tokens=(1 << 40,))],
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_any_answer_costs_drafts_only(kind: str) -> None:
    [guard] = guarded([Answers(ANSWERS[kind])])
    [output] = run(fake_engine(guard), PROMPT, max_tokens=8)
    assert output.ids == greedy(PROMPT, 8)
    assert output.statistics.drafted == 0
    assert sum(output.statistics.rejected_drafts.values()) >= 1


class Meddler(BaseDrafter):
    """Tries to change what it is shown."""

    name = "meddler"

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        del sequence, scope
        self._meddle(tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        for request in requests:
            self._meddle(request.tokens)
            assert request.sampler is not None
            for token in range(5):
                request.sampler.advance(token)
        return [Draft() for _ in requests]

    def process(self, passes: Sequence[TargetPass]) -> None:
        for target_pass in passes:
            target_pass.tokens[:] = 0
            target_pass.positions[:] = 0
            target_pass.parents[:] = 0

    def observe(self, sequence: int, outcome: Outcome) -> None:
        del sequence
        self._meddle(outcome.tokens)

    def _meddle(self, tokens: Sequence[int]) -> None:
        if isinstance(tokens, list):
            tokens[:] = [0] * len(tokens)


def test_what_a_drafter_is_shown_is_a_copy() -> None:
    [guard] = guarded([Meddler()])
    options = {"max_tokens": 20, "temperature": 1.0, "seed": 3, "presence_penalty": 1.0}
    [plain] = run(fake_engine(), PROMPT, **options)
    [output] = run(fake_engine(guard), PROMPT, **options)
    assert output.visible() == plain.visible()
    assert output.statistics.rejected_drafts == {}


# hidden states and logits


class Watcher(BaseDrafter):
    """Keeps what it gets; proposes what the logits of the newest row would draw greedily."""

    name = "watcher"

    def __init__(self, *hidden: str, logits: bool = True) -> None:
        self.needs = DrafterNeeds(hidden=frozenset(hidden), logits=logits)
        self.passes: list[TargetPass] = []
        self.best: dict[int, int] = {}

    def process(self, passes: Sequence[TargetPass]) -> None:
        self.passes += passes
        for target_pass in passes:
            if target_pass.logits is not None and len(target_pass.logits):
                self.best[target_pass.sequence] = int(target_pass.logits[-1].argmax())


BACKENDS = ["reference", pytest.param("cpu", marks=pytest.mark.native)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_hidden_states_and_logits_arrive(tmp_path: Path, backend: str, architecture: str) -> None:
    if backend == "cpu":
        pytest.importorskip("slipstream._native")
    path = tiny_model(tmp_path / "tiny.gguf", architecture)
    watcher = Watcher("layer_input.0", "layer_input.1", "final_norm")
    model = Model(str(path), backend=backend, context=64, prefill_chunk=3, drafters=[watcher])
    width = model.loaded.graph.width
    done = model.complete("hello hello", max_tokens=6, ignore_eos=True)
    assert done.ids == model.complete("hello hello", max_tokens=6, ignore_eos=True, spec="none").ids
    rows = sum(len(seen.tokens) for seen in watcher.passes)
    assert rows == done.statistics.prompt_tokens + 5
    for seen in watcher.passes:
        assert set(seen.hidden) == {"layer_input.0", "layer_input.1", "final_norm"}
        assert all(values.shape == (len(seen.tokens), width) for values in seen.hidden.values())
        assert all(np.isfinite(values).all() for values in seen.hidden.values())
        assert seen.logits is not None
        assert len(seen.logits) == len(seen.logit_rows)
    sampling = [seen for seen in watcher.passes if len(seen.logit_rows)]
    assert [int(seen.logits[-1].argmax()) for seen in sampling] == list(done.ids)  # type: ignore[index]
    positions = [p for seen in watcher.passes for p in seen.positions.tolist()]
    assert positions == list(range(rows))
    first = watcher.passes[0]
    assert first.positions.tolist() == [0, 1, 2]  # a chunk of the prompt
    assert not np.allclose(first.hidden["layer_input.0"], first.hidden["layer_input.1"])


def test_hidden_states_do_not_depend_on_the_rows_of_a_pass(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "tiny.gguf", "llama")
    seen = []
    for chunk in (2, 64):
        watcher = Watcher("final_norm", logits=False)
        model = Model(
            str(path), backend="reference", context=64, prefill_chunk=chunk, drafters=[watcher]
        )
        model.complete("hello hello", max_tokens=4, ignore_eos=True)
        assert all(target_pass.logits is None for target_pass in watcher.passes)
        seen.append(np.concatenate([p.hidden["final_norm"] for p in watcher.passes]))
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-4, atol=1e-5)


@pytest.mark.native
def test_hidden_states_do_not_depend_on_neighbours_and_drafts(tmp_path: Path) -> None:
    """Bit for bit, along the committed path of each sequence."""
    pytest.importorskip("slipstream._native")
    path = tiny_model(tmp_path / "tiny.gguf", "llama")
    prompts = ["hello hello", "a stone, a hen"]

    def rows(parallel: int, chosen: list[str], *others: BaseDrafter) -> list[dict[int, bytes]]:
        """Per prompt: position -> bits of the hidden state that was last seen there."""
        watcher = Watcher("layer_input.1", "final_norm")
        model = Model(
            str(path), backend="cpu", context=96, parallel=parallel, drafters=[watcher, *others]
        )
        streams = [model.generate(p, max_tokens=24, ignore_eos=True) for p in chosen]
        done = [list(turn) for turn in zip(*streams, strict=True)]
        assert len(done) == 24 or others
        found: dict[int, dict[int, bytes]] = {}
        for seen in watcher.passes:
            hidden = np.hstack([seen.hidden[name] for name in sorted(seen.hidden)])
            own = found.setdefault(seen.sequence, {})
            for position, row in zip(seen.positions.tolist(), hidden, strict=True):
                own[position] = row.tobytes()
        return list(found.values())

    alone = [rows(1, [prompt])[0] for prompt in prompts]
    assert rows(2, prompts) == alone
    output = Model(str(path), backend="cpu", context=96).complete(
        prompts[0], max_tokens=24, ignore_eos=True
    )
    prompt = Model(str(path), backend="reference").tokenizer.encode(prompts[0], parse_special=True)
    [drafted] = rows(1, prompts[:1], Truth([*prompt, *output.ids]))
    assert drafted == alone[0]


@pytest.mark.parametrize("name", ["layer_input.2", "layer_input.x", "logits", "final", 7])
def test_unknown_hidden_outputs_are_refused_at_the_start(tmp_path: Path, name: Any) -> None:
    path = tiny_model(tmp_path / "tiny.gguf", "llama")
    known = r"final_norm, layer_input.0 to layer_input.1"
    with pytest.raises(PairingError, match=rf"watcher .*{known}.*`{name}`"):
        Model(str(path), backend="reference", drafters=[Watcher(name)])
    model = Model(str(path), backend="reference")
    with pytest.raises(PairingError, match=f"`{name}`"):
        model.generate("hello", drafters=[Watcher(name)])


def test_outputs_that_nobody_asked_for_are_not_computed(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "tiny.gguf", "llama")
    watcher = Watcher(logits=False)
    model = Model(str(path), backend="reference", context=64, drafters=[watcher])
    model.complete("hello", max_tokens=2, ignore_eos=True)
    assert all(not seen.hidden and seen.logits is None for seen in watcher.passes)


# packages


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the search path."""
    monkeypatch.syspath_prepend(tmp_path)
    plugin_names.installed.cache_clear()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and name.endswith("_drafter"):
            del sys.modules[name]
    plugin_names.installed.cache_clear()


def test_an_installed_drafter_is_found_by_its_name(packages: Path, make: MakeModel) -> None:
    install(packages, "good-drafter", {"repeat": "good_drafter:create"})
    model = make(spec="repeat,ngram-mod", fixed=True)
    done = model.complete(PROMPT, max_tokens=20)
    assert done.ids == make().complete(PROMPT, max_tokens=20).ids
    assert done.statistics.drafters == ("ngram-mod", "repeat")
    assert done.statistics.drafted > 0
    assert check_names(["repeat", "ngram-mod"]) == ("ngram-mod", "repeat")
    assert SpeculationOptions(type=("repeat",), fixed=True).type == ("repeat",)
    with pytest.raises(OptionError, match="ngram_mod_n_match"):
        make().generate(PROMPT, spec="repeat", ngram_mod_n_match=3)
    # an object may not have the name of a package's drafter beside it
    with pytest.raises(OptionError, match="`repeat` twice"):
        make(spec="repeat", drafters=[with_name("repeat")])


def test_unknown_names_list_the_installed_ones(packages: Path) -> None:
    install(packages, "good-drafter", {"repeat": "good_drafter:create"})
    with pytest.raises(OptionError, match=r"installed: repeat \(good-drafter\).*`repeat`"):
        SpeculationOptions(type=("repaet",))


BAD: dict[str, tuple[str, str]] = {
    "no such module": (GOOD, "absent_drafter:create"),
    "no such attribute": (GOOD, "bad_drafter:absent"),
    "a fault of its own": ("1 / 0", "bad_drafter:create"),
    "a syntax error": ("def", "bad_drafter:create"),
    "an exit": ("raise SystemExit(3)", "bad_drafter:create"),
    "a fault when made": ("def create(*_): raise KeyError(1)", "bad_drafter:create"),
    "something that cannot be called": ("create = 3", "bad_drafter:create"),
    "nothing made": ("def create(*_): return None", "bad_drafter:create"),
    "another name": (GOOD.replace('"repeat"', '"other"'), "bad_drafter:create"),
    "a missing member": (
        "class D:\n    name = 'repeat'\n    def __init__(self, *_): pass",
        "bad_drafter:D",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_package_that_fails_is_named(packages: Path, make: MakeModel, kind: str) -> None:
    source, value = BAD[kind]
    install(packages, "bad-drafter", {"repeat": value}, source=source)
    with pytest.raises((UnsupportedError, OptionError), match="bad-drafter"):
        make(spec="repeat").complete(PROMPT)


def test_two_packages_of_one_name_are_both_named(packages: Path, make: MakeModel) -> None:
    install(packages, "one-drafter", {"repeat": "one_drafter:create"})
    install(packages, "two-drafter", {"repeat": "two_drafter:create"})
    with pytest.raises(OptionError, match=r"one-drafter.*two-drafter|two-drafter.*one-drafter"):
        make(spec="repeat").complete(PROMPT)


def test_a_guard_is_equal_to_another_of_the_same_object() -> None:
    drafter, other = Truth(()), Truth(())
    guards = [GuardedDrafter(d, "test") for d in (drafter, drafter, other)]
    assert guards[0] == guards[1] != guards[2]
    assert len(set(guards)) == 2
