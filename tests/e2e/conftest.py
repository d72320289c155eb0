"""The command as a user runs it: a process of its own, tiny models, each backend that is here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Command:
    """``python -m slipstream`` with an environment that finds this package from any folder."""

    environment: dict[str, str]

    def argv(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "slipstream", *map(str, arguments)]

    def __call__(
        self,
        *arguments: str | Path,
        stdin: str | bytes = "",
        cwd: Path | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        done = subprocess.run(
            self.argv(*arguments),
            input=data,
            capture_output=True,
            cwd=cwd,
            env={**self.environment, **environment},
            timeout=TIMEOUT_S,
            check=False,
        )
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def start(self, *arguments: str | Path, **popen: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.argv(*arguments), env=self.environment, **popen)


def absolute(search_path: str) -> str:
    parts = [str(Path(part).resolve()) for part in search_path.split(os.pathsep) if part]
    return os.pathsep.join(parts)


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT, and so would every process that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def slipstream(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command, with an empty cache of models."""
    return Command(
        {
            **os.environ,
            "PYTHONPATH": absolute(os.environ.get("PYTHONPATH", "")),
            "SLIPSTREAM_CACHE": str(tmp_path_factory.mktemp("cache")),
            "COLUMNS": "100",
        }
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of two layers; its greedy output soon repeats itself."""
    return tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama", context=4096)


@pytest.fixture(scope="session")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a chat template."""
    path = tmp_path_factory.mktemp("chatty") / "chatty.gguf"
    extra = {"tokenizer.chat_template": TEMPLATE}
    return tiny_model(path, "llama", context=4096, extra=extra)


@pytest.fixture(params=["reference", pytest.param("cpu", marks=pytest.mark.native)])
def backend(request: pytest.FixtureRequest) -> Sequence[str]:
    """The flags of each backend."""
    if request.param == "cpu" and find_spec("slipstream._native") is None:
        pytest.skip("the native core is not built")
    return ["--backend", str(request.param)]
