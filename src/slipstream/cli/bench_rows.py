"""slipstream bench rows"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from slipstream.cli.flags import add_flags, options
from slipstream.cli.identity import identity
from slipstream.cli.numbers import parse_row_counts, whole_number
from slipstream.cli.output import add_json, print_json, progress_bar, table, wrapped
from slipstream.cli.page import page_path, write_page
from slipstream.cli.statistics import precision_line
from slipstream.errors import OptionError
from slipstream.options import ModelOptions

if TYPE_CHECKING:
    from slipstream.loading import LoadedModel
    from slipstream.measure.phases import OpCost
    from slipstream.measure.probes import MachineProbe
    from slipstream.measure.rows import RowCost

_COUNTS = "1,2,3,4,6,8,12,16"
_HEADER = [
    "rows",
    "ms",
    "95 % interval",
    "ratio",
    "weight GB/s",
    "of read",
    "limit ms",
    "spread",
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, ModelOptions)
    parser.add_argument(
        "--rows", metavar="R,..", default=_COUNTS, help=f"the first is the base [{_COUNTS}]"
    )
    parser.add_argument("--depth", metavar="N", default="64", help="positions before them [64]")
    parser.add_argument("--rounds", metavar="N", default="15", help="timed rounds [15]")
    parser.add_argument("--ops", action="store_true", help="where the time goes, per kind of op")
    parser.add_argument("--plot", metavar="FILE", help="write the curve as one HTML page")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> None:
    from slipstream.cli.opening import open_program
    from slipstream.measure.rows import row_costs
    from slipstream.measure.rows_page import rows_page

    model_options = options(ModelOptions, arguments)
    counts = parse_row_counts(arguments.rows)
    depth = whole_number("--depth", arguments.depth)
    rounds = whole_number("--rounds", arguments.rounds)
    if arguments.ops and model_options.backend != "cpu":
        raise OptionError("`--ops` with the native backend", "`--backend reference`", "Drop one.")
    page = page_path(arguments.plot)
    loaded = open_program(model_options, quiet=arguments.json)
    head = identity(model_options, loaded)
    before = _probe(loaded, head)
    with progress_bar("passes") as progress:
        costs = row_costs(loaded, counts, depth=depth, rounds=rounds, progress=progress)
    after = _probe(loaded, head)
    machine = before and after and before.better(after)
    measured = {"depth": depth, "rounds": rounds, **_rates(machine)}
    record = {**head, **measured, **_rows(costs, machine, loaded)}
    _print(record, machine)
    if arguments.ops:
        record["ops"] = _ops(loaded, counts, depth, rounds, machine)
    try:
        if page is not None:
            write_page(page, rows_page(record))
    finally:
        if arguments.json:
            print_json({**record, "observed": dict(loaded.program.observed())})


def _probe(loaded: LoadedModel, head: Mapping[str, Any]) -> MachineProbe | None:
    """What the machine gives at this moment; None on the NumPy backend."""
    if loaded.backend.name != "cpu":
        return None
    from slipstream.measure.probes import probe

    return probe(head["isa"], head["threads"] or 1)


def _rates(machine: MachineProbe | None) -> dict[str, Any]:
    return {
        "read_gb_s": machine and machine.read_gb_s,
        "peak_gmac_s": machine and dict(machine.peak_gmac_s),
    }


def _rows(
    costs: Sequence[RowCost], machine: MachineProbe | None, loaded: LoadedModel
) -> dict[str, Any]:
    """The record's rows, each with its limit and its part of the read bandwidth."""
    from slipstream.measure.probes import mix_weights

    plan = getattr(loaded.weights, "plan", None)
    weights = mix_weights(
        loaded.graph, plan.stored_types() if plan else {}, loaded.backend.precision
    )
    rows = []
    for cost in costs:
        limit = machine and machine.limit_ms(cost.rows, loaded.weights.step_bytes, weights)
        fraction = machine and cost.weight_gb_s / machine.read_gb_s
        rows.append({**asdict(cost), "limit_ms": limit, "read_fraction": fraction})
    return {
        "step_bytes": loaded.weights.step_bytes,
        "step_weights": weights,
        "drifting": any(cost.drifting for cost in costs),
        "rows": rows,
    }


