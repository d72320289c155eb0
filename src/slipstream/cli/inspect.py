"""slipstream inspect"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.output import Json, megabytes, print_json
from slipstream.errors import SlipstreamError

if TYPE_CHECKING:
    from slipstream.gguf import GGUFFile
    from slipstream.graph import Graph

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)

_KEY_AND_VALUE_BYTES = 2 * 2  # float16 key and float16 value


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


def memory_plan(graph: Graph, file: GGUFFile, context: int) -> dict[str, int]:
    """Bytes of weights (all tensors) and of keys and values at ``context`` positions."""
    keys_and_values = sum(
        min(context, op.window or context) * op.kv_heads * op.head_dim * _KEY_AND_VALUE_BYTES
        for op in graph.attentions()
    )
    return {
        "context": context,
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


def _plan(file: GGUFFile, context: int | None) -> dict[str, Any]:
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
        "memory": memory_plan(graph, file, chosen),
        "drafters": _drafters(),
    }


def _print(record: dict[str, Any]) -> None:
    print(f"{record['path']}  ({megabytes(record['bytes'])}, GGUF v{record['gguf_version']})")
    print(f"{record['name'] or 'unnamed'}: {record['architecture']}, ", end="")
    print(f"{record['parameters'] / 1e6:,.0f} M parameters in {record['tensors']} tensors")
    shares = ", ".join(f"{t} {megabytes(n)}" for t, n in record["bytes_by_type"].items())
    print(f"types: {shares}")
    tokenizer = record["tokenizer"]
    template = "yes" if record["chat_template"] else "none (a base model?)"
    print(f"tokenizer: {tokenizer['model']} / {tokenizer['pre']}; chat template: {template}")
    if record["catalogue"]:
        print(f"catalogue: {record['catalogue']}, sha256 verified, revision {record['revision']}")
        print(f"licence: {record['licence']}  terms: {record['terms']}")
    else:
        print(f"not in the catalogue; licence by its own word: {record['declared_licence'] or '?'}")
    _print_plan(record)


def _print_plan(record: dict[str, Any]) -> None:
    if not record["runs"]:
        print(f"does not run here: {record['reason']}")
        return
    memory = record["memory"]
    print(f"layers {record['layers']}, width {record['width']}, vocabulary {record['vocabulary']}")
    print(
        f"memory at {memory['context']} positions (trained: {record['trained_context']}): weights "
        f"{megabytes(memory['weight_bytes'])} + keys and values "
        f"{megabytes(memory['key_value_bytes'])}"
    )
    offered = [name for name, state in record["drafters"].items() if state == "offered"]
    absent = [name for name, state in record["drafters"].items() if state != "offered"]
    print(f"drafters offered: {', '.join(offered)}")
    print(f"not in this version: {', '.join(absent)}")


@app.command()
def inspect(
    model: Annotated[str, typer.Argument(help="path, catalogue name or owner/repo:file")],
    context: Annotated[
        int | None, typer.Option("--context", "-c", min=1, help="Positions to plan memory for.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What a file is, which drafters it offers, and what memory it needs."""
    from slipstream.catalog import locate
    from slipstream.gguf import open_gguf

    path = locate(model)
    with open_gguf(path) as file:
        record = {
            "path": str(path),
            "bytes": path.stat().st_size,
            **_contents(file),
            **_identity(path),
            **_plan(file, context),
        }
    _print(record)
    if as_json:
        print_json(record)
