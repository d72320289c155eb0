"""The bit laws on real models: few-row steps, levels and trees against one row at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from native_runs import chain_logits, compile_graph, extend, same_bits, step_rows

pytest.importorskip("slipstream._native")

from slipstream import _native
from slipstream.backends.cpu import CpuBackend
from slipstream.dispatch.fuse import fuse
from slipstream.gguf import open_gguf
from slipstream.models import build_graph

pytestmark = [pytest.mark.native, pytest.mark.model, pytest.mark.slow]

TOKENS = ((np.arange(96) * 337 + 5) % 30_000).astype(np.int32)
PREFIX = 60
ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33)


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b"])
def test_rows_levels_and_trees(model: str, model_path: Callable[[str], Path]) -> None:
    with open_gguf(model_path(model)) as file:
        graph = fuse(build_graph(file))
        program = compile_graph(CpuBackend(threads=1), file, graph)
        expected = chain_logits(program, TOKENS, chunk=1)
        program = compile_graph(CpuBackend(threads=3), file, graph)
        sequence = program.memory.open()
        extend(program, sequence, TOKENS[:PREFIX], 7)
        for rows in ROWS:
            logits = program.run(step_rows(sequence, TOKENS[PREFIX : PREFIX + rows])).logits
            assert same_bits(logits, expected[PREFIX : PREFIX + rows]), rows
        # the true continuation as a path of a tree, a wrong token before each of its nodes
        path = np.arange(1, 16, 2)
        parents = [-1, -1, *(row - 1 - row % 2 for row in range(2, 16))]
        tokens = np.full(16, 7, np.int32)
        tokens[path] = TOKENS[PREFIX : PREFIX + 8]
        tree = program.run(step_rows(sequence, tokens, parents)).logits
        assert same_bits(tree[path], expected[PREFIX : PREFIX + 8])
        for isa in _native.isa_levels():
            other = compile_graph(CpuBackend(isa, 2), file, graph)
            assert same_bits(chain_logits(other, TOKENS[:24]), expected[:24]), isa
