"""What backs each kernel, as data with its provenance: policy files, checked when they are read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, Literal, get_args

from slipstream.errors import OptionError

Rung = Literal[
    "specified", "cpu-emulated", "compiled-by-vendor", "ran-on-device", "timed-on-device"
]
LADDER: Final[tuple[Rung, ...]] = get_args(Rung)
"""From the weakest evidence for a kernel to the strongest."""

DEFAULT_RUNG: Final[Rung] = "ran-on-device"
"""The rung below which a level runs only when it is named or passes its check at load."""


@dataclass(frozen=True)
class Status:
    """What backs a kernel.

    Attributes:
        rung: how far it was checked.
        chip: where that was, ``none`` when on no chip that has the instructions.
        date: when, ISO 8601.
        command: what was run.
    """

    rung: Rung
    chip: str
    date: str
    command: str

    def reaches(self, rung: Rung) -> bool:
        return LADDER.index(self.rung) >= LADDER.index(rung)


@dataclass(frozen=True)
class Policy:
    """A policy file.

    Attributes:
        name: of the file, without its ending.
        levels: what backs each instruction-set level, the weakest level first.
    """

    name: str
    levels: Mapping[str, Status]


def policy_names() -> list[str]:
    """The policies that this build holds."""
    files = (resources.files("slipstream.dispatch") / "policies").iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


@cache
def load_policy(name: str) -> Policy:
    """The policy ``policies/<name>.toml``.

    Raises:
        OptionError: there is no such policy.
        ValueError: it is not a sound policy.
    """
    if name not in policy_names():
        raise OptionError(f"a policy among {', '.join(policy_names())}", repr(name), "Choose one.")
    file = resources.files("slipstream.dispatch") / "policies" / f"{name}.toml"
    return parse_policy(name, file.read_text(encoding="utf-8"))


def parse_policy(name: str, text: str) -> Policy:
    """A policy from the text of its file.

    Raises:
        ValueError: a key or a rung is missing or unknown, or the text is not TOML.
    """
    document = tomllib.loads(text)
    if set(document) != {"levels"}:
        raise ValueError(f"policy {name!r} has the keys {sorted(document)}, expected 'levels'")
    return Policy(name, {isa: _status(isa, entry) for isa, entry in document["levels"].items()})


def _status(isa: str, entry: Mapping[str, str]) -> Status:
    if set(entry) != {"rung", "chip", "date", "command"}:
        raise ValueError(f"level {isa!r} has the keys {sorted(entry)}")
    rung = next((known for known in LADDER if known == entry["rung"]), None)
    if rung is None:
        raise ValueError(f"rung {entry['rung']!r} is not on the ladder {', '.join(LADDER)}")
    return Status(rung, entry["chip"], entry["date"], entry["command"])
