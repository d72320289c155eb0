"""Prompts of other sets: what is read of them, what is said to be left out, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import InputError, OptionError, RequestError
from slipstream.lab.importers import FORMATS, lines, questions, read_prompts
from slipstream.measure.workload import content_digest

SPEC = [
    {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."], "reference": []},
    {"question_id": 82, "category": "writing", "turns": ["Describe."]},
    {"question_id": 161, "category": "translation", "turns": ["Translate: Hallo"]},
    {"question_id": 162, "category": "math_reasoning", "turns": ["1 + 1?"]},
]
SPEED: list[dict[str, Any]] = [
    {
        "question_id": "c-0001",
        "category": "STEM",
        "sub_category": "physics",
        "turns": ["Why?", "And then?", "Sure?"],
        "source": "somewhere",
        "src_id": "1",
        "difficulty": "easy",
        "multiturn": True,
    },
    {"question_id": "c-0002", "category": "low_entropy", "turns": ["Sort this."]},
]


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_spec_bench(tmp_path: Path) -> None:
    imported = read_prompts(written(tmp_path / "question.jsonl", SPEC), "spec-bench", 1)
    found = imported.categories
    assert list(found) == [
        "spec-bench-writing",
        "spec-bench-translation",
        "spec-bench-math_reasoning",
    ]
    assert [category.kind for category in found.values()] == ["prose", "prose", "reasoning"]
    [prompt] = found["spec-bench-writing"].prompts
    assert prompt.id == "spec-bench-writing/81"
    assert prompt.chat_messages() == [{"role": "user", "content": "Write."}]
    assert prompt.sha256 == content_digest(prompt.messages)
    assert (prompt.licence, prompt.source, prompt.judgement) == ("unknown", "Spec-Bench", "exact")
    note = "1 of 2 questions; later turns of 1 questions left out"
    assert found["spec-bench-writing"].note == note
    assert found["spec-bench-translation"].note == ""


def test_speed_bench(tmp_path: Path) -> None:
    imported = read_prompts(written(tmp_path / "speed.jsonl", SPEED), "speed-bench", 4)
    assert list(imported.categories) == ["speed-bench-stem", "speed-bench-low_entropy"]
    stem = imported.categories["speed-bench-stem"]
    assert (stem.kind, stem.note) == ("reasoning", "later turns of 1 questions left out")
    assert stem.prompts[0].licence == "nvidia-evaluation-dataset-license"
    assert imported.categories["speed-bench-low_entropy"].kind == "long_input"


def test_an_unprepared_speed_bench_is_refused(tmp_path: Path) -> None:
    told = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    path = written(tmp_path / "speed.jsonl", [{**SPEED[1], "turns": [told]}])
    with pytest.raises(RequestError, match=r"line 1 .* not prepared"):
        read_prompts(path, "speed-bench", 4)


def test_plain_lines(tmp_path: Path) -> None:
    rows = [
        {"prompt": "Ours?"},
        {
            "id": "long",
            "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
            "category": "Our Load",
            "kind": "chat",
            "max_tokens": 32,
            "license": "CC0-1.0",
            "judgement": "rubric",
            "checks": ["mentions:x"],
            "typical": True,
        },
    ]
    imported = read_prompts(written(tmp_path / "mine.jsonl", rows), "jsonl", 4)
    assert list(imported.categories) == ["mine", "our_load"]
    [first] = imported.categories["mine"].prompts
    assert first.id == f"mine/{first.sha256[:12]}"
    assert (first.stratum, first.licence, first.source) == ("imported", "unknown", "mine.jsonl")
    [second] = imported.categories["our_load"].prompts
    assert (second.id, second.max_tokens, second.licence) == ("our_load/long", 32, "CC0-1.0")
    assert second.typical
    assert second.checks == ("mentions:x",)
    assert imported.categories["our_load"].kind == "chat"


def test_categories_may_be_chosen_and_ids_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "question.jsonl", SPEC)
    chosen = read_prompts(path, "spec-bench:translation, Writing", 1, ["spec-bench-writing/82"])
    assert list(chosen.categories) == ["spec-bench-writing", "spec-bench-translation"]
    ids = [prompt.id for prompt in chosen.categories["spec-bench-writing"].prompts]
    assert ids == ["spec-bench-writing/81", "spec-bench-writing/82"]
    with pytest.raises(OptionError, match="writing, translation, math_reasoning"):
        read_prompts(path, "spec-bench:poems", 1)
    with pytest.raises(OptionError, match="Did you mean `spec-bench`"):
        read_prompts(path, "specbench", 1)


def test_what_is_typical_is_kept_beyond_the_most(tmp_path: Path) -> None:
    rows = [{"id": str(n), "prompt": f"P{n}", "typical": n == 3} for n in range(5)]
    imported = read_prompts(written(tmp_path / "mine.jsonl", rows), "jsonl", 2)
    assert [p.id for p in imported.categories["mine"].prompts] == ["mine/0", "mine/1", "mine/3"]


def test_a_byte_order_mark_and_blank_lines_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"prompt": "a"}\n\n  \n{"prompt": "b"}')
    assert len(read_prompts(path, "jsonl", 4).categories["mine"].prompts) == 2


PLAIN: dict[str, Any] = {"prompt": "P"}
QUESTION: dict[str, Any] = {"question_id": 1, "category": "qa", "turns": ["T"]}


@pytest.mark.parametrize(
    ("form", "row", "told"),
    [
        ("jsonl", [], "a JSON object in line 2"),
        ("jsonl", "text", "a JSON object in line 2"),
        ("jsonl", {}, "not one of `prompt` and `messages`"),
        ("jsonl", PLAIN | {"messages": [{"role": "user", "content": "x"}]}, "not one of"),
        ("jsonl", PLAIN | {"max_token": 3}, "did you mean `max_tokens`"),
        ("jsonl", PLAIN | {"max_tokens": 0}, "`max_tokens` 0"),
        ("jsonl", PLAIN | {"max_tokens": 10**9}, "`max_tokens` 1000000000"),
        ("jsonl", PLAIN | {"kind": "poems"}, "kind"),
        ("jsonl", PLAIN | {"kind": "prose"}, "in a category of imported"),
        ("jsonl", PLAIN | {"category": "../../etc"}, "`category`"),
        ("jsonl", PLAIN | {"category": "x" * 65}, "`category`"),
        ("jsonl", PLAIN | {"id": "a b"}, "`id`"),
        ("jsonl", PLAIN | {"id": True}, "int"),
        ("jsonl", {"prompt": "first"}, "for the second time"),
        ("jsonl", {"prompt": " \n"}, "without text"),
        ("jsonl", PLAIN | {"judgement": "taste"}, "judgement"),
        ("spec-bench", QUESTION | {"turns": []}, "`turns`"),
        ("spec-bench", QUESTION | {"turns": "T"}, "`turns`"),
        ("spec-bench", QUESTION | {"turns": ["T", 3]}, "`turns`"),
        ("spec-bench", QUESTION | {"question_id": None}, "`question_id`"),
        ("spec-bench", QUESTION | {"question_id": True}, "`question_id`"),
        ("spec-bench", QUESTION | {"question_id": "x" * 200}, "`question_id`"),
        ("spec-bench", QUESTION | {"category": 7}, "`category`"),
        ("spec-bench", {"question_id": 1, "turns": ["T"]}, "`category`"),
        ("speed-bench", QUESTION | {"turns": [None]}, "`turns`"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, form: str, row: Any, told: str) -> None:
    good = {"prompt": "first"} if form == "jsonl" else QUESTION | {"question_id": 2}
    path = written(tmp_path / "mine.jsonl", [good, row])
    with pytest.raises(RequestError, match="line 2") as caught:
        read_prompts(path, form, 4)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "an empty file"),
        (b"\n\n", "an empty file"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (b"\x1f\x8b\x08\x00", "a gzip file"),
        (b"{", "JSON in line 1"),
        (b"\xff\xfe{", "JSON in line 1"),
        (b'{"prompt": "\xff"}', "JSON in line 1"),
        (b'{"prompt": "\\ud800"}', "line 1"),
        (b'{"prompt": ' + b"[" * 100_000, "line 1"),
    ],
)
def test_files_that_are_none_of_ours(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=told):
        read_prompts(path, "jsonl", 4)


def test_no_file_or_no_regular_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none", tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RequestError, match="a file"):
            read_prompts(path, "jsonl", 4)


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "mine.jsonl", [{"prompt": f"{n}" * 50} for n in range(9)])
    monkeypatch.setattr(lines, "MOST_LINE_BYTES", 20)
    with pytest.raises(RequestError, match="at most 4 MiB in line 1"):
        read_prompts(path, "jsonl", 4)
    monkeypatch.setattr(lines, "MOST_LINE_BYTES", 1000)
    monkeypatch.setattr(lines, "MOST_FILE_BYTES", 20)
    with pytest.raises(RequestError, match="1 GiB"):
        read_prompts(path, "jsonl", 4)
    monkeypatch.setattr(lines, "MOST_FILE_BYTES", 1 << 20)
    monkeypatch.setattr(questions, "_MOST_KEPT", 120)
    with pytest.raises(RequestError, match="characters of prompts"):
        read_prompts(path, "jsonl", 4)
    assert len(read_prompts(path, "jsonl", 2).categories["mine"].prompts) == 2
    monkeypatch.setattr(questions, "_MOST_QUESTIONS", 5)
    with pytest.raises(RequestError, match="5 questions"):
        read_prompts(path, "jsonl", 2)
    path = written(path, [{"prompt": "x", "category": f"c{n}"} for n in range(70)])
    monkeypatch.setattr(questions, "_MOST_QUESTIONS", 500)
    with pytest.raises(RequestError, match="64 categories"):
        read_prompts(path, "jsonl", 2)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
keys = st.sampled_from(["question_id", "category", "turns", "prompt", "messages", "id", "kind"])


@given(st.lists(st.dictionaries(keys, values), max_size=3), st.sampled_from(sorted(FORMATS)))
def test_any_objects_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], form: str
) -> None:
    path = written(tmp_path_factory.mktemp("any") / "mine.jsonl", rows)
    try:
        imported = read_prompts(path, form, 2)
    except InputError:
        return
    assert imported.categories
