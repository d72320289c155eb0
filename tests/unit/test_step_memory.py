"""Memory around a step: what Python allocates, and that a load holds no second copy."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from builders import tiny_model
from native_runs import compile_graph, step_rows

pytest.importorskip("slipstream._native")

from slipstream import _native
from slipstream.backends.cpu import CpuBackend
from slipstream.dispatch.fuse import fuse
from slipstream.gguf import open_gguf
from slipstream.models import build_graph

pytestmark = pytest.mark.native

SMALL_OBJECTS_BYTES = 16 * 1024  # arrays of a few numbers per row


@pytest.mark.parametrize("rows", [1, 8, 33])
def test_python_allocates_the_outputs_of_a_step_and_little_else(tmp_path: Path, rows: int) -> None:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", "qwen2")) as file:
        program = compile_graph(CpuBackend(threads=2), file, fuse(build_graph(file)))
        step = step_rows(program.memory.open(), np.arange(rows, dtype=np.int32))
        program.run(step)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            outputs = program.run(step)
            most = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
    assert outputs.logits.nbytes <= most <= outputs.logits.nbytes + SMALL_OBJECTS_BYTES


PEAK = """
import os, resource, sys
import numpy as np
from slipstream import _native
rows, columns, mapped = 16384, 1024, sys.argv[2] == "mapped"
source = _native.SourceRows(0, np.memmap(sys.argv[1], np.uint8, "r"), rows, columns, mapped)
arena = _native.Arena(_native.matrix_bytes(0, rows, columns))
pool = _native.Pool(2)
matrix = _native.pack(pool, arena, source, [], "portable")
size = rows * columns * 4
status = dict(line.split(":") for line in open("/proc/self/status"))
print(int(status["RssFile"].split()[0]) * 1024, matrix.bytes == size)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_repacking_leaves_no_source_pages_behind(tmp_path: Path) -> None:
    size = 16384 * 1024 * 4
    path = tmp_path / "weights"
    path.write_bytes(bytes(size))

    def resident(kind: str) -> int:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", PEAK, str(path), kind]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        held, same = done.stdout.split()
        assert same == "True"
        return int(held)

    # 64 MB, of which a borderline page per slice may stay
    assert resident("kept") - resident("mapped") > 0.9 * size


def test_dropped_source_pages_are_still_in_the_file(tmp_path: Path) -> None:
    rows, columns = 600, 1024
    values = np.random.default_rng(3).standard_normal((rows, columns)).astype(np.float32)
    path = tmp_path / "weights"
    values.tofile(path)
    data = np.memmap(path, np.uint8, "r")
    packed = []
    for mapped in (True, False, True):
        arena = _native.Arena(_native.matrix_bytes(0, rows, columns))
        source = _native.SourceRows(0, data, rows, columns, mapped)
        assert _native.pack(_native.Pool(3), arena, source, [], "portable") is not None
        packed.append(ctypes.string_at(arena.address, arena.bytes))
    assert packed[0] == packed[1] == packed[2]
    assert np.array_equal(np.frombuffer(data, np.float32).reshape(rows, columns), values)


def test_an_arena_begins_at_a_huge_page() -> None:
    for size in (2 << 20, (2 << 20) + 1, 5 << 20):
        arena = _native.Arena(size)
        assert arena.address % (2 << 20) == 0
        assert arena.bytes % (2 << 20) == 0
        assert arena.bytes >= size
    assert _native.Arena(5000).bytes == 8192
