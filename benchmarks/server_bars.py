"""The bars of the server, once, and how the record of server.py is held against them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from speculation_bars import Outcome

from slipstream.measure.speculation_summary import FEWEST_PAIRS
from slipstream.measure.statistics import Ratio, paired_ratio

Record = Mapping[str, Any]

OWN, PEER = "slipstream", "llama"
FIRST_TOKEN, PLAIN_RATE, EDITING_RATE = 1.05, 0.97, 1.9
AGGREGATE: Final = {"4": 2.3, "8": 3.2}
OVERHEAD: Final = {"qwen2.5-coder-1.5b": 1.03, "smollm2-135m": 1.10}
OF_SERVERS: Final = "qwen2.5-coder-1.5b"
"""The model on which servers are compared; other models' figures are shown without a verdict."""


def _outcome(
    title: str,
    ratio: Ratio | None,
    bar: float | None,
    *,
    at_most: bool,
    note: str = "",
    valid: bool = True,
) -> Outcome:
    """
    Args:
        bar: None = the figure is told without a verdict.
        valid: False: something is wrong with the outputs, so no bar is met.
    """
    wanted = "no bar" if bar is None else f"{'<=' if at_most else '>='} {bar:.2f}"
    if ratio is None:
        return Outcome(title, wanted, None, None, None, 0, None, note)
    enough = ratio.pairs >= FEWEST_PAIRS
    low, high = (ratio.low, ratio.high) if enough else (None, None)
    met = None
    if bar is not None and enough:
        met = valid and (ratio.median <= bar if at_most else ratio.median >= bar)
    return Outcome(title, wanted, ratio.median, low, high, ratio.pairs, met, note)


def pairs(section: Record, field: str, names: tuple[str, str]) -> Ratio | None:
    """Ratio of a field between two engines over prompts and rounds; None of nothing.

    Args:
        names: numerator and denominator.
    """
    over: list[float] = []
    under: list[float] = []
    for prompt in section["prompts"].values():
        over += [sample[field] for sample in prompt["samples"][names[0]]]
        under += [sample[field] for sample in prompt["samples"][names[1]]]
    return paired_ratio(over, under) if over else None


def _bar(model: str, bar: float) -> float | None:
    return bar if model == OF_SERVERS else None


def _single(model: str, section: Record) -> Iterator[Outcome]:
    note = f"its best: {section['best']}"
    first = pairs(section, "first_s", (OWN, PEER))
    rate = pairs(section, "tok_s", (OWN, PEER))
    yield _outcome(
        "1 stream: time to first token / llama.cpp's",
        first,
        _bar(model, FIRST_TOKEN),
        at_most=True,
        note=note,
    )
    yield _outcome(
        "1 stream: tokens/s / llama.cpp's", rate, _bar(model, PLAIN_RATE), at_most=False, note=note
    )


def _editing(model: str, section: Record) -> Iterator[Outcome]:
    yield _outcome(
        "1 stream, code editing: auto / llama.cpp's best drafting",
        pairs(section, "tok_s", (OWN, PEER)),
        _bar(model, EDITING_RATE),
        at_most=False,
        note=f"its best: {section['best']}",
    )


def _streams(model: str, section: Record) -> Iterator[Outcome]:
    for number, bar in AGGREGATE.items():
        if number in section["streams"]:
            taken = section["streams"][number]
            rates = [[sample["tok_s"] for sample in taken[name]] for name in (OWN, PEER)]
            yield _outcome(
                f"{number} streams: aggregate tokens/s / llama.cpp's",
                paired_ratio(*rates),
                _bar(model, bar),
                at_most=False,
                note=f"its best: {section['best'][number]}",
            )


def differing(section: Record) -> list[str]:
    """Prompts whose text differs between the samples of a section, whoever made them."""
    found = []
    for key, prompt in section["prompts"].items():
        every = [s["text_sha256"] for samples in prompt["samples"].values() for s in samples]
        if len(set(every)) > 1:
            found.append(key)
    return found


def _overhead(model: str, section: Record) -> Iterator[Outcome]:
    wrong = differing(section)
    yield _outcome(
        "server / engine, time of a request",
        pairs(section, "whole_s", ("server", "engine")),
        OVERHEAD.get(model),
        at_most=True,
        note="".join(f"; THE OUTPUT DIFFERS: {key}" for key in wrong).removeprefix("; "),
        valid=not wrong,
    )


def outcomes(model: str, record: Record) -> list[Outcome]:
    """Every figure that the record says something of, with its bar.

    Args:
        record: sections by name.
    """
    makers = {"single": _single, "editing": _editing, "streams": _streams, "overhead": _overhead}
    found: list[Outcome] = []
    for name, maker in makers.items():
        if name in record:
            found += maker(model, record[name])
    return found
