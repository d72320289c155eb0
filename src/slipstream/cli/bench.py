"""slipstream bench rows | decode | speculate"""

from __future__ import annotations

import datetime
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from slipstream.cli.flags import with_options
from slipstream.cli.output import Json, print_json, table
from slipstream.errors import OptionError
from slipstream.options import ModelOptions, SpeculationOptions

if TYPE_CHECKING:
    from slipstream.loading import LoadedModel
    from slipstream.measure.speculation import Summary

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)

_ROWS = "1,2,3,4,6,8,12,16"
_READ_BYTES = 1 << 30


@app.callback()
def bench() -> None:
    """Measure rows, decoding and speculation; figures hold for this machine and moment."""


def _load(options: ModelOptions) -> LoadedModel:
    from slipstream.cli.opening import fetch_if_missing
    from slipstream.loading import load_model
    from slipstream.options import EngineOptions

    fetch_if_missing(options.model)
    return load_model(options, EngineOptions())


def _identity(options: ModelOptions, loaded: LoadedModel) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "model": options.model,
        "backend": loaded.backend.name,
        "isa": getattr(loaded.backend, "isa", "numpy"),
        "threads": getattr(loaded.backend, "threads", None),
    }


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1 or max(counts) > 512:
        raise OptionError("row counts from 1 to 512 such as 1,2,4", text, "Separate by commas.")
    return counts


def _read_bandwidth(options: ModelOptions, threads: int) -> float | None:
    """GB/s of a plain read by all threads; None on the NumPy backend."""
    if options.backend != "cpu":
        return None
    from slipstream import _native

    return max(_native.read_bandwidth(_READ_BYTES, threads) for _ in range(3)) / 1e9


@app.command()
@with_options(ModelOptions)
def rows(
    model_options: ModelOptions,
    rows: Annotated[str, typer.Option(help="Row counts, the first is the base.")] = _ROWS,
    depth: Annotated[int, typer.Option(min=1, help="Positions in front of the rows.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 15,
    as_json: Json = False,
) -> None:
    """What a pass of R rows costs, against one row and the read bandwidth."""
    from slipstream.measure.rows import row_costs

    counts = _counts(rows)
    loaded = _load(model_options)
    identity = _identity(model_options, loaded)
    before = _read_bandwidth(model_options, identity["threads"] or 1)
    costs = row_costs(loaded.program, loaded.weights.step_bytes, counts, depth=depth, rounds=rounds)
    after = _read_bandwidth(model_options, identity["threads"] or 1)
    read = None if before is None or after is None else max(before, after)
    lines = [
        [c.rows, f"{c.ms:.2f}", f"{c.ratio:.2f}", f"{c.weight_gb_s:.1f}", f"{100 * c.spread:.0f} %"]
        for c in costs
    ]
    print(table(["rows", "ms", "ratio", "weight GB/s", "spread"], lines))
    if read is not None:
        print(f"read bandwidth beside it: {read:.1f} GB/s ({identity['threads']} threads)")
    if as_json:
        print_json(
            {**identity, "depth": depth, "read_gb_s": read, "rows": [asdict(c) for c in costs]}
        )


@app.command()
@with_options(ModelOptions)
def decode(
    model_options: ModelOptions,
    prompt: Annotated[int, typer.Option(min=1, help="Prompt tokens.")] = 128,
    count: Annotated[int, typer.Option(min=1, help="Tokens to decode.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Repeats.")] = 5,
    as_json: Json = False,
) -> None:
    """Prefill and one-row decoding speed, without drafts."""
    import numpy as np

    from slipstream.measure.rows import chain_step, fill

    loaded = _load(model_options)
    program = loaded.program
    prefill_rates, decode_rates = [], []
    for number in range(rounds + 1):
        sequence = program.memory.open()
        begin = time.perf_counter()
        fill(program, sequence, prompt)
        middle = time.perf_counter()
        for _ in range(count):
            program.run(chain_step(sequence, np.array([1], dtype=np.int32)))
            program.memory.commit(sequence, [0])
        end = time.perf_counter()
        program.memory.close(sequence)
        if number:
            prefill_rates.append(prompt / (middle - begin))
            decode_rates.append(count / (end - middle))
    record = {
        **_identity(model_options, loaded),
        "prompt": prompt,
        "count": count,
        "prefill_tok_s": statistics.median(prefill_rates),
        "decode_tok_s": statistics.median(decode_rates),
    }
    print(f"prefill of {prompt} tokens: {record['prefill_tok_s']:.1f} tokens/s")
    print(f"decode of {count} tokens: {record['decode_tok_s']:.1f} tokens/s")
    if as_json:
        print_json(record)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _line(s: Summary) -> list[object]:
    ratio = s.speed_up
    interval = "-" if ratio is None else f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    fit = s.prompts - len(s.degenerate)
    return [
        s.name,
        f"{fit}/{s.prompts}",
        _number(s.plain_tok_s),
        _number(s.tok_s),
        interval,
        s.drafted,
        s.accepted,
        _number(s.tokens_per_pass, 2),
        "yes" if s.identical else "NO",
    ]


_HEADER = [
    "workload",
    "fit",
    "tok/s off",
    "tok/s on",
    "speed-up [95 %]",
    "drafted",
    "accepted",
    "tokens/pass",
    "identical",
]


@app.command()
@with_options(ModelOptions, SpeculationOptions)
def speculate(
    model_options: ModelOptions,
    speculation_options: SpeculationOptions,
    workloads: Annotated[Path, typer.Option(help="Folder of workload files.")] = Path("workloads"),
    strata: Annotated[str, typer.Option(help="Strata, separated by commas.")] = "",
    prompts: Annotated[int, typer.Option(min=1, help="Most prompts per stratum.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per prompt.")] = 1,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most tokens per output.")] = 256,
    as_json: Json = False,
) -> None:
    """Generate on every workload with speculation off and on; the output must be identical."""
    from slipstream.cli.opening import open_model
    from slipstream.measure.speculation import PLAIN, run_pairs, summarise
    from slipstream.measure.workload import STRATA, read_workloads

    names = tuple(strata.split(",")) if strata else STRATA
    groups = read_workloads(workloads, names)
    opened = open_model(model_options)
    options = msgspec.structs.asdict(speculation_options)
    if speculation_options.type == (PLAIN,):
        options |= {"type": ("ngram-simple",), "ngram_simple_size_n": 4, "ngram_simple_size_m": 12}
    method = ",".join(options["type"])
    conditions = {PLAIN: {"type": (PLAIN,)}, method: options}
    every, summaries = [], []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        samples = list(
            run_pairs(
                opened,
                groups[name][:prompts],
                conditions,
                rounds=rounds,
                max_tokens=limit,
                reset=opened.forget,
            )
        )
        every += samples
        summaries.append(summarise(name, method, samples))
    summaries.append(summarise("all", method, every))
    print(f"{model_options.model}, greedy: speculation off and {method}, cold, interleaved")
    print(table(_HEADER, [_line(s) for s in summaries]))
    for prompt, reason in summaries[-1].degenerate.items():
        print(f"left out of the figures: {prompt} ({reason})")
    if as_json:
        print_json(
            {
                **_identity(model_options, opened.loaded),
                "method": method,
                "summaries": [asdict(s) for s in summaries],
            }
        )
    if not summaries[-1].identical:
        raise typer.Exit(1)
