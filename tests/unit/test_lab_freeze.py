"""A manifest is frozen once, names what is not here, and is compared when a run goes on."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from builders import tiny_model
from slipstream.errors import (
    InputError,
    ModelFileError,
    OperationError,
    OptionError,
    PeerRuntimeError,
    RequestError,
)
from slipstream.lab.contract.manifest import (
    Manifest,
    MethodIdentity,
    PromptIdentity,
    RuntimeIdentity,
)
from slipstream.lab.contract.plan import Arrivals, Artifact, ConditionPlan, Plan, RuntimePlan
from slipstream.lab.contract.records import Line, RunRecord
from slipstream.lab.contract.runtimes import Runtime
from slipstream.lab.evidence.store import Store
from slipstream.lab.freezing import assembly
from slipstream.lab.freezing.assembly import most_proposed
from slipstream.lab.freezing.freeze import MANIFEST, differences, freeze, read_manifest, reopened
from slipstream.lab.running import run_folder
from slipstream.lab.running.analysis_state import progress_of
from slipstream.lab.running.run_folder import RECORDS, freeze_into, resumable

HELP = b"-ngl, --gpu-layers N   layers\n"
AT = datetime.datetime(2026, 11, 30, 12, 0, 5, tzinfo=datetime.UTC)
PROMPT = PromptIdentity(id="chat/1", stratum="chat", task="chat", sha256="0", licence="", source="")


class FakeRuntime:
    """Says what it is told to."""

    def __init__(self, name: str, **identity: Any) -> None:
        self.name = name
        self.told = {"release": "b1", "help_file": f"help-{name}.txt", **identity}
        self.help = HELP

    def identity(self, folder: Path) -> RuntimeIdentity:
        (folder / f"help-{self.name}.txt").write_bytes(self.help)
        digest = hashlib.sha256(self.help).hexdigest()
        told = {"help_sha256": digest, **self.told}
        return RuntimeIdentity(name=self.name, kind="llama-server", **told)

    def method(self, condition: ConditionPlan, plan: Plan) -> MethodIdentity:
        del plan
        return MethodIdentity(
            condition=condition.name,
            stage=condition.stage,
            method=condition.method,
            flags=tuple(f"--{key}" for key in condition.parameters),
        )


class AbsentRuntime(FakeRuntime):
    def identity(self, folder: Path) -> RuntimeIdentity:
        raise PeerRuntimeError("a program at x", f"none for {folder.name}", "Build it.")

    def method(self, condition: ConditionPlan, plan: Plan) -> MethodIdentity:
        raise PeerRuntimeError(f"a program for {plan.name}", condition.name, "Build it.")


def runtimes(*fakes: FakeRuntime) -> dict[str, Runtime]:
    return {fake.name: cast(Runtime, fake) for fake in fakes or (FakeRuntime("b1"),)}


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(assembly, "prompts_of", lambda _: (PROMPT,))
    monkeypatch.setattr(assembly, "texts_of", lambda _: {})


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Plan]:
    target = tiny_model(tmp_path / "target.gguf", "qwen2")

    def make(**more: Any) -> Plan:
        given: dict[str, Any] = {
            "name": "study",
            "target": Artifact(model=str(target)),
            "runtimes": {"b1": RuntimePlan(kind="llama-server", binary="absent-server")},
        }
        return Plan(**{**given, **more})

    return make


def test_the_file_is_the_digest(plan: Callable[..., Plan], tmp_path: Path) -> None:
    made = freeze(plan(), runtimes(), tmp_path / "run", clock=lambda: AT)
    content = (tmp_path / "run" / MANIFEST).read_bytes()
    assert hashlib.sha256(content).hexdigest() == made.digest
    assert read_manifest(tmp_path / "run") == made
    assert made.created == "2026-11-30T12:00:05+00:00"
    bare = msgspec.structs.replace(made, run="")
    assert made.run == f"study-20261130-120005-{bare.digest[:8]}"
    assert (tmp_path / "run/help-b1.txt").read_bytes() == HELP


def test_every_condition_of_every_runtime(plan: Callable[..., Plan], tmp_path: Path) -> None:
    condition = ConditionPlan(name="m", stage="ngram", method="ngram-mod")
    builds = {n: RuntimePlan(kind="llama-server", binary=n) for n in ("b1", "b2")}
    asked = plan(conditions=(condition,), runtimes=builds)
    made = freeze(asked, runtimes(FakeRuntime("b1"), FakeRuntime("b2")), tmp_path / "run")
    names = [(m.runtime, m.condition) for m in made.methods]
    assert names == [("b1", "none"), ("b1", "m"), ("b2", "none"), ("b2", "m")]


def test_heads_that_the_target_lacks(plan: Callable[..., Plan], tmp_path: Path) -> None:
    condition = ConditionPlan(name="m", stage="trained", method="draft-mtp")
    made = freeze(plan(conditions=(condition,)), runtimes(), tmp_path / "run")
    assert made.methods[1].not_run == "the target's file has no nextn tensors"


def test_the_pairing_of_a_draft(plan: Callable[..., Plan], tmp_path: Path) -> None:
    keys = {"tokenizer.chat_template": "x"}
    drafts = {"d": Artifact(model=str(tiny_model(tmp_path / "d.gguf", "qwen2", extra=keys)))}
    condition = ConditionPlan(name="s", stage="draft-simple", method="draft-simple", draft="d")
    made = freeze(plan(drafts=drafts, conditions=(condition,)), runtimes(), tmp_path / "run")
    assert [artifact.role for artifact in made.artifacts] == ["target", "draft:d"]
    assert made.pairings[0].vocabulary.startswith("confirmed: ")
    assert made.pairings[0].template == "the target's file has no chat template"


def test_what_is_not_here_is_an_error(plan: Callable[..., Plan], tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        freeze(plan(target=Artifact(model="no.gguf")), runtimes(), tmp_path / "run")
    with pytest.raises(PeerRuntimeError):
        freeze(plan(), runtimes(AbsentRuntime("b1")), tmp_path / "run")
    assert not (tmp_path / "run" / MANIFEST).exists()


def test_an_unexecuted_plan_is_a_valid_state(plan: Callable[..., Plan], tmp_path: Path) -> None:
    missing: list[str] = []
    builds = {
        "b1": RuntimePlan(kind="llama-server", binary="x", release="b11404", commit="a3a1c47")
    }
    drafts = {"d": Artifact(model="no.gguf", licence="MIT")}
    target = Artifact(model="absent.gguf")
    asked = plan(target=target, runtimes=builds, drafts=drafts)
    folder = tmp_path / "run"
    made = freeze(asked, runtimes(AbsentRuntime("b1")), folder, missing=missing)
    assert read_manifest(folder) == made
    assert (made.runtimes[0].release, made.runtimes[0].commit) == ("b11404", "a3a1c47")
    assert made.runtimes[0].binary_sha256 == made.artifacts[0].sha256 == "unknown"
    assert made.methods[0].not_run == "`b1` is not here"
    assert not made.pairings[0].confirmed
    assert any("absent.gguf" in text for text in missing)
    assert any("a program at x" in text for text in missing)


def test_a_server_elsewhere_holds_its_own_files(plan: Callable[..., Plan], tmp_path: Path) -> None:
    elsewhere = {"b1": RuntimePlan(kind="openai", url="http://h:1")}
    asked = plan(target=Artifact(model="its-model"), runtimes=elsewhere)
    made = freeze(asked, runtimes(FakeRuntime("b1")), tmp_path / "run")
    assert made.artifacts[0].sha256 == "unknown"


def test_a_help_text_that_is_another(plan: Callable[..., Plan], tmp_path: Path) -> None:
    lying = FakeRuntime("b1", help_sha256="0" * 64)
    with pytest.raises(OperationError, match="help text"):
        freeze(plan(), runtimes(lying), tmp_path / "run")
    lost = FakeRuntime("b1", help_file="other.txt")
    with pytest.raises(OperationError, match="No such file"):
        freeze(plan(), runtimes(lost), tmp_path / "run")


def test_a_flag_that_no_help_has(plan: Callable[..., Plan], tmp_path: Path) -> None:
    def with_flags(*flags: str) -> Plan:
        build = RuntimePlan(kind="llama-server", binary="x", flags=flags)
        return plan(runtimes={"b1": build})

    with pytest.raises(OptionError, match="--gpu-layer"):
        freeze(with_flags("--gpu-layer", "3"), runtimes(), tmp_path / "run")
    made = freeze(with_flags("--gpu-layers", "3"), runtimes(), tmp_path / "run")
    assert made.plan.runtimes["b1"].flags == ("--gpu-layers", "3")


def test_recorded_arrivals_are_pinned(plan: Callable[..., Plan], tmp_path: Path) -> None:
    file = tmp_path / "arrivals.jsonl"
    asked = plan(arrivals=Arrivals(kind="recorded", file=str(file)))
    with pytest.raises(RequestError, match="recorded arrivals"):
        freeze(asked, runtimes(), tmp_path / "run")
    file.write_bytes(b"{}")
    made = freeze(asked, runtimes(), tmp_path / "run")
    assert made.observation.arrivals_sha256 == hashlib.sha256(b"{}").hexdigest()
    file.write_bytes(b"{} ")
    assert any("arrivals_sha256" in text for text in differences(made, runtimes()))


def test_a_contradictory_plan_is_not_frozen(plan: Callable[..., Plan], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`prompts`"):
        freeze(plan(prompts=0), runtimes(), tmp_path / "run")


def test_a_run_goes_on_with_the_same_files(plan: Callable[..., Plan], tmp_path: Path) -> None:
    made = freeze(plan(), runtimes(), tmp_path / "run")
    assert reopened(tmp_path / "run", runtimes()) == made
    assert (tmp_path / "run/help-b1.txt").read_bytes() == HELP


def test_orders_survive_the_file(plan: Callable[..., Plan], tmp_path: Path) -> None:
    """Tables of the file are sorted; what follows from their order must not change by that."""
    values = {"ngram_mod_n_min": 2, "ngram_mod_n_max": 64}
    condition = ConditionPlan(name="m", stage="ngram", method="ngram-mod", parameters=values)
    builds = {n: RuntimePlan(kind="llama-server", binary=n) for n in ("z", "a")}
    both = runtimes(FakeRuntime("z"), FakeRuntime("a"))
    made = freeze(plan(conditions=(condition,), runtimes=builds), both, tmp_path / "run")
    assert differences(made, both) == ()
    assert reopened(tmp_path / "run", both) == made
    assert list(made.plan.runtimes) == [runtime.name for runtime in made.runtimes]


def test_what_changed_is_named(
    plan: Callable[..., Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = freeze(plan(), runtimes(), tmp_path / "run")
    assert differences(made, runtimes()) == ()
    assert differences(made, runtimes(FakeRuntime("b1", release="b2"))) == (
        "runtimes b1: release 'b1' then, 'b2' now",
    )
    other = FakeRuntime("b1")
    other.help = HELP + b"--new   flag\n"
    with pytest.raises(OptionError, match="help_sha256"):
        reopened(tmp_path / "run", runtimes(other))
    assert (tmp_path / "run/help-b1.txt").read_bytes() == HELP
    monkeypatch.setattr(assembly, "prompts_of", lambda _: (PROMPT, PROMPT))
    assert "prompts: 1 then, 2 now" in differences(made, runtimes())
    tiny_model(tmp_path / "target.gguf", "qwen2", seed=1)
    assert any("artifacts target: sha256" in text for text in differences(made, runtimes()))
    (tmp_path / "target.gguf").unlink()
    assert any("target.gguf" in text for text in differences(made, runtimes()))


def test_the_machine_is_compared_and_its_load_is_not(
    plan: Callable[..., Plan], tmp_path: Path
) -> None:
    made = freeze(plan(), runtimes(), tmp_path / "run")
    busy = msgspec.structs.replace(made.hardware, other_load="much", governor="another")
    before = msgspec.structs.replace(made, hardware=busy)
    found = differences(before, runtimes())
    assert len(found) == 1
    assert found[0].startswith("hardware: governor 'another' then")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_manifest(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(InputError):
        read_manifest(tmp_path)


def test_a_folder_without_one(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="No such file"):
        read_manifest(tmp_path / "nowhere")


def test_a_folder_under_its_name(plan: Callable[..., Plan], tmp_path: Path) -> None:
    folder, made = freeze_into(plan(), runtimes(), None, clock=lambda: AT)
    assert folder == Path("runs") / made.run
    assert read_manifest(folder) == made
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [made.run]


def test_nothing_is_left_of_a_failure(plan: Callable[..., Plan], tmp_path: Path) -> None:
    with pytest.raises(PeerRuntimeError):
        freeze_into(plan(), runtimes(AbsentRuntime("b1")), None)
    assert list((tmp_path / "runs").iterdir()) == []


def test_records_are_never_frozen_over(plan: Callable[..., Plan], tmp_path: Path) -> None:
    out = tmp_path / "out"
    freeze_into(plan(), runtimes(), out)
    freeze_into(plan(), runtimes(), out)
    (out / RECORDS).write_text("")
    with pytest.raises(OptionError, match="--resume"):
        freeze_into(plan(), runtimes(), out)


def test_a_folder_that_cannot_be_made(plan: Callable[..., Plan], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationError):
        freeze_into(plan(), runtimes(), tmp_path / "file" / "out")


def test_the_newest_run_of_a_plan_goes_on(plan: Callable[..., Plan]) -> None:
    def at(day: int, asked: Plan) -> Path:
        return freeze_into(asked, runtimes(), None, clock=lambda: AT.replace(day=day))[0]

    with pytest.raises(OptionError, match="none of `study`"):
        resumable(plan(), None)
    at(1, plan())
    second = at(2, plan())
    at(3, plan(prompts=2))
    said: list[str] = []
    assert resumable(plan(), None, said.append) == second
    assert said == [
        f"going on with {second}: its plan was frozen and not begun; other runs of this plan: 1"
    ]
    assert resumable(plan(), second) == second
    with pytest.raises(OptionError, match="that of another"):
        resumable(plan(prompts=5), second)


def test_a_run_that_began_goes_on_before_a_dry_run(
    plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(day: int, *, began: bool) -> Path:
        folder, made = freeze_into(plan(), runtimes(), None, clock=lambda: AT.replace(day=day))
        if began:
            with Store(folder) as store:
                store.append(RunRecord(run=made.run, manifest_sha256=made.digest))
        return folder

    finished: set[Path] = set()

    def state_of(manifest: Manifest, lines: Sequence[Line]) -> Any:
        done = Path("runs") / manifest.run in finished
        made = progress_of(manifest, lines)
        return msgspec.structs.replace(made, state="complete" if done else made.state)

    monkeypatch.setattr(run_folder, "progress_of", state_of)
    first, second, _ = at(1, began=True), at(2, began=True), at(3, began=False)
    broken, damaged = at(4, began=True), at(5, began=True)
    (broken / MANIFEST).write_text("{}")
    (damaged / RECORDS).write_text("{}\n")
    said: list[str] = []
    assert resumable(plan(), None, said.append) == second
    assert f"{broken} is passed over" in said[0]
    assert f"{damaged} is passed over" in said[1]
    assert said[2].startswith(f"going on with {second}: 0 of ")
    assert said[2].endswith("other runs of this plan: 2")
    finished.add(second)
    assert resumable(plan(), None) == first
    finished.add(first)
    assert resumable(plan(), None, said.append) == second
    assert "it is complete" in said[-1]


@pytest.mark.parametrize(
    ("method", "parameters", "most"),
    [
        ("none", {}, 0),
        ("ngram-mod", {"n_max": 80}, 80),
        ("ngram-mod", {}, 64),
        ("draft-simple", {}, "unknown"),
        ("draft-simple", {"n_max": 5}, 5),
        ("future", {}, "unknown"),
        ("ngram-mod", {"future": 1}, "unknown"),
    ],
)
def test_most_proposed(method: str, parameters: dict[str, Any], most: int | str) -> None:
    condition = ConditionPlan(name="x", stage="ngram", method=method, parameters=parameters)
    assert most_proposed(condition) == most


def test_a_manifest_survives_its_file(plan: Callable[..., Plan], tmp_path: Path) -> None:
    values = {"ngram_mod_n_match": 8, "x": [1, 2.5, "t"]}
    condition = ConditionPlan(name="m", stage="ngram", method="ngram-mod", parameters=values)
    made = freeze(plan(conditions=(condition,)), runtimes(), tmp_path / "run")
    assert msgspec.json.decode(made.canonical(), type=Manifest).plan == made.plan
