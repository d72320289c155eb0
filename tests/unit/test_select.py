"""Plans: hard conditions, preferences, reasons and what backs a kernel."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import tiny_model
from reference_runs import step
from slipstream.dispatch.fuse import fuse
from slipstream.dispatch.policy import LADDER, Policy, Status, load_policy, parse_policy
from slipstream.dispatch.select import ROW_CLASSES, Plan, choose_isa, row_class, select
from slipstream.errors import OptionError, UnsupportedError
from slipstream.gguf import open_gguf
from slipstream.graph import Graph, GraphBuilder, Weight
from slipstream.memory.attention import AttentionMemory
from slipstream.models import build_graph
from slipstream.quants import QUANT_TYPES

ALL_TYPES = frozenset(QUANT_TYPES)
Q8_0, Q4_K, F32 = 8, 12, 0


def tiny_graph(tmp_path: Path, architecture: str = "llama", **options: Any) -> Graph:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", architecture, **options)) as file:
        return fuse(build_graph(file))


def one_linear(weight: Weight) -> Graph:
    builder = GraphBuilder({})
    out = builder.linear(builder.input("x", weight.columns), weight)
    builder.output("logits", out)
    return Graph(tuple(builder.ops), "test", weight.columns, weight.rows, 16)


def matmul(plan: Plan, name: str) -> list[str | None]:
    return [row.kernel for row in plan.rows() if row.label == name]


def test_row_classes_cover_every_count() -> None:
    names = {rows: row_class(rows).name for rows in (1, 2, 8, 9, 16, 17, 10_000)}
    assert list(names.values()) == [
        "rows_1",
        "rows_2_8",
        "rows_2_8",
        "rows_9_16",
        "rows_9_16",
        "rows_17",
        "rows_17",
    ]
    for lower, upper in pairwise(ROW_CLASSES):
        assert lower.last is not None
        assert lower.last + 1 == upper.first


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_every_op_has_a_kernel_and_a_reason(tmp_path: Path, architecture: str) -> None:
    graph = tiny_graph(tmp_path, architecture)
    plan = select(graph, "avx2", ALL_TYPES)
    plan.require_complete()
    assert {row.op for row in plan.rows()} == set(range(len(graph.ops)))
    assert all(row.reason and row.rung in LADDER for row in plan.rows())
    assert len(plan.rows(ROW_CLASSES[2])) * len(ROW_CLASSES) == len(plan.rows())


def test_each_matrix_of_a_fused_op_has_its_own_kernel(tmp_path: Path) -> None:
    types = {"attn_v": "q6_k", "ffn_up": "q4_k"}
    plan = select(tiny_graph(tmp_path, types=types), "portable", ALL_TYPES)
    assert set(matmul(plan, "blk.0.attn_q.weight")) == {"matmul/q8_0/portable"}
    assert set(matmul(plan, "blk.0.attn_v.weight")) == {"matmul/q6_k/portable"}
    assert set(matmul(plan, "blk.0.ffn_gate.weight")) == {"matmul/q8_0/portable"}
    assert set(matmul(plan, "blk.0.ffn_up.weight")) == {"matmul/q4_k/portable"}


def test_a_type_without_kernels_is_expanded_and_says_so(tmp_path: Path) -> None:
    types = {"ffn_down": "q5_1", "token_embd": "q4_0"}
    plan = select(tiny_graph(tmp_path, tied=False, types=types), "avx2", {F32, Q8_0})
    assert set(matmul(plan, "token_embd.weight")) == {"embed/f32/avx2"}
    rows = [row for row in plan.rows() if row.label == "blk.0.ffn_down.weight"]
    assert {row.kernel for row in rows} == {"matmul/f32/avx2"}
    assert all("q5_1" in row.reason and "expanded" in row.reason for row in rows)
    plan.require_complete()


def test_hard_conditions_leave_no_kernel() -> None:
    misfit = select(one_linear(Weight("w", Q4_K, 4, 100)), "avx2", ALL_TYPES)
    assert {row.kernel for row in misfit.rows() if row.kind == "Linear"} == {None}
    with pytest.raises(UnsupportedError) as caught:
        misfit.require_complete()
    assert "not a multiple of 256" in caught.value.found
    bare = select(one_linear(Weight("w", Q4_K, 4, 256)), "avx2", ())
    with pytest.raises(UnsupportedError, match="q4_k has no native kernel"):
        bare.require_complete()


def test_unknown_level() -> None:
    with pytest.raises(OptionError) as caught:
        select(one_linear(Weight("w", F32, 4, 4)), "sse2", ALL_TYPES)
    assert "avx2" in caught.value.expected


def policy(**rungs: Any) -> Policy:
    return Policy("test", {isa: Status(rung, "none", "x") for isa, rung in rungs.items()})


def test_choose_isa_takes_the_strongest_backed_level() -> None:
    levels = policy(portable="ran-on-device", avx2="timed-on-device", avx512="cpu-emulated")
    isa, reason = choose_isa(["portable", "avx2", "avx512"], levels)
    assert isa == "avx2"
    assert "avx512 is cpu-emulated" in reason
    assert choose_isa(["portable"], levels)[0] == "portable"
    with pytest.raises(OptionError, match="compiled-by-vendor"):
        choose_isa(["portable"], policy(portable="compiled-by-vendor"))
    with pytest.raises(OptionError, match="neon"):
        choose_isa(["neon"], levels)


def test_cpu_policy_is_sound() -> None:
    levels = load_policy("cpu").levels
    assert list(levels) == ["portable", "avx2", "avx512"]
    assert levels["avx2"].reaches("ran-on-device")
    assert not levels["avx2"].reaches(LADDER[-1]) or levels["avx2"].chip != "none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "levels"),
        ("[levels]\n[thresholds]\n", "thresholds"),
        ('[levels.avx2]\nrung = "fast"\nchip = "x"\ncommand = "y"\n', "ladder"),
        ('[levels.avx2]\nrung = "specified"\n', "avx2"),
        ("[levels", "Expected"),
    ],
)
def test_a_wrong_policy_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_policy("test", text)


@pytest.mark.native
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
@pytest.mark.parametrize("types", [{"ffn_down": "q4_0"}, {"ffn_up": "f16"}])
def test_observed_paths_were_predicted(
    tmp_path: Path, architecture: str, types: dict[str, str]
) -> None:
    pytest.importorskip("slipstream._native")
    from slipstream import _native
    from slipstream.backends.cpu import CpuBackend

    unplanned = ("prepare/", "store_keys/", "rope_table/")  # steps of a planned op
    path = tiny_model(tmp_path / "tiny.gguf", architecture, types=types)
    with open_gguf(path) as file:
        graph = fuse(build_graph(file))
        backend = CpuBackend(threads=1)
        memory = AttentionMemory(graph, 128)
        program = backend.compile(graph, backend.load(file, graph), memory)
        sequence = memory.open()
        for rows in (1, 5, 12, 20):
            program.run(step(sequence, np.arange(rows, dtype=np.int32)))
        native_types = [kind for kind in QUANT_TYPES if _native.has_kernels(kind)]
        predicted = select(graph, backend.isa, native_types).paths()
    observed = {name for name in program.observed() if not name.startswith(unplanned)}
    assert observed
    assert observed == predicted
