"""The workloads that come with Slipstream: frozen, judged, disjoint from what warms up."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from slipstream.errors import RequestError
from slipstream.lab.planning.strata import Strata, read_judgements, read_strata
from slipstream.lab.tasks.judgements import judge, require_judgeable
from slipstream.measure.workload import STRATA, TASKS, WorkloadPrompt, read_task, read_workloads

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"
# Prompts that earlier figures were taken of: how many, and their lines as a git object.
FROZEN = {
    "repetitive": (4, "0965148b49795b0881c0c18116164b296c827aab"),
    "chat": (4, "aa558ce5fb79cb4f5945306004a6b647b8521951"),
    "reasoning": (4, "745ceaee46fcd7c4335c1745a0d9ee4300f909dd"),
    "long_input": (3, "0889b518776ef5858d67a1c84e2c7f79ac64f3af"),
    "structured": (4, "53025f575cbf82f7861f18cc58762f08c38b3076"),
    "prose": (4, "d3b5c4b41dcfbaf1f822e835cc135480a27b640a"),
}


def measured() -> dict[str, list[WorkloadPrompt]]:
    judgements = read_judgements(WORKLOADS)
    read = read_workloads(WORKLOADS, TASKS)
    return {task: [judgements.applied(p) for p in prompts] for task, prompts in read.items()}


def warm_ups() -> dict[str, list[WorkloadPrompt]]:
    return {name: read_task(WORKLOADS / "warm_up" / f"{name}.jsonl") for name in STRATA}


@pytest.mark.parametrize("stratum", STRATA)
def test_the_lines_of_earlier_figures_are_unchanged(stratum: str) -> None:
    count, digest = FROZEN[stratum]
    kept = (WORKLOADS / f"{stratum}.jsonl").read_bytes().splitlines(keepends=True)[:count]
    content = b"".join(kept)
    assert hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest() == digest


def test_every_stratum_has_six_prompts_with_source_and_licence() -> None:
    for stratum in STRATA:
        prompts = measured()[stratum]
        assert len(prompts) >= 6
        assert all(p.licence == "MIT" and p.source == "written for Slipstream" for p in prompts)


def test_every_prompt_can_be_judged_by_more_than_equality() -> None:
    for prompts in measured().values():
        for prompt in prompts:
            require_judgeable(prompt)
            assert prompt.judgement != "exact"
            judged = judge(prompt, "", None, "stop")
            assert False in judged.values(), f"{prompt.id} passes with no answer at all"


def test_every_judgement_belongs_to_a_prompt() -> None:
    ids = {prompt.id for prompts in measured().values() for prompt in prompts}
    assert read_judgements(WORKLOADS).prompts.keys() <= ids


def test_judgements_of_all_kinds_are_there() -> None:
    structured = measured()["structured"]
    assert {"schema", "tools", "rubric"} <= {prompt.judgement for prompt in structured}
    assert sum(prompt.constrained for prompt in structured) >= 2


def test_one_long_prompt_is_typical() -> None:
    typical = [p for prompts in measured().values() for p in prompts if p.typical]
    assert [prompt.id for prompt in typical] == ["long_input/tenants-handbook"]
    assert sum(len(message.content) for message in typical[0].messages) > 5500


def test_every_stratum_and_task_states_a_question() -> None:
    questions = read_strata(WORKLOADS).questions
    assert questions.keys() == {*TASKS, "imported"}
    assert all(question.endswith("?") for question in questions.values())
    assert len(set(questions.values())) == len(questions)


def shingles(prompt: WorkloadPrompt) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", " ".join(m.content for m in prompt.messages).lower())
    return {tuple(words[start : start + 6]) for start in range(len(words) - 5)}


def test_warm_ups_share_no_six_words_with_what_is_measured() -> None:
    seen = {part: p.id for prompts in measured().values() for p in prompts for part in shingles(p)}
    ids = {prompt.id for prompts in measured().values() for prompt in prompts}
    for prompts in warm_ups().values():
        assert len(prompts) >= 2
        for prompt in prompts:
            assert prompt.id not in ids
            assert prompt.id.startswith("warm_up/")
            assert not [seen[part] for part in shingles(prompt) & seen.keys()], prompt.id


GOOD: dict[str, str] = {
    "repetitive/release-number": "```yaml\n{source}\n```",
    "reasoning/train-tickets": "Let the adult pay 14. Then 2 * 14 + 3 * 7 = 49. Answer: 14",
    "reasoning/race": "Mara, Nils, Olga, Piet. Third was Olga.",
    "reasoning/rain-barrel": "180, 145, 110, 95, 60 litres. Answer: 60",
    "reasoning/trace-loop": "3, then 10, then nothing more. It prints 10",
    "structured/complaint-ticket": json.dumps(
        {
            "customer": "Teodor Brandl",
            "product": "milk frother",
            "severity": "high",
            "days": 4,
            "refund": True,
        }
    ),
    "structured/tool-table": json.dumps(
        {
            "name": "book_table",
            "arguments": {
                "restaurant": "Blue Heron",
                "date": "2026-06-12",
                "time": "19:30",
                "guests": 5,
                "outside": True,
            },
        }
    ),
    "structured/tool-choice": json.dumps(
        {
            "name": "find_train",
            "arguments": {"start": "Orebro", "destination": "Karlstad", "arrive_by": "09:00"},
        }
    ),
    "prose/snow-poem": "Snow on the wires,\nwhite on the roofs,\nand nobody out.\n\n" * 1
    + "A tram waits\nfor somebody\nwith a shovel.\n\nThen it is evening.",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_answer_passes(name: str) -> None:
    [prompt] = [p for prompts in measured().values() for p in prompts if p.id == name]
    source = prompt.messages[-1].content
    block = source.split("```")[1].partition("\n")[2].strip() if "```" in source else ""
    text = GOOD[name].replace("{source}", block.replace("1.4.2", "1.5.0"))
    judged = judge(prompt, text, None, "stop")
    assert {passed for key, passed in judged.items() if key != "exact"} == {True}, judged


def test_rows_that_a_prompt_shows_are_of_its_schema() -> None:
    for prompt in measured()["csv_to_json"]:
        source = prompt.messages[-1].content
        header, *rows = source.split("```")[1].removeprefix("csv").strip().splitlines()
        mark = ";" if ";" in header else ","
        value = [dict(zip(header.split(mark), row.split(mark), strict=True)) for row in rows]
        for row in value:
            row.pop("note", None)
        typed = [{key: _typed(key, text) for key, text in row.items()} for row in value]
        whole = {"results": typed} if "`results`" in source else typed
        assert judge(prompt, json.dumps(whole), None, "stop")["schema"] is True, prompt.id
        shorter = {"results": typed[1:]} if "`results`" in source else typed[1:]
        assert judge(prompt, json.dumps(shorter), None, "stop")["schema"] is False, prompt.id


def _typed(key: str, text: str) -> object:
    if key == "reserved":
        return text == "yes"
    try:
        return float(text)
    except ValueError:
        return text


def test_a_line_and_the_file_of_judgements_must_not_both_judge(tmp_path: Path) -> None:
    judgement = {"judgement": "rubric", "checks": ["not_degenerate"]}
    path = tmp_path / "judgements.json"
    path.write_text(json.dumps({"version": 3, "prompts": {"chat/desk-plant": judgement}}))
    [prompt] = [p for p in measured()["chat"] if p.id == "chat/desk-plant"]
    with pytest.raises(RequestError, match="one judgement of chat/desk-plant"):
        read_judgements(tmp_path).applied(prompt)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version": 2, "questions": {}}',
        '{"version": 3, "questions": {"prose": 1}}',
        '{"version": 3, "questions": {}, "more": 1}',
        '{"version": 3, "questions": {"prose": "Why?"}}',
    ],
)
def test_malformed_questions_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "strata.json").write_text(content)
    with pytest.raises(RequestError):
        read_strata(tmp_path)


def test_a_task_without_a_question_has_that_of_its_stratum() -> None:
    strata = Strata(version=3, questions={"prose": "P?", "random": "R?"})
    assert (strata.question("random", "prose"), strata.question("other", "prose")) == ("R?", "P?")