def _print(record: Mapping[str, Any], machine: MachineProbe | None) -> None:
    print(table(_HEADER, [_line(row) for row in record["rows"]], text=0))
    print(precision_line(record["precision"]))
    print("ms: median of the rounds; ratio: to the first; spread: (largest - smallest) / median")
    if machine is not None:
        peaks = ", ".join(
            f"{peak:.3g} {mix}"
            for mix, peak in machine.peak_gmac_s.items()
            if record["step_weights"].get(mix)
        )
        print(
            f"limit: the slower of reading the weights ({machine.read_gb_s:.1f} GB/s here) and "
            f"multiplying (GMAC/s here: {peaks}), {record['threads']} threads"
        )
    print(wrapped(_drift_line(record["rows"])))


def _line(row: Mapping[str, Any]) -> list[object]:
    limit, fraction = row["limit_ms"], row["read_fraction"]
    return [
        row["rows"],
        f"{row['ms']:.2f}",
        f"{row['low_ms']:.2f} - {row['high_ms']:.2f}",
        f"{row['ratio']:.2f}",
        f"{row['weight_gb_s']:.1f}",
        "-" if fraction is None else f"{100 * fraction:.0f} %",
        "-" if limit is None else f"{limit:.2f}",
        f"{100 * row['spread']:.0f} %",
    ]


def _drift_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether the first and the last rounds differ beyond the noise."""
    drifting = [row for row in rows if row["drifting"]]
    if not drifting:
        return "drift: none beyond the noise"
    shown = ", ".join(f"{row['rows']} rows {100 * row['drift_change']:+.0f} %" for row in drifting)
    return f"drift: times changed from the first rounds to the last ({shown}): measure again"


def _ops(
    loaded: LoadedModel,
    counts: Sequence[int],
    depth: int,
    rounds: int,
    machine: MachineProbe | None,
) -> list[dict[str, Any]]:
    """Print the table of ops; returns their records."""
    from slipstream.measure.phases import op_costs

    with progress_bar("passes") as progress:
        costs = op_costs(loaded, counts, depth=depth, rounds=rounds, progress=progress)
    total = {r: sum(cost.ms[r] for cost in costs) for r in counts}
    first, last = counts[0], counts[-1]
    header = ["op", "phases", "MB", *[f"ms, {r} rows" for r in counts], "share", "GB/s", "GMAC/s"]
    lines = [[*_op_line(cost, counts), *_op_rates(cost, total, first, last)] for cost in costs]
    lines.append(["all", "", "", *[f"{total[r]:.2f}" for r in counts], "", "", ""])
    print()
    print(table(header, lines))
    print(
        "ms: median wall time of these phases of a pass, all threads, with their barriers; "
        f"share and GB/s at {first} rows, GMAC/s at {last}"
    )
    return [_op_record(cost, machine) for cost in costs]


def _op_line(cost: OpCost, counts: Sequence[int]) -> list[object]:
    size = f"{cost.weight_bytes / 1e6:.1f}" if cost.weight_bytes else ""
    return [cost.op, cost.phases or "", size, *[f"{cost.ms[r]:.2f}" for r in counts]]


def _op_rates(cost: OpCost, total: Mapping[int, float], first: int, last: int) -> list[str]:
    share = f"{100 * cost.ms[first] / total[first]:.0f} %"
    if not cost.weight_bytes:
        return [share, "", ""]
    read = cost.weight_bytes / cost.ms[first] / 1e6
    multiplied = last * sum(cost.mix_weights.values()) / cost.ms[last] / 1e6
    return [share, f"{read:.1f}", f"{multiplied:.0f}"]


def _op_record(cost: OpCost, machine: MachineProbe | None) -> dict[str, Any]:
    def limit(rows: int) -> float | None:
        if machine is None or not cost.weight_bytes:
            return None
        return machine.limit_ms(rows, cost.weight_bytes, cost.mix_weights)

    rows = [{"rows": r, "ms": ms, "limit_ms": limit(r)} for r, ms in cost.ms.items()]
    return {key: value for key, value in asdict(cost).items() if key != "ms"} | {"rows": rows}
