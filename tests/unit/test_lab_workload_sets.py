"""From a plan to the manifest's prompts: choice, tokens, seeds, warm-ups, imports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import tiny_model
from slipstream.errors import InputError, OptionError, RequestError
from slipstream.lab.contract.manifest import UNKNOWN, PromptIdentity
from slipstream.lab.contract.plan import Artifact, Plan, Rules, SamplingPlan
from slipstream.lab.freezing.prompt_tokens import prompt_counter
from slipstream.lab.freezing.workload_sets import prompts_of, questions_of, request_keys, texts_of
from slipstream.lab.planning import plan_workloads
from slipstream.lab.planning.plan_workloads import chosen, shipped_workloads, workloads_of
from slipstream.measure.workload import STRATA, WorkloadMessage, WorkloadPrompt, content_digest

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "tiny.gguf"
    return tiny_model(path, "llama", extra={"tokenizer.chat_template": TEMPLATE})


def a_plan(target: object = "no-such-model", **keys: Any) -> Plan:
    """A plan whose context holds prompts at a token a byte."""
    keys = {"context": 1 << 16, **keys}
    return Plan(name="test", target=Artifact(model=str(target)), runtimes={}, **keys)


def of(identities: tuple[PromptIdentity, ...], stratum: str) -> list[PromptIdentity]:
    return [p for p in identities if p.stratum == stratum and not p.warm_up]


def test_the_prompts_of_the_default_plan(target: Path) -> None:
    identities = prompts_of(a_plan(target))
    assert tuple(dict.fromkeys(p.stratum for p in identities)) == STRATA
    for stratum in STRATA:
        assert len(of(identities, stratum)) == 6
        first = next(p for p in identities if p.stratum == stratum)
        assert first.warm_up
    measured = [p for p in identities if not p.warm_up]
    assert [p.seed for p in measured] == list(range(1, 37))
    assert len({p.id for p in identities}) == len(identities)
    assert all(p.kind == p.stratum == p.task for p in identities)
    assert all(p.shared and p.max_tokens <= 96 for p in identities)
    assert [p.id for p in identities if p.typical] == ["long_input/tenants-handbook"]
    assert {p.judgement for p in measured} == {"schema", "tools", "rubric"}


def test_tokens_are_those_of_the_target(target: Path, tmp_path: Path) -> None:
    [ferry] = [p for p in prompts_of(a_plan(target)) if p.id == "reasoning/ferry"]
    text = texts_of(a_plan())["reasoning/ferry"].messages[0].content
    base = tiny_model(tmp_path / "base.gguf", "llama")
    [bare] = [p for p in prompts_of(a_plan(base)) if p.id == "reasoning/ferry"]
    assert isinstance(ferry.tokens, int)
    assert isinstance(bare.tokens, int)
    assert bare.tokens == len(prompt_counter(str(base)).tokenizer.encode(text))
    assert ferry.tokens > bare.tokens
    assert {p.tokens for p in prompts_of(a_plan())} == {UNKNOWN}


def test_few_prompts_keep_what_a_workload_needs() -> None:
    identities = prompts_of(a_plan(prompts=3, strata=("structured", "long_input")))
    assert [p.id for p in of(identities, "structured")] == [
        "structured/json-contacts",
        "structured/json-schema",
        "structured/complaint-ticket",
    ]
    assert [p.id for p in of(identities, "long_input")] == [
        "long_input/minutes-summary",
        "long_input/minutes-table",
        "long_input/tenants-handbook",
    ]
    alone = prompts_of(a_plan(prompts=1, strata=("long_input",)))
    assert [p.id for p in of(alone, "long_input")] == ["long_input/tenants-handbook"]


def a_prompt(name: str, **keys: Any) -> WorkloadPrompt:
    messages = (WorkloadMessage("user", name),)
    return WorkloadPrompt(name, "prose", messages, 8, "t", "MIT", "", **keys)


def test_choice_keeps_the_order_of_the_file() -> None:
    prompts = [a_prompt("a"), a_prompt("b", typical=True), a_prompt("c", constrained=True)]
    assert [p.id for p in chosen(prompts, 2)] == ["b", "c"]
    assert [p.id for p in chosen(prompts, 1)] == ["b"]
    assert [p.id for p in chosen(prompts, 9)] == ["a", "b", "c"]
    assert [p.id for p in chosen(prompts, 2, ["a"])] == ["a", "c"]
    assert [p.id for p in chosen(prompts[:1], 2)] == ["a"]


def test_a_plan_names_its_own_typical_load(target: Path) -> None:
    plan = a_plan(target, typical=("long_input/rental-terms",), prompts=2)
    found = [p.id for p in prompts_of(plan) if p.typical]
    assert found == ["long_input/rental-terms"]
    with pytest.raises(RequestError, match="no-such-prompt"):
        prompts_of(a_plan(typical=("no-such-prompt",)))
    with pytest.raises(RequestError, match="typical sequence of at least 1024"):
        prompts_of(a_plan(target, typical=("chat/sourdough",)))


def test_limits_seeds_and_warm_ups_follow_the_plan() -> None:
    sampling = SamplingPlan(seed=40, max_tokens=12)
    plan = a_plan(sampling=sampling, rules=Rules(warm_up=2), strata=("chat",), prompts=2)
    identities = prompts_of(plan)
    assert [(p.seed, p.max_tokens, p.warm_up) for p in identities] == [
        (40, 12, True),
        (40, 12, True),
        (40, 12, False),
        (41, 12, False),
    ]
    none = prompts_of(a_plan(rules=Rules(warm_up=0), strata=("chat",), prompts=2))
    assert sum(p.warm_up for p in none) == 1


def test_prompts_that_do_not_fit_are_refused(target: Path) -> None:
    [_, ferry] = prompts_of(a_plan(target, strata=("reasoning",), prompts=1))
    assert isinstance(ferry.tokens, int)
    exact = {"strata": ("reasoning",), "prompts": 1, "context": ferry.tokens + 96}
    prompts_of(a_plan(target, **exact))
    with pytest.raises(RequestError, match="and their limits within"):
        prompts_of(a_plan(target, **exact | {"context": ferry.tokens + 95}))
    with pytest.raises(RequestError, match=r"context of 700.*\+ 96 tokens"):
        prompts_of(a_plan(target, context=700))


def test_tasks_are_workloads_of_their_own() -> None:
    identities = prompts_of(a_plan(strata=("repetitive", "code_edit"), prompts=2))
    assert len({p.id for p in identities}) == len(identities) == 6
    edit = [p for p in identities if p.stratum == "code_edit"]
    assert {p.kind for p in edit} == {"repetitive"}
    assert edit[0].id == "warm_up/repetitive-birds@code_edit"
    assert edit[0].warm_up
    questions = questions_of(a_plan(strata=("repetitive", "code_edit")))
    assert questions["code_edit"] != questions["repetitive"]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_imports_are_workloads_and_not_shared(tmp_path: Path, target: Path) -> None:
    rows = [
        {"question_id": 1, "category": "qa", "turns": ["Who?"]},
        {"question_id": 2, "category": "summarization", "turns": ["Long. " * 400]},
    ]
    path = str(written(tmp_path / "question.jsonl", rows))
    keys: dict[str, Any] = {"strata": ("chat",), "imports": {path: "spec-bench"}, "prompts": 2}
    plan = a_plan(target, typical=("spec-bench-summarization/2",), **keys)
    identities = prompts_of(plan)
    [qa] = of(identities, "spec-bench-qa")
    assert (qa.id, qa.task, qa.kind, qa.shared) == ("spec-bench-qa/1", "qa", "chat", False)
    [long] = of(identities, "spec-bench-summarization")
    assert long.typical
    assert all(p.shared for p in of(identities, "chat"))
    assert not [p for p in identities if p.stratum == "spec-bench-qa" and p.shared]
    assert texts_of(plan, identities)["spec-bench-qa/1"].messages[0].content == "Who?"
    assert questions_of(plan)["spec-bench-qa"]
    asked = prompts_of(a_plan(share_texts=True, **keys))
    assert all(p.shared for p in asked)
    with pytest.raises(OptionError, match="a category among qa, summarization"):
        prompts_of(a_plan(imports={path: "spec-bench:poems"}))


def test_an_import_alone_is_a_plan(tmp_path: Path) -> None:
    path = str(written(tmp_path / "ours.jsonl", [{"prompt": "P", "schema": {"type": "string"}}]))
    [_, only] = prompts_of(a_plan(strata=(), imports={path: "jsonl"}))
    assert (only.stratum, only.kind) == ("ours", "imported")
    with pytest.raises(RequestError, match="neither"):
        prompts_of(a_plan(strata=()))


def test_an_imported_prompt_that_cannot_be_judged_is_refused(tmp_path: Path) -> None:
    row = {"prompt": "P", "judgement": "schema"}
    path = str(written(tmp_path / "ours.jsonl", [row]))
    with pytest.raises(RequestError, match="without `schema`"):
        prompts_of(a_plan(imports={path: "jsonl"}))


def test_what_warms_up_is_not_measured(tmp_path: Path) -> None:
    text = texts_of(a_plan())["warm_up/chat-umbrella"].messages[0].content
    path = str(written(tmp_path / "ours.jsonl", [{"prompt": text, "kind": "chat"}]))
    with pytest.raises(RequestError, match="warm-up prompts that are not measured"):
        prompts_of(a_plan(imports={path: "jsonl"}))


def test_workloads_of_one_name_are_refused(tmp_path: Path) -> None:
    path = str(written(tmp_path / "chat.jsonl", [{"prompt": "P"}]))
    with pytest.raises(RequestError, match="each workload once"):
        prompts_of(a_plan(imports={path: "jsonl"}))


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Ours."}]
    digest = content_digest([WorkloadMessage("user", "Ours.")])
    row = {"id": "chat/ours", "stratum": "chat", "messages": messages, "max_tokens": 8}
    row |= {"source": "us", "licence": "none", "sha256": digest}
    written(tmp_path / "chat.jsonl", [row])
    plan = a_plan(workloads=str(tmp_path), strata=("chat",))
    [warm_up, own] = prompts_of(plan)
    assert (own.id, own.judgement, own.shared) == ("chat/ours", "exact", False)
    assert warm_up.id == "warm_up/chat-umbrella"
    with pytest.raises(RequestError, match="No such file"):
        prompts_of(a_plan(workloads=str(tmp_path), strata=("prose",)))


@pytest.mark.parametrize(
    "keys", [{"strata": ("poems",)}, {"prompts": 0}, {"prompts": 10**9}, {"imports": {"x": "y"}}]
)
def test_plans_that_name_nothing_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        prompts_of(a_plan(**keys))


def test_texts_are_those_that_the_manifest_fixed() -> None:
    plan = a_plan(strata=("chat",))
    identities = prompts_of(plan)
    unused = {"warm_up/chat-spelling"}
    assert texts_of(plan, identities).keys() == {p.id for p in identities} | unused
    changed = msgspec.structs.replace(identities[1], sha256="0" * 64)
    with pytest.raises(RequestError, match="another text"):
        texts_of(plan, [changed])
    judged = msgspec.structs.replace(identities[1], judgement_sha256="0" * 64)
    with pytest.raises(RequestError, match="another text or judgement"):
        texts_of(plan, [judged])
    older = msgspec.structs.replace(identities[1], judgement_sha256="")
    assert texts_of(plan, [older])
    with pytest.raises(RequestError, match="none of this id"):
        texts_of(plan, [msgspec.structs.replace(identities[1], id="chat/other")])


def test_a_constrained_prompt_brings_its_schema() -> None:
    texts = texts_of(a_plan(prompts=8))
    assert request_keys(texts["structured/complaint-ticket"])["json_schema"]
    assert request_keys(texts["structured/json-contacts"]) == {}
    constrained = {p.id for p in prompts_of(a_plan(prompts=8)) if p.constrained}
    assert constrained == {"structured/complaint-ticket", "structured/shopping-list"}


def test_the_installed_package_has_its_own_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "workloads"
    shutil.copytree(shipped_workloads(), copy)
    monkeypatch.setattr(plan_workloads, "_IN_CHECKOUT", tmp_path / "none")
    monkeypatch.setattr(plan_workloads, "_IN_PACKAGE", copy)
    assert {workload.shared for workload in workloads_of(a_plan())} == {True}
    monkeypatch.setattr(plan_workloads, "_IN_PACKAGE", tmp_path / "none")
    with pytest.raises(RequestError, match="comes with Slipstream"):
        workloads_of(a_plan())
