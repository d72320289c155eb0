"""A/A blocks that were recorded and kept: the same condition, again and again.

``experiments/aa/*.jsonl``: a first line that says what ran where, then one line per block, in the
order they ran. ``benchmarks/lab_aa.py`` records them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from slipstream.errors import RequestError
from slipstream.lab.evidence.noise import Spread, spread
from slipstream.lab.observation.probe import disturbed

_MOST_BYTES: Final = 64 << 20
_TURN: Final = 4  # blocks of A B B A


class Recording(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="aa"):
    """What was recorded.

    Attributes:
        began: date-time with zone.
        facts: machine, model and its digest, program, prompts, tokens: for readers.
    """

    began: str
    facts: dict[str, Any] = {}


class AABlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="block"):
    """A fresh process, a warm-up and one pass over the prompts.

    Attributes:
        block: number, from 0.
        began_s: since the recording began.
        total_s: prompt -> seconds of its request.
        tokens: prompt -> tokens it gave.
        probe_s, other_load: as ``BlockRecord`` has them; None = not taken.
        drift: as ``probe.drift`` has it.
    """

    block: int
    began_s: float
    total_s: dict[str, float]
    tokens: dict[str, int]
    probe_s: float | None = None
    other_load: float | None = None
    drift: float | None = None


@dataclass(frozen=True)
class AABlocks:
    """A recording and its blocks, in order."""

    recording: Recording
    blocks: tuple[AABlock, ...]

    @property
    def times(self) -> list[float]:
        """Seconds of each block's requests together."""
        return [sum(block.total_s.values()) for block in self.blocks]

    def disturbed(self, limit: float) -> list[int]:
        """Blocks that a run with this drift limit would repeat."""
        return [b.block for b in self.blocks if disturbed(b.drift, b.other_load, limit)]

    def spread(self) -> Spread | None:
        return spread([self.times], f"{len(self.blocks)} A/A blocks of {self.recording.began}")


def _bad(path: Path, found: str) -> RequestError:
    return RequestError(
        f"A/A blocks in {path.name}", found, "Record them anew: benchmarks/lab_aa.py."
    )


def read_aa(path: Path) -> AABlocks:
    """A kept recording; a torn last line is left out.

    Raises:
        RequestError: the file is missing, too large or malformed, or a time is not positive.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _bad(path, f"more than {_MOST_BYTES} bytes")
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as problem:
        raise _bad(path, problem.strerror or "an unreadable file") from None
    try:
        made = [msgspec.json.decode(line, type=Recording | AABlock) for line in lines if line]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _bad(path, str(problem)) from None
    if not made or not isinstance(made[0], Recording):
        raise _bad(path, "no first line that says what was recorded")
    blocks = [block for block in made[1:] if isinstance(block, AABlock)]
    if len(blocks) != len(made) - 1:
        raise _bad(path, "two recordings in one file")
    _check(path, blocks)
    return AABlocks(made[0], tuple(blocks))


def _check(path: Path, blocks: Sequence[AABlock]) -> None:
    names = set(blocks[0].total_s) if blocks else set()
    for block in blocks:
        times = block.total_s.values()
        if not names or set(block.total_s) != names:
            raise _bad(path, f"other prompts in block {block.block}")
        if not all(0 < t < 1e9 for t in times):
            raise _bad(path, f"a time that cannot be in block {block.block}")


def resampled(
    blocks: Sequence[AABlock], pairs: int, draws: np.random.Generator
) -> list[tuple[AABlock, AABlock]]:
    """Pairs (A, B) as a run would have them: turns A B B A of four neighbouring blocks.

    Neighbours stay together, so drift and spells of noise are those that were recorded (a moving
    block bootstrap, Kunsch 1989).

    Raises:
        ValueError: there are fewer than four blocks.
    """
    if len(blocks) < _TURN:
        raise ValueError("a turn A B B A needs four blocks")
    made: list[tuple[AABlock, AABlock]] = []
    while len(made) < pairs:
        start = int(draws.integers(0, len(blocks) - _TURN + 1))
        first, second, third, fourth = blocks[start : start + _TURN]
        made += [(first, second), (fourth, third)]
    return made[:pairs]
