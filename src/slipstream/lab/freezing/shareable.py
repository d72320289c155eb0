"""What may stand in a report that is passed on: no path of the machine that it was measured on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final, TypeVar

import msgspec

from slipstream.lab.contract.plan import Plan

_ROOTS: Final = (
    *("home", "Users", "root", "tmp", "opt", "usr", "var", "mnt", "media", "srv", "data"),
    *("work", "workspace", "private", "Volumes", "nix", "etc", "run", "scratch", "app"),
)
_PATH: Final = re.compile(
    rf"(?<![\w./:-])(?:~|[A-Za-z]:|/(?:{'|'.join(_ROOTS)}))(?:[/\\][^\s/\\'\"<>|,;:=()\[\]]+)+"
)
_CUT: Final = "…/"
Part = TypeVar("Part", bound=msgspec.Struct)


def without_paths(part: Part, plan: Plan) -> Part:
    """The same structure with every path cut to its last part.

    Args:
        plan: whose own paths are cut wherever they lie; others where they begin like one.
    """
    known = sorted(set(_own_paths(plan)), key=lambda path: (-len(path), path))
    plain = msgspec.to_builtins(part)
    return msgspec.convert(_walked(plain, known), type(part))


def _own_paths(plan: Plan) -> Iterator[str]:
    """Absolute paths that the plan names."""
    runtimes = plan.runtimes.values()
    given = [plan.target.model, *(d.model for d in plan.drafts.values()), plan.workloads]
    given += [p for r in runtimes for p in (r.binary, r.python, r.api_key_file)]
    given += [plan.arrivals.file, *plan.imports]
    for path in given:
        if PurePath(path).is_absolute() and len(PurePath(path).parts) > 2:
            yield path


def _walked(value: Any, known: list[str]) -> Any:
    if isinstance(value, str):
        return cut_paths(value, known)
    if isinstance(value, dict):
        return {_walked(key, known): _walked(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walked(item, known) for item in value]
    return value


def cut_paths(text: str, known: list[str]) -> str:
    """A text with each path as ``…/NAME``."""
    if "/" not in text and "\\" not in text:
        return text
    for path in known:
        text = text.replace(path, _CUT + PurePath(path).name)
    return _PATH.sub(lambda found: _CUT + re.split(r"[/\\]", found[0])[-1], text)
