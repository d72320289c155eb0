"""Whole runs over made-up programs, in folders, for tests of what is reported of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lab_world import SIMPLE, SWEEP, Told, World, manifest_of, plan_of, runtimes_of, tools_of
from slipstream.lab.client.asking import Asked
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import ConditionPlan
from slipstream.lab.contract.records import Counts, Line
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.evidence.store import RECORDS
from slipstream.lab.freezing.freeze import MANIFEST
from slipstream.lab.observation.probe import Probe
from slipstream.lab.running.run import run

SUFFIX = ConditionPlan(name="suffix", stage="ngram", method="suffix")
QUESTIONS = {"repetitive": "Does it fire?", "prose": "Does it cost nothing?"}


@dataclass(frozen=True)
class TimedTold(Told):
    """An answer with the client's times, phases, and acceptance by position."""

    def fields(self, origin_s: float = 0.0) -> dict[str, Any]:
        made = super().fields(origin_s)
        total = self.total_s or 0.0
        first, pieces = 0.3 * total, max(len(self.ids), 1)
        step = (total - first) / pieces
        return made | {
            "first_s": first,
            "token_times_s": tuple(first + step * i for i in range(pieces)),
            "prompt_tokens": 100,
            "phases": {"draft": 0.05 * total, "verify": 0.5 * total, "sample": 0.01 * total},
        }


@dataclass
class TimedWorld(World):
    """A world with noise of some percent, the same at each time.

    Attributes:
        noise: relative, of every request.
    """

    noise: float = 0.02
    _asked: int = field(default=0)

    async def send(self, endpoint: Endpoint, asked: Asked) -> Told:
        told = await super().send(endpoint, asked)
        self._asked += 1
        if told.total_s is None:
            return told
        seed = hashlib.sha256(f"{self._asked} {asked.prompt.id}".encode()).digest()
        total = told.total_s * (1 + self.noise * (seed[0] / 128 - 1))
        own = {f.name: getattr(told, f.name) for f in told.__dataclass_fields__.values()}
        return TimedTold(**{**own, "total_s": total, "counts": _by_position(told.counts)})


def _by_position(counts: Counts) -> Counts:
    if not counts.steps or counts.accepted is None:
        return counts
    accepted = tuple(counts.accepted // 2 + (i == 0) * (counts.accepted % 2) for i in range(2))
    reached = (counts.steps, max(accepted[0], accepted[1]))
    return msgspec.structs.replace(
        counts,
        accepted_at=accepted,
        reached_at=reached,
        denominator="drafts that reached it",
    )


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_bytes(manifest.canonical())
    return manifest


def write_records(folder: Path, lines: Sequence[Line]) -> None:
    raw = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (folder / RECORDS).write_bytes(raw)


def planned(folder: Path, *conditions: ConditionPlan, **given: Any) -> Manifest:
    """A plan that was frozen and not executed."""
    chosen = conditions or (SIMPLE, SUFFIX, SWEEP)
    changed = given.pop("manifest", {})
    manifest = manifest_of(plan_of(*chosen, **given))
    questions = {name: QUESTIONS.get(name, "Why?") for name in manifest.plan.strata}
    manifest = msgspec.structs.replace(manifest, **{"questions": questions, **changed})
    return write_manifest(folder, manifest)


def executed(
    folder: Path,
    *conditions: ConditionPlan,
    world: World | None = None,
    probe: Probe | None = None,
    **given: Any,
) -> Manifest:
    """The same, run to its end, on a quiet machine unless its probe says otherwise."""
    manifest = planned(folder, *conditions, **given)
    told = world or TimedWorld(seconds={"none": 1.0, "ngram-simple": 0.6, "suffix": 0.97})
    own: dict[str, Any] = {} if probe is None else {"probe": probe}
    run(folder, manifest, runtimes_of(manifest, told), tools=tools_of(manifest, told, **own))
    return manifest


def cut(folder: Path, lines: int) -> None:
    """As a run that was killed leaves it: so many records, and a torn one."""
    path = folder / RECORDS
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[:lines]) + kept[lines][:40])


def with_prompts(manifest: Manifest, changed: Mapping[str, Any]) -> Manifest:
    """Every prompt's identity with other fields."""
    prompts = tuple(msgspec.structs.replace(p, **changed) for p in manifest.prompts)
    return msgspec.structs.replace(manifest, prompts=prompts)
