"""The scripts behind the figures: worker processes, F16 files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from builders import tiny_model
from slipstream.gguf import open_gguf

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import make_f16
import workers

ECHO = """
import sys
print("pages of text", file=sys.stderr)
print('{"ready": true}', flush=True)
for line in sys.stdin:
    if "stop" in line:
        print("the reason", file=sys.stderr)
        sys.exit(3)
    print("noise")
    print(line, end="", flush=True)
"""


def test_worker_answers_and_keeps_its_errors_to_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with workers.Worker("echo", [sys.executable, "-c", ECHO]) as worker:
        assert worker.ready == {"ready": True}
        assert worker.ask(op="rows", rows=3) == {"op": "rows", "rows": 3}
    assert capfd.readouterr().err == ""


def test_worker_that_ends_says_why() -> None:
    with (
        workers.Worker("echo", [sys.executable, "-c", ECHO]) as worker,
        pytest.raises(SystemExit, match=r"the reason\necho ended with exit code 3"),
    ):
        worker.ask(op="stop")


def test_f16_file_holds_the_same_values(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "tiny.gguf", "llama")
    target = tmp_path / "out" / "tiny-f16.gguf"
    make_f16.convert(source, target)
    with open_gguf(source) as before, open_gguf(target) as after:
        assert set(before.tensors) == set(after.tensors)
        changed = {"general.file_type", "general.alignment", "general.quantization_version"}
        assert set(before.metadata) - changed <= set(after.metadata)
        for name in set(before.metadata) - changed:
            np.testing.assert_array_equal(before.metadata[name], after.metadata[name])
        kinds = {tensor.type_id for tensor in after.tensors.values() if len(tensor.shape) > 1}
        assert kinds == {1}
