"""slipstream explain"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from slipstream.cli.flags import add_flags, options
from slipstream.cli.numbers import parse_row_count
from slipstream.cli.output import add_json, print_json, printable, table
from slipstream.options import ModelOptions

if TYPE_CHECKING:
    from slipstream.cli.plan_groups import Group
    from slipstream.dispatch.select import RowClass
    from slipstream.graph import Graph

_PREDICTION = "This is a prediction; with --observe a pass of each row class runs and is counted."
_NUMPY = "The reference backend interprets every op in NumPy: there is no kernel to choose."


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, ModelOptions)
    parser.add_argument("--rows", metavar="R", help="only the row class of R rows")
    parser.add_argument(
        "--observe", action="store_true", help="load the model, run, and show what ran"
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.cli.opening import fetch_if_wanted
    from slipstream.dispatch.select import ROW_CLASSES, row_class

    model_options = options(ModelOptions, arguments)
    count = None if arguments.rows is None else parse_row_count(arguments.rows)
    classes = ROW_CLASSES if count is None else (row_class(count),)
    fetch_if_wanted(model_options.model)
    native = model_options.backend == "cpu"
    record = _explain(model_options, classes) if native else _reference(model_options)
    surprises = _observe(model_options, classes, count, record) if arguments.observe else []
    if not arguments.observe:
        print(f"\n{_PREDICTION}")
    if arguments.json:
        print_json(record)
    return 1 if surprises else 0


def _graph(model: str) -> Graph:
    from slipstream.catalog import locate
    from slipstream.dispatch.fuse import fuse
    from slipstream.gguf import open_gguf
    from slipstream.models import build_graph

    with open_gguf(locate(model)) as file:
        return fuse(build_graph(file))


def _reference(model_options: ModelOptions) -> dict[str, Any]:
    print(f"{model_options.model} on the reference backend\n\n{_NUMPY}")
    return {
        "model": model_options.model,
        "backend": "reference",
        "isa": "numpy",
        "exact": False,
        "rows": [],
        "observed": None,
    }


def _explain(model_options: ModelOptions, classes: Iterable[RowClass]) -> dict[str, Any]:
    from slipstream.backends.cpu import CpuBackend
    from slipstream.cli.plan_groups import group_choices
    from slipstream.dispatch.select import select

    graph = _graph(model_options.model)
    isa, why = _level(model_options.isa)
    plan = select(graph, isa, _native_types())
    groups = group_choices(row for rows in classes for row in plan.rows(rows))
    varying = [kind for kind, holds in CpuBackend.row_invariant.items() if not holds]
    print(printable(f"{model_options.model} ({graph.architecture}) on cpu, level {isa}: {why}"))
    _print_groups(groups)
    print(f"exact: {'not guaranteed (' + ', '.join(varying) + ')' if varying else 'every op'}")
    return {
        "model": model_options.model,
        "backend": "cpu",
        "isa": isa,
        "isa_reason": why,
        "exact": not varying,
        "rows": [group.to_mapping() for group in groups],
        "observed": None,
    }


def _level(asked: str | None) -> tuple[str, str]:
    """The instruction-set level that would be used, and why."""
    import os

    from slipstream import _native
    from slipstream.dispatch.select import choose_isa

    named = asked or os.environ.get("SLIPSTREAM_ISA")
    if named:
        return named, "asked for by name"
    return choose_isa(_native.isa_levels())


def _native_types() -> frozenset[int]:
    from slipstream import _native
    from slipstream.quants import QUANT_TYPES

    return frozenset(type_id for type_id in QUANT_TYPES if _native.has_kernels(type_id))


def _print_groups(groups: Iterable[Group]) -> None:
    reasons: dict[str, str] = {}
    lines = []
    for group in groups:
        letter = reasons.setdefault(group.reason, chr(ord("a") + len(reasons) % 26))
        kernel, rung = group.kernel or "none", group.rung or "-"
        lines.append([printable(group.name), group.rows, kernel, rung, letter, group.count])
    print(f"\n{table(['op', 'rows', 'kernel', 'status', 'why', 'ops'], lines, text=5)}\n")
    for reason, letter in reasons.items():
        print(printable(f"{letter}: {reason}"))


def _observe(
    model_options: ModelOptions,
    classes: Iterable[RowClass],
    count: int | None,
    record: dict[str, Any],
) -> list[str]:
    """Run a pass of each class and print what ran; returns paths that the plan does not name."""
    from slipstream.cli.opening import open_program
    from slipstream.measure.rows import observe

    loaded = open_program(model_options)
    observed = observe(loaded, [count or rows.first for rows in classes])
    record["observed"] = dict(observed)
    print("\nobserved path, and how often it ran:\n")
    print(table(["path", "count"], sorted(observed.items())))
    surprises = _surprises(record, observed)
    if record["rows"]:
        print("\nobserved as predicted" if not surprises else "\nNOT predicted: ", end="")
        print(", ".join(surprises))
    return surprises


def _surprises(record: Mapping[str, Any], observed: Mapping[str, int]) -> list[str]:
    predicted = {row["kernel"] for row in record["rows"]}
    if not predicted:
        return []
    return sorted(path for path in observed if path.rpartition("/")[0] not in predicted)
