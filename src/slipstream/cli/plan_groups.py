"""A plan in few lines: identical layers and row classes with the same choice are one group."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.dispatch.select import PlanRow, RowClass


@dataclass
class Group:
    """Ops with the same choice.

    Attributes:
        name: the op's kind and what it is about, layers replaced by ``*``.
        classes: row classes with this choice, in order.
        ops: graph indices with the labels, one per weight.
    """

    name: str
    kernel: str | None
    rung: str | None
    reason: str
    classes: list[RowClass] = field(default_factory=list)
    ops: set[tuple[int, str]] = field(default_factory=set)

    @property
    def rows(self) -> str:
        """Such as ``1``, ``2-8`` or ``2+``."""
        first, last = self.classes[0].first, self.classes[-1].last
        if last is None:
            return "any" if first == 1 else f"{first}+"
        return str(first) if first == last else f"{first}-{last}"

    @property
    def count(self) -> int:
        return len(self.ops)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "op": self.name,
            "rows": self.rows,
            "kernel": self.kernel,
            "status": self.rung,
            "reason": self.reason,
            "count": self.count,
        }


def group_choices(choices: Iterable[PlanRow]) -> list[Group]:
    """Groups in the order of their first op, then of their row class."""
    groups: dict[tuple[object, ...], Group] = {}
    for choice in choices:
        name = _name(choice)
        key = (name, choice.kernel, choice.rung, choice.reason)
        group = groups.setdefault(key, Group(*key))
        if choice.rows not in group.classes:
            group.classes.append(choice.rows)
        group.ops.add((choice.op, choice.label))
    return sorted(groups.values(), key=_place)


def _name(choice: PlanRow) -> str:
    """Without layer and value numbers, which differ between identical layers."""
    label = re.sub(r"^blk\.\d+\.", "blk.*.", choice.label).removesuffix(".weight")
    label = re.sub(r"layer \d+(, )?|value \d+ ", "", label)
    label = re.sub(r"^layer_input\.\d+$", "layer_input.*", label)
    return f"{choice.kind} {label}".strip()


def _place(group: Group) -> tuple[int, int]:
    return min(group.ops)[0], group.classes[0].first
