"""The slot, batch and flash-attention settings of llama-server that are tried, as data.

What a setting leaves open is llama-server's own choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peer_grid import COMMON, DRAFT_MODEL_FLAG
from peer_grid import Setting as Drafting

PEER: Final = "llama"
FLASH: Final = ("on", "off")
BATCHES: Final = (128, 512)
"""Rows of a pass (``-ub``)."""
STREAMS: Final = (1, 4, 8)


@dataclass(frozen=True)
class Setting:
    """How llama-server is started for a number of streams.

    Attributes:
        slots: ``-np``; the context is that of a sequence times these.
    """

    slots: int
    flash: str
    batch: int
    unified: bool

    @property
    def name(self) -> str:
        shared = ", unified" if self.unified else ""
        return f"{self.slots} slots, fa {self.flash}, ub {self.batch}{shared}"

    @property
    def flags(self) -> list[str]:
        unified = ["--kv-unified"] if self.unified else ["--no-kv-unified"]
        return ["-np", str(self.slots), "-fa", self.flash, "-ub", str(self.batch), *unified]


def settings(streams: int) -> list[Setting]:
    """One slot or more: as many as there are streams, and twice as many beside them."""
    if streams == 1:
        return [Setting(1, flash, batch, False) for flash in FLASH for batch in BATCHES]
    whole = [
        Setting(streams, flash, batch, unified)
        for flash in FLASH
        for batch in BATCHES
        for unified in (False, True)
    ]
    return [*whole, Setting(2 * streams, FLASH[0], BATCHES[-1], True)]


def named(streams: int, name: str) -> Setting:
    return next(s for s in settings(streams) if s.name == name)


def best(tried: Mapping[str, Any]) -> str | None:
    """Name of the setting with most tokens per second; None where none ran."""
    ran = {name: record["tok_s"] for name, record in tried.items() if record["failed"] is None}
    return max(ran, key=lambda name: ran[name]) if ran else None


def command(
    program: str,
    setting: Setting,
    *,
    model: str,
    threads: int,
    context: int,
    draft: str | None = None,
    drafting: Drafting | None = None,
) -> list[str]:
    """The command line, all but host and port.

    Args:
        context: positions of one sequence.
        drafting: how it drafts; None = not at all.

    Raises:
        ValueError: it needs a draft model and there is none.
    """
    words = [program, "-m", model, "-t", str(threads), "-tb", str(threads)]
    words += ["-c", str(context * setting.slots), *COMMON[PEER], *setting.flags]
    if drafting is not None:
        words += drafting.flags
        if drafting.drafts:
            if draft is None:
                raise ValueError(f"{drafting.name} needs a draft model")
            words += [DRAFT_MODEL_FLAG[PEER], draft]
    return words


def shown(flags: Sequence[str]) -> str:
    return " ".join(flags)
