"""slipstream bench rows"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from slipstream.cli.flags import add_flags, options
from slipstream.cli.identity import identity
from slipstream.cli.numbers import parse_row_counts, whole_number
from slipstream.cli.output import add_json, print_json, progress_bar, table
from slipstream.cli.statistics import precision_line
from slipstream.options import ModelOptions, Precision

if TYPE_CHECKING:
    from slipstream.loading import LoadedModel
    from slipstream.measure.probes import MachineProbe
    from slipstream.measure.rows import RowCost

_COUNTS = "1,2,3,4,6,8,12,16"
_HEADER = ["rows", "ms", "ratio", "weight GB/s", "limit ms", "spread"]


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
    loaded = open_program(model_options, quiet=arguments.json)
    record = identity(model_options, loaded)
    before = _probe(model_options, record)
    with progress_bar("passes") as progress:
        costs = row_costs(loaded, counts, depth=depth, rounds=rounds, progress=progress)
    machine = _better(before, _probe(model_options, record))
    limits = [_limit_ms(machine, loaded, cost.rows, model_options.precision) for cost in costs]
    _print(costs, limits, machine, record)
    if arguments.json:
        rows = [
            {**asdict(cost), "limit_ms": limit} for cost, limit in zip(costs, limits, strict=True)
        ]
        measured = {
            "depth": depth,
            "rounds": rounds,
            "read_gb_s": machine and machine.read_gb_s,
            "peak_gmac_s": machine and machine.peak_gmac_s,
            "rows": rows,
        }
        print_json({**record, **measured, "observed": dict(loaded.program.observed())})


def _print(
    costs: list[RowCost],
    limits: list[float | None],
    machine: MachineProbe | None,
    record: Mapping[str, Any],
) -> None:
    lines = [
        [
            cost.rows,
            f"{cost.ms:.2f}",
            f"{cost.ratio:.2f}",
            f"{cost.weight_gb_s:.1f}",
            "-" if limit is None else f"{limit:.2f}",
            f"{100 * cost.spread:.0f} %" + (" drifting" if cost.drifting else ""),
        ]
        for cost, limit in zip(costs, limits, strict=True)
    ]
    print(table(_HEADER, lines, text=0))
    print(precision_line(record["precision"]))
    print("ms: median of the rounds; ratio: to the first; spread: (largest - smallest) / median")
    if machine is not None:
        print(
            f"limit: the slower of reading the weights ({machine.read_gb_s:.1f} GB/s here) and "
            f"multiplying ({machine.peak_gmac_s:.0f} GMAC/s), {record['threads']} threads"
        )


def _probe(model_options: ModelOptions, record: dict[str, Any]) -> MachineProbe | None:
    """What the machine gives at this moment; None on the NumPy backend."""
    if model_options.backend != "cpu":
        return None
    from slipstream.measure.probes import probe

    return probe(record["isa"], record["threads"] or 1)


def _better(a: MachineProbe | None, b: MachineProbe | None) -> MachineProbe | None:
    """The better of two probes in each respect."""
    if a is None or b is None:
        return None
    return replace(
        a,
        read_gb_s=max(a.read_gb_s, b.read_gb_s),
        peak_gmac_s=max(a.peak_gmac_s, b.peak_gmac_s),
    )


def _limit_ms(
    machine: MachineProbe | None, loaded: LoadedModel, rows: int, precision: Precision
) -> float | None:
    from slipstream.dispatch.structure import step_weights

    if machine is None:
        return None
    products = step_weights(loaded.graph, precision)
    return machine.limit_ms(rows, loaded.weights.step_bytes, products)
