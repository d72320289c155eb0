"""slipstream bench rows"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from slipstream.cli.flags import add_flags, options
from slipstream.cli.identity import identity
from slipstream.cli.numbers import parse_row_counts, whole_number
from slipstream.cli.output import add_json, print_json, progress_bar, table
from slipstream.options import ModelOptions

if TYPE_CHECKING:
    from slipstream.measure.rows import RowCost

_COUNTS = "1,2,3,4,6,8,12,16"
_READ_BYTES = 1 << 30
_HEADER = ["rows", "ms", "ratio", "weight GB/s", "spread"]


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, ModelOptions)
    parser.add_argument(
        "--rows", metavar="R,..", default=_COUNTS, help=f"the first is the base [{_COUNTS}]"
    )
    parser.add_argument("--depth", metavar="N", default="64", help="positions before them [64]")
    parser.add_argument("--rounds", metavar="N", default="15", help="timed rounds [15]")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> None:
    from slipstream.cli.opening import open_program
    from slipstream.measure.rows import row_costs

    model_options = options(ModelOptions, arguments)
    counts = parse_row_counts(arguments.rows)
    depth = whole_number("--depth", arguments.depth)
    rounds = whole_number("--rounds", arguments.rounds)
    loaded = open_program(model_options)
    record = identity(model_options, loaded)
    before = _read_bandwidth(model_options, record["threads"])
    with progress_bar("passes") as progress:
        costs = row_costs(loaded, counts, depth=depth, rounds=rounds, progress=progress)
    after = _read_bandwidth(model_options, record["threads"])
    read = None if before is None or after is None else max(before, after)
    _print(costs, read, record["threads"])
    if arguments.json:
        rows = [asdict(cost) for cost in costs]
        observed = dict(loaded.program.observed())
        measured = {"depth": depth, "rounds": rounds, "read_gb_s": read, "rows": rows}
        print_json({**record, **measured, "observed": observed})


def _print(costs: list[RowCost], read: float | None, threads: int | None) -> None:
    lines = [
        [c.rows, f"{c.ms:.2f}", f"{c.ratio:.2f}", f"{c.weight_gb_s:.1f}", f"{100 * c.spread:.0f} %"]
        for c in costs
    ]
    print(table(_HEADER, lines, text=0))
    print("ms: median of the rounds; ratio: to the first; spread: (largest - smallest) / median")
    if read is not None:
        print(f"plain read of memory beside it: {read:.1f} GB/s with {threads} threads")


def _read_bandwidth(model_options: ModelOptions, threads: int | None) -> float | None:
    """GB/s of a plain read by all threads, best of three; None on the NumPy backend."""
    if model_options.backend != "cpu":
        return None
    from slipstream import _native

    return _native.read_bandwidth(_READ_BYTES, threads or 1) / 1e9
