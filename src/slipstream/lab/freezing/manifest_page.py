"""docs/lab-manifest.md: every group of the manifest and what it prevents, from the code itself."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from slipstream.lab.contract import manifest, plan
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import Plan

_INTRODUCTION: Final = """\
# The manifest of a lab run

`slipstream lab schema --docs` writes this page from the code; do not edit it.

`manifest.json` is written before the first request, in canonical JSON: the SHA-256 of the file is
the manifest's digest, and every report names it. What cannot be determined is the text `unknown`,
never a guess. What is learnt after the start stands in `records.jsonl` instead, so that a
prediction is never read as an observation. `slipstream lab schema` prints the JSON schema.
"""
_PLAN: Final = """\
## The plan

The manifest holds the plan as it was read from plan.toml; `slipstream lab init` writes a commented
one. Everything that decides a verdict stands in `rules` and is fixed with the rest.
"""
_GROUPS: Final = (
    manifest.RuntimeIdentity,
    manifest.ArtifactIdentity,
    manifest.Pairing,
    manifest.MethodIdentity,
    manifest.Hardware,
    manifest.PromptIdentity,
    manifest.Observation,
)
_PLAN_GROUPS: Final = (
    plan.Artifact,
    plan.RuntimePlan,
    plan.ConditionPlan,
    plan.SamplingPlan,
    plan.Arrivals,
    plan.Tenants,
    plan.Rules,
    plan.Question,
    plan.Comparison,
)
_ATTRIBUTE: Final = re.compile(r"^ {4}([a-z0-9_][a-z0-9_, ]*): (.*)$")


def manifest_page() -> str:
    """The page's Markdown."""
    parts = [_INTRODUCTION, *(_section(group) for group in (Manifest, *_GROUPS)), _PLAN]
    return "\n".join([*parts, *(_section(group) for group in (Plan, *_PLAN_GROUPS))])


def _section(group: type[msgspec.Struct]) -> str:
    about, attributes = _docstring(group)
    texts = attributes | _inline(group)
    rows = [_row(group, field, texts) for field in msgspec.structs.fields(group)]
    table = "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])
    return f"## {group.__name__}\n\n{about}\n\n{table}\n"


def _row(
    group: type[msgspec.Struct], field: msgspec.structs.FieldInfo, texts: dict[str, str]
) -> str:
    kind = _type_name(get_type_hints(group)[field.name])
    default = "required" if field.required else f"`{_default(field)}`"
    meaning = texts.get(field.name, "").replace("|", "\\|")
    return f"| `{field.name}` | {kind} | {default} | {meaning} |"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, msgspec.Struct):
        return "its defaults"
    return msgspec.json.encode(value).decode()


def _type_name(kind: Any) -> str:
    inner = get_args(kind)
    name = getattr(get_origin(kind) or kind, "__name__", str(kind))
    if name == "Literal":
        return " or ".join(f"`{choice}`" for choice in inner)
    if name in ("tuple", "list"):
        distinct = dict.fromkeys(_type_name(part) for part in inner if part is not Ellipsis)
        return f"list of {' and '.join(distinct)}"
    if name in ("dict", "Mapping"):
        return f"table of {_type_name(inner[1])}"
    if inner:
        return " or ".join(_type_name(part) for part in inner)
    return {"str": "text", "int": "integer", "float": "number", "bool": "boolean"}.get(name, name)


def _docstring(group: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """A group's first part, and the meaning of the keys that its ``Attributes`` list."""
    about, _, listed = inspect.cleandoc(group.__doc__ or "").partition("Attributes:\n")
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in listed.splitlines():
        if entry := _ATTRIBUTE.match(line):
            names = [name.strip() for name in entry[1].split(",")]
            texts |= dict.fromkeys(names, entry[2])
        else:
            texts |= {name: f"{texts[name]} {line.strip()}" for name in names}
    return _plain(about), {name: _plain(text) for name, text in texts.items()}


def _inline(group: type[msgspec.Struct]) -> dict[str, str]:
    """Texts that stand below a key."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(group)))
    return dict(_documented(tree.body[0])) if isinstance(tree.body[0], ast.ClassDef) else {}


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for before, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield before.target.id, _plain(text.value)


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").split())
