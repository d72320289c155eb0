"""slipstream explain"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from slipstream.cli.flags import add_flags, options
from slipstream.cli.numbers import parse_row_count
from slipstream.cli.output import add_json, megabytes, print_json, printable, table
from slipstream.cli.statistics import exact_line, note_lines, precision_line
from slipstream.errors import OptionError
from slipstream.options import ModelOptions

if TYPE_CHECKING:
    from slipstream.cli.plan_groups import Group
    from slipstream.dispatch.select import RowClass
    from slipstream.graph import Graph
    from slipstream.loading import LoadedModel

_DEVICES = ("cpu",)
_PREDICTION = "This is a prediction; with --observe a pass of each row class runs and is counted."
_NUMPY = "The reference backend interprets every op in NumPy: there is no kernel to choose."


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, ModelOptions)
    parser.add_argument("--rows", metavar="R", help="only the row class of R rows")
    parser.add_argument("--device", metavar="D", default="cpu", help="where it would run [cpu]")
    parser.add_argument("--policy", metavar="P", default="cpu", help="thresholds to read [cpu]")
    parser.add_argument(
        "--observe", action="store_true", help="load the model, run, and show what ran"
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.cli.opening import fetch_if_wanted, open_program
    from slipstream.dispatch.select import ROW_CLASSES, row_class

    model_options = options(ModelOptions, arguments)
    if arguments.device not in _DEVICES:
        raise OptionError(
            f"a device among {', '.join(_DEVICES)}", repr(arguments.device), "Choose one."
        )
    count = None if arguments.rows is None else parse_row_count(arguments.rows)
    classes = ROW_CLASSES if count is None else (row_class(count),)
    fetch_if_wanted(model_options.model)
    predicted, record = _predict(model_options, classes, arguments.policy)
    differences: list[str] = []
    if arguments.observe:
        loaded = open_program(model_options, quiet=arguments.json)
        counts = [count or rows.first for rows in classes]
        observed = _observe(loaded, counts, classes)
        record["observed"] = dict(observed)
        record["huge_pages"] = _huge_pages(loaded)
        differences = _compare(predicted, observed)
    else:
        print(f"\n{_PREDICTION}")
    if arguments.json:
        print_json(record)
    return 1 if differences else 0


def _predict(
    model_options: ModelOptions, classes: Sequence[RowClass], policy: str
) -> tuple[frozenset[str], dict[str, Any]]:
    """Print the plan; returns the paths it names (none for NumPy) and the record."""
    from slipstream.memory.kv_types import require_kv_type

    graph = _graph(model_options.model)
    require_kv_type(graph, model_options.kv_type)
    kept = {"kv_type": model_options.kv_type}
    if model_options.backend == "reference":
        return frozenset(), kept | _reference(model_options.model, graph)
    from slipstream.backends.base import varying_ops
    from slipstream.backends.cpu import CpuBackend, cpu_level, native_types
    from slipstream.cli.plan_groups import group_choices
    from slipstream.dispatch.policy import load_policy
    from slipstream.dispatch.select import select

    isa, why = cpu_level(model_options.isa)
    chosen = load_policy(policy)
    precision, kv_type = model_options.precision, model_options.kv_type
    plan = select(graph, isa, native_types(), chosen, precision, kv_type)
    choices = [row for rows in classes for row in plan.rows(rows)]
    groups = group_choices(choices)
    varying = varying_ops(CpuBackend.row_invariant, graph)
    print(printable(f"{model_options.model} ({graph.architecture}) on cpu, level {isa}: {why}"))
    _print_groups(groups)
    backing = chosen.levels[isa]
    print(f"status: what is on record ({backing.chip}, {backing.date}), not a test of this machine")
    for line in [precision_line(precision), *note_lines(plan.notes()), exact_line(varying)]:
        print(printable(line))
    head = {"model": model_options.model, "backend": "cpu", "isa": isa, "isa_reason": why}
    head |= {"policy": policy, "precision": plan.precision}
    rest = {"exact": not varying, "varying_ops": varying, "notes": plan.notes()}
    rows = [group.to_mapping() for group in groups]
    paths = frozenset(f"{row.kernel}/{row.rows.name}" for row in choices if row.kernel)
    return paths, kept | head | rest | {"rows": rows, "observed": None, "huge_pages": None}


def _reference(model: str, graph: Graph) -> dict[str, Any]:
    from slipstream.backends.base import varying_ops
    from slipstream.backends.reference import ReferenceBackend

    varying = varying_ops(ReferenceBackend.row_invariant, graph)
    print(f"{model} on the reference backend\n\n{_NUMPY}")
    print(f"{precision_line('float32')}\n{exact_line(varying)}")
    head = {"model": model, "backend": "reference", "isa": "numpy", "isa_reason": _NUMPY}
    head["precision"] = "float32"
    rest = {"exact": not varying, "varying_ops": varying, "notes": ()}
    return head | rest | {"rows": [], "observed": None, "huge_pages": None}


def _graph(model: str) -> Graph:
    from slipstream.catalog import locate
    from slipstream.dispatch.fuse import fuse
    from slipstream.gguf import open_gguf
    from slipstream.models import build_graph

    with open_gguf(locate(model)) as file:
        return fuse(build_graph(file))


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


def _huge_pages(loaded: LoadedModel) -> dict[str, Any] | None:
    """Print and return what of the repacked weights lies on huge pages; None without any."""
    from slipstream.backends._cpu_weights import CpuWeights

    if not isinstance(loaded.weights, CpuWeights):
        return None
    found = loaded.weights.huge_pages()
    amount = f"{megabytes(found.obtained_bytes)} of {megabytes(found.asked_bytes)}"
    why = f": {found.reason}" if found.reason else ""
    print(f"\nhuge pages: {amount} of weights{why}")
    return asdict(found)


def _observe(
    loaded: LoadedModel, counts: Sequence[int], classes: Sequence[RowClass]
) -> Mapping[str, int]:
    """Run a pass of each row count and print what ran."""
    from slipstream.measure.rows import observe

    observed = observe(loaded, counts)
    print("\nobserved path: how often each kernel ran\n")
    if loaded.backend.name == "reference":
        print(table(["kernel", "count"], sorted(observed.items())))
        return observed
    kernels = sorted({path.rpartition("/")[0] for path in observed})
    lines = [
        [kernel, *(observed.get(f"{kernel}/{rows.name}", 0) for rows in classes)]
        for kernel in kernels
    ]
    print(table(["kernel", *(rows.name for rows in classes)], lines))
    return observed


def _compare(predicted: frozenset[str], observed: Mapping[str, int]) -> list[str]:
    """Print whether the prediction held; returns the paths in which it did not.

    Parts of an op that dispatch does not choose, such as the preparation of inputs, are passed
    over.
    """
    from slipstream.dispatch.kernels import is_planned

    if not predicted:
        return []
    ran = set(filter(is_planned, observed))
    differences = [f"{path} ran, not predicted" for path in sorted(ran - predicted)]
    differences += [f"{path} predicted, did not run" for path in sorted(predicted - ran)]
    print("\n" + "\n".join(differences or ["observed as predicted"]))
    return differences
