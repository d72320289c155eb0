"""Results of llama.cpp's SPEED-Bench client as records that name what they lack.

Assumed format (llama.cpp, ``tools/server/bench/speed-bench/README.md`` as of commit 440e352): one
JSON object with ``config``, the counts ``selected_samples``, ``completed_samples`` and
``failed_samples``, ``summary`` (a row per category, with ``draft_n`` and ``accepted``) and
``results`` (one per sample). The page does not spell out the keys of a sample; each figure is
looked for in the sample, then in its ``timings``, under the names of llama.cpp's timings and those
of the summary (``_KEYS``). What is not found is None and named among what the record lacks.

Such records are no run of the lab: nothing fixed their binary, model, order or texts, so no gate
can be passed by them. They are there to be shown beside a run, as not comparable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from slipstream.errors import RequestError
from slipstream.lab.contract.records import Counts, RequestRecord
from slipstream.lab.importers.questions import name_of

RUNTIME: Final = "llama.cpp speed-bench client"
ALWAYS_LACKING: Final = (
    "a manifest: digests of binary, model and draft, hardware, rules",
    "order, repeats and a warm-up that is known",
    "token times and time to first token",
    "token ids of the output: equality with `none` cannot be told",
    "steps: rows per step are unknown",
    "acceptance by position",
    "peak memory and energy",
    "metrics of the server before and after",
)
_MOST_BYTES: Final = 256 << 20
_MOST_SAMPLES: Final = 100_000
_MOST_TEXT: Final = 4096
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "total_s": ("latency", "latency_s", "total_s", "elapsed_s"),
    "prompt_tokens": ("prompt_n", "prompt_tokens"),
    "output_tokens": ("predicted_n", "completion_tokens"),
    "prompt_tok_s": ("prompt_per_second",),
    "decode_tok_s": ("predicted_per_second",),
    "drafted": ("draft_n",),
    "accepted": ("draft_n_accepted", "accepted"),
}
_WHOLE: Final = frozenset({"prompt_tokens", "output_tokens", "drafted", "accepted"})


@dataclass(frozen=True)
class ImportedResults:
    """A file of the client.

    Attributes:
        config: of the client, as it wrote it.
        lacks: of every record; what single records lack is in their ``diagnostics``.
        disagreements: where the file contradicts itself.
    """

    file: str
    config: Mapping[str, Any]
    records: tuple[RequestRecord, ...]
    lacks: tuple[str, ...]
    disagreements: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    config: dict[str, Any] = {}
    selected_samples: int | None = None
    completed_samples: int | None = None
    failed_samples: int | None = None
    summary: list[dict[str, Any]] = []
    results: list[dict[str, Any]]


def read_results(path: Path, run: str, condition: str) -> ImportedResults:
    """
    Args:
        run: name of the import, for the records.
        condition: what the server drafted with, as the person who ran the client knows it.

    Raises:
        RequestError: the file is missing, over 256 MiB or not of this format; it names the sample.
    """
    file = _read(path)
    records = tuple(
        _record(path, number, sample, run, condition) for number, sample in enumerate(file.results)
    )
    return ImportedResults(
        path.name, file.config, records, ALWAYS_LACKING, tuple(_disagreements(file, records))
    )


def _bad(path: Path, found: str) -> RequestError:
    return RequestError(
        "a file that llama.cpp's speed_bench.py wrote with --output",
        f"{path.name}: {found}",
        "Name that file; a summary alone cannot be imported.",
    )


def _read(path: Path) -> _File:
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        raise _bad(path, "no file, or one over 256 MiB")
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise _bad(path, str(problem)) from None
    if len(file.results) > _MOST_SAMPLES:
        raise _bad(path, f"{len(file.results)} samples, over {_MOST_SAMPLES}")
    return file


def _record(
    path: Path, number: int, sample: Mapping[str, Any], run: str, condition: str
) -> RequestRecord:
    try:
        figures = {name: _figure(name, sample) for name in _KEYS}
        error = _text(sample, "error")
        category = f"speed-bench-{name_of(sample.get('category', 'unknown'))}"
        counts = _counts(figures)
        prompt = _text(sample, "question_id") or _text(sample, "id") or f"sample {number}"
        finish_reason = _text(sample, "finish_reason")
    except ValueError as problem:
        raise _bad(path, f"sample {number}: {problem}") from None
    lacking = [name for name, value in figures.items() if value is None]
    return RequestRecord(
        run=run,
        block=0,
        index=number,
        runtime=RUNTIME,
        condition=condition,
        stratum=category,
        prompt=prompt,
        total_s=figures["total_s"],
        prompt_tokens=_whole(figures["prompt_tokens"]),
        output_tokens=_whole(figures["output_tokens"]),
        prompt_tok_s=figures["prompt_tok_s"],
        decode_tok_s=figures["decode_tok_s"],
        counts=counts,
        finish_reason=finish_reason,
        diagnostics=(f"imported from {path.name}", *(f"lacks {name}" for name in lacking)),
        error=error,
    )


def _figure(name: str, sample: Mapping[str, Any]) -> float | None:
    """
    Raises:
        ValueError: it is no number from 0 up, or no whole one where it counts something.
    """
    timings = sample.get("timings")
    for part in (sample, timings if isinstance(timings, dict) else {}):
        for key in _KEYS[name]:
            value = part.get(key)
            if value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value < 1e15 or not math.isfinite(value):
                raise ValueError(f"`{key}` {repr(value)[:80]}")
            if name in _WHOLE and value % 1:
                raise ValueError(f"`{key}` {value}, not a whole number")
            return float(value)
    return None


def _text(sample: Mapping[str, Any], key: str) -> str:
    value = sample.get(key)
    if value is None or value is False:
        return ""
    if not isinstance(value, str | int):
        raise ValueError(f"`{key}` of type {type(value).__name__}")
    return str(value)[:_MOST_TEXT]


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _counts(figures: Mapping[str, float | None]) -> Counts:
    """
    Raises:
        ValueError: more was accepted than drafted.
    """
    drafted, accepted = _whole(figures["drafted"]), _whole(figures["accepted"])
    if (accepted or 0) > (drafted if drafted is not None else math.inf):
        raise ValueError(f"{accepted} accepted of {drafted} drafted")
    known = drafted is not None or accepted is not None
    return Counts(drafted=drafted, accepted=accepted, source="request" if known else "unknown")


def _disagreements(file: _File, records: Sequence[RequestRecord]) -> list[str]:
    """Counts of the file against its own samples."""
    failed = sum(bool(record.error) for record in records)
    found = []
    for name, given, counted in (
        ("completed_samples", file.completed_samples, len(records) - failed),
        ("failed_samples", file.failed_samples, failed),
    ):
        # Samples that failed may be counted and not listed.
        if given is not None and given != counted and (name != "failed_samples" or failed):
            found.append(f"{name} {given}, but {counted} among the results")
    for row in file.summary:
        found += _row_disagreements(row, records)
    return found


def _row_disagreements(row: Mapping[str, Any], records: Sequence[RequestRecord]) -> list[str]:
    category = row.get("category")
    if not isinstance(category, str):
        return ["a row of the summary without its category"]
    wanted = f"speed-bench-{category.strip().lower().replace(' ', '_')}"
    counts = [r.counts for r in records if category == "overall" or r.stratum == wanted]
    found = []
    for key, values in (
        ("draft_n", [count.drafted for count in counts]),
        ("accepted", [count.accepted for count in counts]),
    ):
        given, known = row.get(key), [value for value in values if value is not None]
        if isinstance(given, int) and known and len(known) == len(values) and given != sum(known):
            found.append(f"{key} {given} in the summary of {category[:64]}, but {sum(known)} in it")
    return found
