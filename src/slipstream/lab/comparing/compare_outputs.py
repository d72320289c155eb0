"""B's outputs beside A's: equal, or where they part and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from slipstream.lab.comparing.compare_data import Outputs
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import Line, RequestRecord
from slipstream.lab.evidence.output_verdict import DIVERGED, EQUAL, cause
from slipstream.lab.evidence.store import counted
from slipstream.lab.running import outputs
from slipstream.lab.running.outputs import Output
from slipstream.lab.scheduling.block_prompts import prompts_of
from slipstream.lab.scheduling.schedule import NONE

NEAR_TIE: Final = "near-tie"
_KEPT: Final = 256
Load = Callable[[str], Output]
"""From the name that a record has for an output to the output."""


@dataclass(frozen=True)
class Beside:
    """A prompt's outputs under one condition and concurrency.

    Attributes:
        verdict: ``equal``, ``diverged`` or empty where the rule has nothing to compare.
        at, gap, cause: of the first token that differs; the gap is that of A's two best logits.
        settled: whether the pass with A's logits has been, so that the cause stays what it is.
        unit: what ``at`` counts; characters where texts are compared.
    """

    condition: str
    slots: int
    prompt: str
    verdict: str
    at: int | None = None
    gap: float | None = None
    cause: str = ""
    settled: bool = False
    unit: str = "token"

    @property
    def differs(self) -> bool:
        """Whether they part at a token that is no near-tie."""
        return self.verdict == DIVERGED and self.cause != NEAR_TIE

    @property
    def text(self) -> str:
        gap = "no logits" if self.gap is None else f"gap {self.gap:.4g}"
        return f"{self.prompt} at {self.unit} {self.at} ({gap}): {self.cause}"


def loader(folder: Path) -> Load:
    """Reads outputs of a run's folder, each once."""
    return lru_cache(maxsize=_KEPT)(lambda name: outputs.load(folder, name))


def beside(manifest: Manifest, lines: Sequence[Line], load: Load) -> Iterator[Beside]:
    """Every prompt that both builds answered under a condition; the first answers count.

    Raises:
        RequestError: an output's file is missing or changed.
    """
    a, b = manifest.plan.comparison.builds
    known = [x for x in counted(lines) if isinstance(x, RequestRecord) and x.output and not x.error]
    first: dict[tuple[str, str, int, str, str], str] = {}
    for x in known:
        first.setdefault((x.runtime, x.condition, x.slots, x.stage, x.prompt), x.output)
    for runtime, condition, slots, stage, prompt in list(first):
        theirs = first.get((b, condition, slots, stage, prompt))
        if runtime != a or stage != "greedy" or theirs is None:
            continue
        ours = first[a, condition, slots, stage, prompt]
        logits = first.get((a, NONE, 1, "logits", prompt))
        made = _compared(manifest, load, ours, theirs, logits)
        unit = "character" if manifest.plan.rules.comparison == "text" else "token"
        yield Beside(condition, slots, prompt, *made, settled=logits is not None, unit=unit)


def _compared(
    manifest: Manifest, load: Load, ours: str, theirs: str, logits: str | None
) -> tuple[str, int | None, float | None, str]:
    if ours == theirs:  # files are named by what they hold
        return EQUAL, None, None, ""
    rules = manifest.plan.rules
    known = None if logits is None else load(logits)
    verdict, where = outputs.compared(
        load(ours), load(theirs), rules.comparison, rules.tolerance_logit_gap, known
    )
    if where is None:
        return verdict, None, None, ""
    return verdict, where.at, where.gap, cause(where.gap, rules.tolerance_logit_gap)


def summed_up(
    manifest: Manifest,
    found: Sequence[Beside],
    loose: Mapping[tuple[str, int, str], str],
    condition: str,
    stratum: str,
    slots: int,
) -> Outputs:
    """The outputs of one series.

    Args:
        loose: as ``unrepeatable``.
    """
    names = prompts_of(manifest, stratum) or tuple(p.id for p in manifest.prompts)
    ours = [x for x in found if (x.condition, x.slots) == (condition, slots) and x.prompt in names]
    parted = [x for x in ours if x.verdict == DIVERGED]
    several = (loose.get((condition, slots, name), "") for name in names)
    return Outputs(
        equal=sum(x.verdict == EQUAL for x in ours),
        near_ties=sum(not x.differs for x in parted),
        differ=sum(x.differs for x in parted),
        missing=sum(not x.verdict for x in ours),
        parted=tuple(x.text for x in parted),
        unrepeatable=tuple(text for text in several if text),
    )


def unrepeatable(manifest: Manifest, lines: Sequence[Line]) -> dict[tuple[str, int, str], str]:
    """(condition, slots, prompt) -> which build itself gave several outputs of it."""
    rule = manifest.plan.rules.comparison
    seen: dict[tuple[str, str, int, str], set[str]] = defaultdict(set)
    for x in counted(lines):
        if isinstance(x, RequestRecord) and x.stage == "greedy" and x.output and not x.error:
            digest = x.ids_sha256 if rule == "ids" else x.text_sha256
            seen[x.runtime, x.condition, x.slots, x.prompt] |= {digest} - {""}
    found: dict[tuple[str, int, str], str] = {}
    for (runtime, condition, slots, prompt), digests in seen.items():
        if len(digests) > 1:
            before = found.get((condition, slots, prompt))
            text = f"{runtime} gave {len(digests)} outputs of {prompt}"
            found[condition, slots, prompt] = f"{before}; {text}" if before else text
    return found
