"""Plans: hard conditions, preferences, reasons and what backs a kernel."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import tiny_model
from reference_runs import step
from slipstream.dispatch.fuse import fuse
from slipstream.dispatch.kernels import PASS_ROWS, is_planned
from slipstream.dispatch.policy import LADDER, Policy, Status, load_policy, parse_policy
from slipstream.dispatch.select import ROW_CLASSES, Plan, resolve_level, row_class, select
from slipstream.errors import BackendError, OptionError, UnsupportedError
from slipstream.gguf import open_gguf
from slipstream.graph import Graph, GraphBuilder, Weight
from slipstream.memory.attention import AttentionMemory
from slipstream.memory.kv_types import KV_TYPES
from slipstream.models import build_graph
from slipstream.options import KvType
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
    few = [row_class for row_class in ROW_CLASSES if row_class.last is not None]
    return [row.kernel for kind in few for row in plan.rows(kind) if row.label == name]


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


def test_many_rows_have_a_kernel_of_their_own(tmp_path: Path) -> None:
    types = {"attn_v": "q6_k", "ffn_up": "f16"}
    plan = select(tiny_graph(tmp_path, types=types), "avx2", ALL_TYPES)
    found = {row.label: row.kernel for row in plan.rows(ROW_CLASSES[-1])}
    assert found["blk.0.attn_v.weight"] == "matmul_many/q6_k/avx2"
    assert found["blk.0.ffn_up.weight"] == "matmul/f16/avx2"


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
    return Policy(
        "test", {isa: Status(rung, "none", "2026-11-29", "x") for isa, rung in rungs.items()}
    )


LEVELS = policy(portable="ran-on-device", avx2="timed-on-device", avx512="cpu-emulated")
ALL = ["portable", "avx2", "avx512"]


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPSTREAM_ISA", raising=False)


@pytest.mark.usefixtures("no_environment")
def test_resolve_level_takes_the_best_backed_or_checked_level() -> None:
    checked: list[str] = []

    def passes(isa: str) -> None:
        checked.append(isa)

    assert resolve_level(None, ALL[:2], passes, LEVELS)[0] == "avx2"
    assert resolve_level(None, ALL[:1], passes, LEVELS)[0] == "portable"
    assert checked == []
    isa, reason = resolve_level(None, ALL, passes, LEVELS)
    assert (isa, checked) == ("avx512", ["avx512"])
    assert "bits equal portable's" in reason
    isa, reason = resolve_level(None, ALL, lambda _: "gated differs", LEVELS)
    assert isa == "avx2"
    assert "avx512 is cpu-emulated and failed its check: gated differs" in reason


def test_resolve_level_takes_the_option_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLIPSTREAM_ISA", "avx512")
    isa, reason = resolve_level(None, ALL, pytest.fail, LEVELS)
    assert isa == "avx512"
    assert "SLIPSTREAM_ISA" in reason
    assert "cpu-emulated" in reason
    assert resolve_level("portable", ALL, pytest.fail, LEVELS)[0] == "portable"
    with pytest.raises(OptionError, match="avx512"):
        resolve_level(None, ALL[:2], pytest.fail, LEVELS)
    with pytest.raises(OptionError, match="portable, avx2"):
        resolve_level("sse", ALL[:2], pytest.fail, LEVELS)


@pytest.mark.usefixtures("no_environment")
def test_resolve_level_without_evidence() -> None:
    weak = policy(portable="compiled-by-vendor")
    with pytest.raises(OptionError, match="compiled-by-vendor"):
        resolve_level(None, ["portable"], lambda _: "all differ", weak)
    with pytest.raises(OptionError, match="neon"):
        resolve_level(None, ["neon"], pytest.fail, LEVELS)


def test_a_matrix_has_one_layout() -> None:
    plan = select(one_linear(Weight("w", Q8_0, 4, 64)), "avx2", ALL_TYPES)
    assert set(plan.stored_types().values()) == {Q8_0}
    assert plan.notes() == ()
    mixed = Plan("avx2", (*plan.choices, replace(plan.choices[4], stored=F32)))
    with pytest.raises(BackendError, match="one layout"):
        mixed.stored_types()


def test_cpu_policy_is_sound() -> None:
    levels = load_policy("cpu").levels
    assert list(levels) == ["portable", "avx2", "avx_vnni", "avx512", "neon", "neon_i8mm"]
    assert levels["avx2"].reaches("ran-on-device")
    assert not levels["avx2"].reaches(LADDER[-1]) or levels["avx2"].chip != "none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "levels"),
        ("[levels]\n[thresholds]\n", "thresholds"),
        ('[levels.avx2]\nrung = "fast"\nchip = "x"\ndate = "z"\ncommand = "y"\n', "ladder"),
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
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_observed_paths_were_predicted(
    tmp_path: Path, architecture: str, types: dict[str, str], kv_type: KvType
) -> None:
    pytest.importorskip("slipstream._native")
    from slipstream.backends.cpu import CpuBackend, native_types

    path = tiny_model(tmp_path / "tiny.gguf", architecture, types=types, head_dim=32)
    with open_gguf(path) as file:
        graph = fuse(build_graph(file))
        backend = CpuBackend(threads=1)
        memory = AttentionMemory(graph, 128, kv_type=kv_type)
        weights = backend.load(file, graph)
        program = backend.compile(graph, weights, memory)
        sequence = memory.open()
        for rows in (1, 5, 12, 20):
            program.run(step(sequence, np.arange(rows, dtype=np.int32)))
    observed = set(filter(is_planned, program.observed()))
    assert observed
    assert observed == program.plan.paths()
    predicted = select(graph, backend.isa, native_types(), kv_type=kv_type)
    assert program.plan == predicted
    assert (weights.plan == predicted) is (kv_type == "f16")


def test_keys_in_codes_have_a_kernel_of_their_own(tmp_path: Path) -> None:
    graph = tiny_graph(tmp_path)
    plain, coded = (select(graph, "avx2", ALL_TYPES, kv_type=kind) for kind in KV_TYPES)
    names = [{row.kernel for row in p.rows() if row.kind == "Attention"} for p in (plain, coded)]
    assert names == [{"attention/avx2"}, {"attention-q8_0/avx2"}]
    assert plain.with_memory("q8_0") == coded
    assert coded.with_memory("f16") == plain


@pytest.mark.parametrize("isa", PASS_ROWS)
def test_pass_sizes_are_those_of_the_kernels(isa: str) -> None:
    source = Path(__file__).parents[2] / "native" / "isa" / f"dot_{isa}.hh"
    names = ("kMaxRowsAlone", "kMaxRows", "kMaxFloatRows")
    found = [re.findall(rf"\b{name} = (\d+);", source.read_text()) for name in names]
    assert found == [[str(rows)] for rows in PASS_ROWS[isa]]


def test_reasons_name_the_passes() -> None:
    plan = select(one_linear(Weight("w", Q8_0, 4, 64)), "avx2", ALL_TYPES)
    few, many = (
        {row.reason for row in plan.rows(rows) if row.kind == "Linear"}
        for rows in (ROW_CLASSES[1], ROW_CLASSES[-1])
    )
    assert "up to 6 rows in one pass; more rows are passes of at most 4" in few.pop()
    assert "passes of at most 4 rows share each chunk" in many.pop()


def test_a16_names_its_kernels_in_every_row_class(tmp_path: Path) -> None:
    graph = tiny_graph(tmp_path, types={"attn_v": "f16"})
    plan = select(graph, "avx2", ALL_TYPES, precision="a16")
    assert plan.precision == "a16"
    assert select(graph, "avx2", ALL_TYPES).precision == "a8"
    rows = [row for row in plan.rows() if row.label == "blk.0.attn_q.weight"]
    assert {row.kernel for row in rows} == {"matmul/q8_0-a16/avx2", "matmul_many/q8_0-a16/avx2"}
    reasons = {row.reason for row in rows}
    assert len(reasons) == len({row.kernel for row in rows})
    planes = "a16: activations are two int8 planes, so each row counts as two"
    assert all(planes in reason for reason in reasons)
    assert set(matmul(plan, "blk.0.attn_v.weight")) == {"matmul/f16/avx2"}
    floats = next(row for row in plan.rows() if row.label == "blk.0.attn_v.weight")
    assert "float weights take float32 activations at any precision" in floats.reason
    assert {row.kernel for row in plan.rows() if row.kind == "Embed"} == {"embed/q8_0/avx2"}


def test_a_type_expanded_to_float_is_the_same_at_a16() -> None:
    graph = one_linear(Weight("w", Q8_0, 4, 64))
    plans = [select(graph, "avx2", {F32}, precision=precision) for precision in ("a8", "a16")]
    assert plans[0].choices == plans[1].choices
