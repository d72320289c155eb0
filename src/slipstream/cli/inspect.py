"""slipstream inspect"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.cli.flags import options
from slipstream.cli.numbers import whole_number
from slipstream.cli.output import add_json, megabytes, print_json, printable
from slipstream.errors import SlipstreamError
from slipstream.options import KvType, ModelOptions

if TYPE_CHECKING:
    from slipstream.gguf import GGUFFile
    from slipstream.graph import Graph

_LONGEST = 200  # characters shown of a text in the file
_KEY_AND_VALUE = 2  # per position
_HALF_BYTES = 2


def _identity(path: Path) -> dict[str, Any]:
    from slipstream.catalog import identify

    entry = identify(path)
    if entry is None:
        return {"catalogue": None}
    return {
        "catalogue": entry.name,
        "sha256": entry.sha256,
        "revision": entry.revision,
        "licence": entry.licence,
        "terms": entry.terms,
    }


def _contents(file: GGUFFile) -> dict[str, Any]:
    from slipstream.quants import type_name

    types: Counter[str] = Counter()
    parameters = 0
    for info in file.tensors.values():
        count = 1
        for extent in info.shape:
            count *= extent
        parameters += count
        types[type_name(info.type_id)] += info.nbytes
    return {
        "gguf_version": file.version,
        "architecture": file.get_string("general.architecture"),
        "name": file.get_string("general.name", default=""),
        "parameters": parameters,
        "tensors": len(file.tensors),
        "bytes_by_type": dict(types.most_common()),
        "declared_licence": file.get_string("general.license", default=""),
        "chat_template": "tokenizer.chat_template" in file.metadata,
        "tokenizer": {
            "model": file.get_string("tokenizer.ggml.model", default=""),
            "pre": file.get_string("tokenizer.ggml.pre", default=""),
        },
    }


def memory_plan(
    graph: Graph, file: GGUFFile, context: int, kv_type: KvType = "f16"
) -> dict[str, Any]:
    """Bytes of weights (all tensors) and of keys and values at ``context`` positions.

    Raises:
        UnsupportedError: the graph's heads do not fit ``kv_type``.
    """
    from slipstream.memory.kv_types import row_halves

    keys_and_values = sum(
        min(context, op.window or context)
        * op.kv_heads
        * row_halves(kv_type, op.head_dim)
        * (_HALF_BYTES * _KEY_AND_VALUE)
        for op in graph.attentions()
    )
    return {
        "context": context,
        "kv_type": kv_type,
        "weight_bytes": sum(info.nbytes for info in file.tensors.values()),
        "key_value_bytes": keys_and_values,
    }


def _drafters() -> dict[str, str]:
    """Method -> ``offered``, or the reason why this file or version cannot offer it."""
    from slipstream.drafters import implemented
    from slipstream.options import METHODS

    here = implemented()
    return {
        name: "offered" if name in here else "not implemented in this version" for name in METHODS
    }


def _plan(file: GGUFFile, context: int | None, kv_type: KvType) -> dict[str, Any]:
    from slipstream.models import build_graph

    try:
        graph = build_graph(file)
    except SlipstreamError as error:
        return {"runs": False, "reason": str(error)}
    chosen = min(context or graph.context, graph.context)
    return {
        "runs": True,
        "layers": len(graph.attentions()),
        "width": graph.width,
        "vocabulary": graph.vocabulary,
        "trained_context": graph.context,
        "memory": memory_plan(graph, file, chosen, kv_type),
        "drafters": _drafters(),
    }


def _lines(record: dict[str, Any]) -> list[str]:
    shares = ", ".join(f"{t} {megabytes(n)}" for t, n in record["bytes_by_type"].items())
    tokenizer = {key: value[:_LONGEST] or "?" for key, value in record["tokenizer"].items()}
    template = "yes" if record["chat_template"] else "none (a base model?)"
    lines = [
        f"{record['path']}  ({megabytes(record['bytes'])}, GGUF v{record['gguf_version']})",
        f"{record['name'][:_LONGEST] or 'unnamed'}: {record['architecture'][:_LONGEST]}, "
        f"{record['parameters'] / 1e6:,.1f} M parameters in {record['tensors']} tensors",
        f"types: {shares}",
        f"tokenizer: {tokenizer['model']} / {tokenizer['pre']}; chat template: {template}",
    ]
    if record["catalogue"]:
        lines += [
            f"catalogue: {record['catalogue']}, sha256 verified, revision {record['revision']}",
            f"licence: {record['licence']}  terms: {record['terms']}",
        ]
    else:
        licence = record["declared_licence"][:_LONGEST] or "none"
        lines.append(f"not in the catalogue; licence that the file declares: {licence}")
    return lines + _plan_lines(record)


def _plan_lines(record: dict[str, Any]) -> list[str]:
    if not record["runs"]:
        return [f"does not run here: {record['reason']}"]
    memory = record["memory"]
    offered = [name for name, state in record["drafters"].items() if state == "offered"]
    absent = [name for name, state in record["drafters"].items() if state != "offered"]
    return [
        f"layers {record['layers']}, width {record['width']}, vocabulary {record['vocabulary']}",
        f"memory at {memory['context']} positions (trained for {record['trained_context']}): "
        f"weights {megabytes(memory['weight_bytes'])} + keys and values "
        f"{megabytes(memory['key_value_bytes'])} ({memory['kv_type']})",
        f"drafters offered: {', '.join(offered)}",
        f"not in this version: {', '.join(absent)}",
    ]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="path, catalogue name or owner/repo:file")
    parser.add_argument("-c", "--context", metavar="N", help="positions to plan memory for")
    parser.add_argument(
        "--kv-type", metavar="{f16,q8_0}", default="f16", help="how keys and values are kept [f16]"
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> None:
    from slipstream.catalog import locate
    from slipstream.gguf import open_gguf

    context = None
    if arguments.context is not None:
        context = whole_number("--context", arguments.context, most=1 << 31)
    chosen = argparse.Namespace(model=arguments.model, kv_type=arguments.kv_type)
    kv_type = options(ModelOptions, chosen).kv_type
    path = locate(arguments.model)
    with open_gguf(path) as file:
        record = {
            "path": str(path),
            "bytes": path.stat().st_size,
            **_contents(file),
            **_identity(path),
            **_plan(file, context, kv_type),
        }
    print(printable("\n".join(_lines(record))))
    if arguments.json:
        print_json(record)
