"""Grouping a plan."""

from __future__ import annotations

from slipstream.cli.plan_groups import group_choices
from slipstream.dispatch.policy import Rung
from slipstream.dispatch.select import ROW_CLASSES, PlanRow, RowClass

RUNG: Rung = "ran-on-device"


def choice(op: int, label: str, rows: RowClass, kernel: str = "k", reason: str = "r") -> PlanRow:
    return PlanRow(op, "Linear", label, rows, kernel, RUNG, reason)


def test_identical_layers_and_classes_become_one_line() -> None:
    choices = [
        choice(layer, f"blk.{layer}.attn_q.weight", rows)
        for layer in range(12)
        for rows in ROW_CLASSES
    ]
    [group] = group_choices(choices)
    assert (group.name, group.rows, group.count) == ("Linear blk.*.attn_q", "any", 12)


def test_another_kernel_or_reason_is_another_line() -> None:
    first, *others = ROW_CLASSES
    choices = [choice(0, "blk.0.ffn_up.weight", first, reason="one row")]
    choices += [choice(0, "blk.0.ffn_up.weight", rows, reason="several") for rows in others]
    choices += [choice(1, "blk.1.ffn_up.weight", rows, kernel="other") for rows in ROW_CLASSES]
    groups = group_choices(choices)
    assert [(g.rows, g.kernel, g.count) for g in groups] == [
        ("1", "k", 1),
        ("2+", "k", 1),
        ("any", "other", 1),
    ]


def test_labels_without_numbers_that_differ_by_layer() -> None:
    rows = ROW_CLASSES[1]
    labels = ["value 7 [64]", "layer 3, window 16", "layer 4", "layer_input.5", "output.weight"]
    names = [group_choices([choice(0, label, rows)])[0].name for label in labels]
    assert names == [
        "Linear [64]",
        "Linear window 16",
        "Linear",
        "Linear layer_input.*",
        "Linear output",
    ]
    assert group_choices([choice(0, "x", rows)])[0].rows == "2-8"


def test_no_choice_is_lost() -> None:
    choices = [
        choice(op, f"blk.{op % 3}.w{op % 2}.weight", rows, kernel=f"k{op % 4}")
        for op in range(24)
        for rows in ROW_CLASSES
    ]
    groups = group_choices(choices)
    assert sum(g.count * len(g.classes) for g in groups) == len(choices)
