"""slipstream bench ops"""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from slipstream.cli.numbers import parse_row_counts, whole_number
from slipstream.cli.output import add_json, print_json, progress_bar, table
from slipstream.errors import OptionError

if TYPE_CHECKING:
    from slipstream.measure.probes import MachineProbe
    from slipstream.measure.products import Case, ProductCost

_COUNTS = "1,4,8,16"
_SHAPES = "1536x1536,8960x1536"
_MOST_WEIGHTS = 1 << 30
_HEADER = ["type", "shape", "isa", "rows", "us", "95 % interval", "GB/s", "GMAC/s", "limit us", ""]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--types", metavar="NAME,..", help="weight types [all]")
    parser.add_argument(
        "--shapes", metavar="NxK,..", default=_SHAPES, help=f"outputs x inputs [{_SHAPES}]"
    )
    parser.add_argument("--rows", metavar="R,..", default=_COUNTS, help=f"[{_COUNTS}]")
    parser.add_argument("--levels", metavar="NAME,..", help="instruction-set levels [all here]")
    parser.add_argument(
        "--budget", metavar="MS", default="800", help="of each type, shape and level [800]"
    )
    parser.add_argument("-t", "--threads", metavar="N", help="[one per physical core]")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> None:
    import slipstream.backends.cpu  # noqa: F401  (says what to do when the native core is missing)
    from slipstream import _native
    from slipstream.machine import default_threads
    from slipstream.measure.probes import probe

    counts = parse_row_counts(arguments.rows)
    cases = _cases(arguments)
    budget_s = whole_number("--budget", arguments.budget) / 1e3
    threads = arguments.threads and whole_number("--threads", arguments.threads, most=512)
    pool = _native.Pool(threads or default_threads())
    machines = {isa: probe(isa, pool.threads) for isa in dict.fromkeys(case.isa for case in cases)}
    costs = _sweep(cases, counts, pool, machines, budget_s)
    _print(costs, machines, pool.threads)
    if arguments.json:
        record = {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "threads": pool.threads,
            "read_gb_s": max(machine.read_gb_s for machine in machines.values()),
            "peak_gmac_s": {isa: dict(m.peak_gmac_s) for isa, m in machines.items()},
            "ops": [asdict(cost) for cost in costs],
        }
        print_json(record)


def _cases(arguments: argparse.Namespace) -> list[Case]:
    """Every type with every shape on every level, fastest level first.

    Raises:
        OptionError: an unknown name, or a shape that a type cannot have.
    """
    from slipstream import _native
    from slipstream.measure.products import Case
    from slipstream.quants import QUANT_TYPES

    native = {q.name: q for q in QUANT_TYPES.values() if _native.has_kernels(q.ggml_id)}
    types = _names("--types", arguments.types, list(native))
    levels = _names("--levels", arguments.levels, _native.isa_levels()[::-1])
    shapes = [_shape(text) for text in arguments.shapes.split(",")]
    for name in types:
        for outputs, inputs in shapes:
            if inputs % native[name].block_elements:
                expected = (
                    f"inputs that are whole blocks of {native[name].block_elements}, for {name}"
                )
                found = f"`--shapes {outputs}x{inputs}`"
                raise OptionError(expected, found, "Correct --shapes or leave the type out.")
    return [
        Case(native[name].ggml_id, outputs, inputs, isa)
        for name in types
        for outputs, inputs in shapes
        for isa in levels
    ]


def _names(flag: str, text: str | None, known: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(text.split(","))) if text is not None else list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        expected = f"`{flag}` among {', '.join(known)}"
        raise OptionError(expected, f"`{unknown[0]}`", "Correct it or leave it out.")
    return names


def _shape(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})", text)
    if match is None or int(match[1]) * int(match[2]) > _MOST_WEIGHTS:
        expected = "`--shapes`: outputs x inputs, separated by commas, of at most 2^30 weights"
        raise OptionError(expected, f"`{text}`", f"For example `--shapes {_SHAPES}`.")
    return int(match[1]), int(match[2])


def _sweep(
    cases: Sequence[Case],
    counts: Sequence[int],
    pool: Any,
    machines: dict[str, MachineProbe],
    budget_s: float,
) -> list[ProductCost]:
    from slipstream.measure.products import product_costs
    from slipstream.quants import type_name

    costs: list[ProductCost] = []
    with progress_bar("cases") as progress:
        for number, case in enumerate(cases):
            label = f"{type_name(case.type_id)} {case.outputs}x{case.inputs} {case.isa}"
            progress(number, len(cases), label)
            costs += product_costs(case, counts, pool, machines[case.isa], budget_s=budget_s)
    return costs


def _print(costs: Sequence[ProductCost], machines: dict[str, MachineProbe], threads: int) -> None:
    print(table(_HEADER, [_line(cost) for cost in costs], text=3))
    print("us: median wall time of one product on all threads, activations already prepared")
    print("limit: the slower of reading the weights and multiplying; cached: weights in a cache")
    for isa, machine in machines.items():
        peaks = ", ".join(f"{peak:.3g} {mix}" for mix, peak in machine.peak_gmac_s.items())
        print(f"{isa}, {threads} threads: {machine.read_gb_s:.1f} GB/s read, GMAC/s: {peaks}")


def _line(cost: ProductCost) -> list[object]:
    return [
        cost.type,
        f"{cost.outputs}x{cost.inputs}",
        cost.isa,
        cost.rows,
        f"{cost.us:.0f}",
        f"{cost.low_us:.0f} - {cost.high_us:.0f}",
        f"{cost.gb_s:.1f}",
        f"{cost.gmac_s:.1f}",
        f"{cost.limit_us:.0f}",
        "" if cost.from_memory else "cached",
    ]
