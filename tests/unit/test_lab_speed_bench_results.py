"""Results of llama.cpp's SPEED-Bench client: records that say what they lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstream.errors import RequestError
from slipstream.lab.importers import speed_bench_results
from slipstream.lab.importers.speed_bench_results import ALWAYS_LACKING, RUNTIME, read_results

TIMINGS = {
    "prompt_n": 31,
    "prompt_per_second": 410.5,
    "predicted_n": 96,
    "predicted_per_second": 55.25,
    "draft_n": 80,
    "draft_n_accepted": 60,
}
SAMPLES: list[dict[str, Any]] = [
    {"question_id": "a", "category": "coding", "latency": 2.5, "timings": TIMINGS},
    {"question_id": "b", "category": "coding", "latency": 1.5, "draft_n": 10, "accepted": 4},
    {"question_id": "c", "category": "math", "error": "timed out"},
]
FILE: dict[str, Any] = {
    "config": {"url": "http://localhost:8080", "bench": "qualitative", "osl": 96},
    "selected_samples": 3,
    "completed_samples": 2,
    "failed_samples": 1,
    "summary": [
        {"category": "coding", "requests": 2, "draft_n": 90, "accepted": 64},
        {"category": "math", "requests": 0, "draft_n": 0, "accepted": 0},
    ],
    "results": SAMPLES,
}


def written(tmp_path: Path, file: Any) -> Path:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(file))
    return path


def test_records_of_the_client(tmp_path: Path) -> None:
    imported = read_results(written(tmp_path, FILE), "import-1", "ngram-mod")
    assert imported.config["osl"] == 96
    assert imported.lacks == ALWAYS_LACKING
    assert imported.disagreements == ()
    first, second, third = imported.records
    assert (first.run, first.runtime, first.condition) == ("import-1", RUNTIME, "ngram-mod")
    assert (first.stratum, first.prompt) == ("speed-bench-coding", "a")
    assert (first.total_s, first.prompt_tokens, first.output_tokens) == (2.5, 31, 96)
    assert (first.prompt_tok_s, first.decode_tok_s) == (410.5, 55.25)
    assert (first.counts.drafted, first.counts.accepted, first.counts.steps) == (80, 60, None)
    assert first.counts.source == "request"
    assert first.counts.rows_per_step is None
    assert first.diagnostics == ("imported from spec.json",)
    assert (second.counts.drafted, second.counts.accepted) == (10, 4)
    assert "lacks output_tokens" in second.diagnostics
    assert "lacks total_s" not in second.diagnostics
    assert third.error == "timed out"
    assert third.total_s is None
    assert third.counts.source == "unknown"


def test_a_file_that_contradicts_itself_is_told_of(tmp_path: Path) -> None:
    rows = [{"category": "coding", "draft_n": 91}, {"category": "overall", "accepted": 65}, {}]
    samples = [SAMPLES[0], SAMPLES[1]]
    file = FILE | {"completed_samples": 5, "failed_samples": 0, "summary": rows}
    found = read_results(written(tmp_path, file | {"results": samples}), "r", "c").disagreements
    assert found == (
        "completed_samples 5, but 2 among the results",
        "draft_n 91 in the summary of coding, but 90 in it",
        "accepted 65 in the summary of overall, but 64 in it",
        "a row of the summary without its category",
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"latency": -1}, "`latency`"),
        ({"latency": "2.5"}, "`latency`"),
        ({"latency": True}, "`latency`"),
        ({"latency": 1e300}, "`latency`"),
        ({"draft_n": 2.5}, "not a whole number"),
        ({"draft_n": 3}, "4 accepted of 3 drafted"),
        ({"category": "../x"}, "`category`"),
        ({"category": None}, "`category`"),
        ({"question_id": [1]}, "`question_id`"),
        ({"error": {"code": 1}}, "`error`"),
        ({"timings": {"draft_n_accepted": 99}, "accepted": None}, "99 accepted of 10"),
    ],
)
def test_impossible_figures_name_their_sample(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    samples = [SAMPLES[0], SAMPLES[1] | change]
    with pytest.raises(RequestError, match="sample 1") as caught:
        read_results(written(tmp_path, FILE | {"results": samples}), "r", "c")
    assert told in str(caught.value)


@pytest.mark.parametrize("file", [[], {}, {"results": {}}, {"results": [1]}, {"summary": []}])
def test_other_files_are_refused(tmp_path: Path, file: Any) -> None:
    with pytest.raises(RequestError, match=r"speed_bench\.py"):
        read_results(written(tmp_path, file), "r", "c")


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, FILE)
    monkeypatch.setattr(speed_bench_results, "_MOST_SAMPLES", 2)
    with pytest.raises(RequestError, match="3 samples"):
        read_results(path, "r", "c")
    monkeypatch.setattr(speed_bench_results, "_MOST_BYTES", 10)
    with pytest.raises(RequestError, match="256 MiB"):
        read_results(path, "r", "c")
    with pytest.raises(RequestError, match="256 MiB"):
        read_results(tmp_path, "r", "c")
    path.write_bytes(b'{"results": ' + b"[" * 9)
    with pytest.raises(RequestError, match=r"spec\.json"):
        read_results(path, "r", "c")
