"""The few-row range of a file: rows at which every weight type in it meets a few-row kernel."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Final

import msgspec

DEFAULT_ROWS: Final = 8
"""One tile of activation rows of the kernels."""
_FILE: Final = "few_rows.toml"


class FewRowTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    Attributes:
        least: weight type -> fewest rows; ``most`` of all of them.
        source, read, chip: where it is from, when it was read, where it was measured.
        conditions: what else must hold of a product.
    """

    source: str
    read: str
    chip: str
    conditions: str
    most: int
    least: Mapping[str, int]


class FewRows(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        least, most: rows of a step.
        types: weight type of the file -> its own fewest rows.
        never: types of the file whose products never take a few-row kernel.
        source: of the table.
    """

    least: int
    most: int
    types: Mapping[str, int]
    never: tuple[str, ...]
    source: str

    def holds(self, rows: float) -> bool:
        return self.least <= rows <= self.most


@cache
def table() -> FewRowTable:
    """The table of llama.cpp's Metal kernels, with its source."""
    file = resources.files("slipstream.lab.planning") / _FILE
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), FewRowTable)


def few_rows(weight_types: Iterable[str]) -> FewRows:
    """The range of a file, at or above the fewest rows of every type in it.

    Args:
        weight_types: of its tensors, GGML names; of an unknown file none, and all are assumed.
    """
    known, given = table(), dict.fromkeys(name.lower() for name in weight_types)
    types = {name: known.least[name] for name in given or known.least if name in known.least}
    return FewRows(
        least=max(types.values(), default=max(known.least.values())),
        most=known.most,
        types=types,
        never=tuple(name for name in given if name not in known.least),
        source=known.source,
    )
