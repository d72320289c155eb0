"""When requests come, and which: closed loop, Poisson with the plan's seed, or as recorded.

Both sides of a pair get the same requests at the same times: the order and the gaps follow from the
plan and the round of the series, never from the condition.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from slipstream.errors import OptionError, RequestError
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import Arrivals
from slipstream.paths import path_of, read_file, shown

MOST_ARRIVALS: Final = 10_000
_MOST_FILE_BYTES: Final = 16 << 20
_WHAT: Final = "a file of recorded arrivals"


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a recorded pattern: a prompt's id, and seconds since the first one."""

    at_s: float
    prompt: str


def times(arrivals: Arrivals, requests: int, seed: int) -> tuple[float, ...] | None:
    """Seconds from the pass's start at which each request is sent; None = a closed loop.

    Raises:
        OptionError: a rate that is not positive.
        RequestError: the recorded file is malformed.
    """
    if arrivals.kind == "closed":
        return None
    if arrivals.kind == "recorded":
        return tuple(line.at_s for line in recorded(arrivals.file))[:requests]
    if not (math.isfinite(arrivals.rate_per_s) and arrivals.rate_per_s > 0):
        raise OptionError(
            "a positive `rate_per_s` with Poisson arrivals",
            str(arrivals.rate_per_s),
            "Give requests per second in `[arrivals]`.",
        )
    draw = random.Random(seed)
    gaps = (draw.expovariate(arrivals.rate_per_s) for _ in range(requests))
    return tuple(itertools.accumulate(gaps))


def mixed(manifest: Manifest) -> tuple[str, ...]:
    """Prompt ids of a pass over the plan's mix, or of its recorded file.

    Any beginning of the list has the mix's shares as nearly as whole requests allow; no prompt
    comes twice, and the list ends where a stratum has no more.

    Raises:
        OptionError: a share below 0, or of a stratum without prompts; or none above 0.
        RequestError: the recorded file is malformed, or names a prompt that is not measured.
    """
    plan = manifest.plan.arrivals
    if plan.kind == "recorded":
        return _known(manifest, recorded(plan.file))
    supply: dict[str, list[str]] = {}
    for prompt in manifest.prompts:
        if not prompt.warm_up:
            supply.setdefault(prompt.stratum, []).append(prompt.id)
    given = plan.mix or dict.fromkeys(supply, 1.0)
    shares = {stratum: share for stratum, share in given.items() if share > 0}
    for stratum, share in given.items():
        if stratum not in supply or not (math.isfinite(share) and share >= 0 and shares):
            raise OptionError(
                "shares of measured strata in `mix`, one above 0",
                f"{stratum} = {share}",
                f"Measured are {', '.join(supply)}.",
            )
    return tuple(_take(shares, {s: list(supply[s]) for s in shares}))


def _take(shares: Mapping[str, float], supply: Mapping[str, list[str]]) -> Iterator[str]:
    total = math.fsum(shares.values())
    taken = dict.fromkeys(shares, 0)
    for count in itertools.count(1):
        behind = {s: share / total * count - taken[s] for s, share in shares.items()}
        stratum = max(behind, key=lambda s: behind[s])
        if taken[stratum] == len(supply[stratum]):
            return
        yield supply[stratum][taken[stratum]]
        taken[stratum] += 1


def _known(manifest: Manifest, lines: Sequence[Recorded]) -> tuple[str, ...]:
    ids = {p.id for p in manifest.prompts if not p.warm_up}
    for number, line in enumerate(lines, 1):
        if line.prompt not in ids:
            raise RequestError(
                f"a measured prompt in line {number} of the recorded arrivals",
                repr(line.prompt)[:80],
                "Use the ids of the manifest's prompts.",
            )
    return tuple(line.prompt for line in lines)


def content(file: str) -> bytes:
    """
    Args:
        file: the path that the plan names.

    Raises:
        OptionError: it can be no path.
        RequestError: no such file, no regular one, or one over 16 MiB.
    """
    return read_file(path_of(file, "`arrivals.file`"), _WHAT, _MOST_FILE_BYTES)


def recorded(file: str) -> list[Recorded]:
    """The lines of a recorded pattern, times not decreasing and from 0 on.

    Raises:
        OptionError, RequestError: as ``content``; more than 10 000 lines, or a malformed one.
    """
    lines: list[Recorded] = []
    last = 0.0
    for number, raw in enumerate(content(file).splitlines(), 1):
        if not raw.strip():
            continue
        line = _line(raw, number)
        if not (math.isfinite(line.at_s) and line.at_s >= last) or len(lines) == MOST_ARRIVALS:
            raise _bad(number, f"at_s = {line.at_s} after {last} ({len(lines)} lines)")
        last = line.at_s
        lines.append(line)
    if not lines:
        raise RequestError("a recorded arrival", f"an empty file `{shown(file)}`", "Record some.")
    return lines


def _line(raw: bytes, number: int) -> Recorded:
    try:
        return msgspec.json.decode(raw, type=Recorded)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise _bad(number, str(problem)) from None


def _bad(number: int, found: str) -> RequestError:
    return RequestError(
        f'`{{"at_s": SECONDS, "prompt": ID}}` with rising times in line {number} of the arrivals',
        found,
        "Correct the file.",
    )


def digest(arrivals: Arrivals) -> str:
    """SHA-256 of a recorded pattern's file, for the manifest; empty for the other kinds."""
    if arrivals.kind != "recorded":
        return ""
    return hashlib.sha256(content(arrivals.file)).hexdigest()
