"""A comparison of two builds in words: what its page, its Markdown and the terminal say alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from slipstream.lab.comparing.compare_boundary import outputs_text
from slipstream.lab.comparing.compare_data import (
    ComparisonResult,
    Contrast,
    Ended,
    Rows,
    Series,
    TimeRatio,
)
from slipstream.lab.comparing.compare_times import LESS, MORE
from slipstream.lab.contract.manifest import UNKNOWN, RuntimeIdentity
from slipstream.lab.evidence.definitions import NOT_MEASURABLE
from slipstream.lab.judging import pair_words
from slipstream.lab.judging.pair_words import counted_pairs

ENDED: Final[Mapping[Ended, str]] = MappingProxyType(
    {
        "unexecuted": "Nothing was run: this is a plan with its manifest, and no result.",
        "unfinished": "The run is not finished; the figures are those of the rounds so far.",
        "boundary": "The run ended at a stop condition; see the diagnostic boundary.",
        "complete": "Every block that could run has run.",
    }
)
NOTHING_ELSE: Final = "Nothing was put in place of what did not run."
HEADER: Final = ("workload", "condition", "rows A", "rows B", "outputs", "B / A", "statement")
_CONTRASTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        LESS: "B gains more with few rows than with many",
        MORE: "B gains less with few rows than with many",
    }
)
_SAME_ROWS: Final = 0.005


def title(made: ComparisonResult) -> str:
    """Names of the builds, and that a check is one."""
    a, b = (name_of(build) for build in made.builds)
    return f"A/A check of {a}" if made.same_build else f"{a} (A) and {b} (B)"


def name_of(build: RuntimeIdentity) -> str:
    """Release or commit where known, else the start of the digest."""
    known = [t for t in (build.release, build.commit[:12]) if t != UNKNOWN]
    return f"{build.kind} {known[0] if known else build.binary_sha256[:12]}"


def identity_rows(builds: tuple[RuntimeIdentity, RuntimeIdentity]) -> list[tuple[str, str, str]]:
    """Digests first, then what the programs and the plan say."""
    a, b = builds
    first = ("binary_sha256", "help_sha256")
    rows = [(part, getattr(a, part), getattr(b, part)) for part in first]
    names = sorted({*a.libraries, *b.libraries})
    rows += [(n, a.libraries.get(n, "none"), b.libraries.get(n, "none")) for n in names]
    rest = ("kind", "release", "commit", "compiler", "build_options", "isa", "backend", "driver")
    rows += [(part, getattr(a, part), getattr(b, part)) for part in (*rest, "terms")]
    return [*rows, ("flags", " ".join(a.flags), " ".join(b.flags))]


def series_row(s: Series) -> tuple[str, ...]:
    """One line of the table of conditions, under ``HEADER``."""
    rows = [rows_text(r) for r in s.rows] if s.rows else ["-", "-"]
    slots = f", {s.slots} slots" if s.slots > 1 else ""
    ratio = NOT_MEASURABLE if s.time is None else ratio_text(s.time)
    place = f"{s.condition} ({s.role}){slots}"
    return (s.stratum, place, *rows, outputs_text(s), ratio, statement_of(s))


def statement_of(s: Series) -> str:
    """What the pairs show, or why there is nothing to be shown."""
    if s.state in ("compared", "unfinished") and s.time is not None:
        return s.time.statement
    return f"{s.state}: {s.reason}" if s.reason else s.state


def rows_text(rows: Rows) -> str:
    """Measured rows of a step, with what was asked for."""
    asked = UNKNOWN if rows.asked is None else str(rows.asked)
    if rows.mean is None or rows.least is None or rows.most is None:
        return f"not told (asked {asked})"
    if rows.most - rows.least > _SAME_ROWS:
        return f"{rows.least:.2f} to {rows.most:.2f} (asked {asked} a slot)"
    return f"{rows.mean:.2f} (asked {asked})"


def ratio_text(made: TimeRatio) -> str:
    """Median, interval and pairs; of few pairs their extremes."""
    text = pair_words.ratio_text(made)
    return text if made.low is None else f"{text}, {counted_pairs(made.figure.n)}"


def contrast_text(made: Contrast) -> str:
    """What few rows alone do."""
    told = _CONTRASTS.get(made.ratio.statement, made.ratio.statement)
    slots = f", {made.slots} slots" if made.slots > 1 else ""
    return f"few rows against many, {made.stratum}{slots}: {ratio_text(made.ratio)}; {told}"


def series_notes(s: Series) -> Iterator[str]:
    """How rows were measured, drift, acceptance, the sign test, outputs that part."""
    if s.rows:
        yield "rows are " + " / ".join(dict.fromkeys(r.source for r in s.rows))
    yield f"{s.rounds} of {s.planned} rounds"
    yield "drift not known" if s.drift is None else f"drift of the machine up to {s.drift:.1%}"
    if s.left_out:
        yield f"{s.left_out} blocks left out for it"
    if any(s.drafted):
        shown = ["undefined" if a is None else f"{a:.1%}" for a in s.acceptance]
        yield f"accepted {shown[0]} of {s.drafted[0]} (A), {shown[1]} of {s.drafted[1]} (B) drafted"
    if s.equal_to_none[0]:
        yield f"as without drafts {s.equal_to_none[0]} (A), {s.equal_to_none[1] or 'none'} (B)"
    if s.time is not None:
        needed = "an unknown number of" if s.time.needed is None else str(s.time.needed)
        yield (
            f"B shorter in {s.time.shorter}, longer in {counted_pairs(s.time.longer)}, "
            f"p {s.time.p:.3g}; {needed} pairs needed"
        )
    yield from s.outputs.parted
    yield from s.outputs.unrepeatable


def range_text(made: ComparisonResult) -> str:
    """The few-row range of the target's file, with its source."""
    few = made.few_rows
    types = ", ".join(f"{name} from {n}" for name, n in few.types.items())
    never = f" Never taken by {', '.join(few.never)}." if few.never else ""
    return (
        f"Few-row range of the target's file: {few.least} to {few.most} rows ({types}).{never} "
        f"Source: {few.source}."
    )


def flags_line(made: ComparisonResult) -> str:
    """How much the help texts differ."""
    found = made.help
    if found.unknown:
        return f"flags: not compared, {found.unknown}"
    return (
        f"flags: {len(found.only_a)} of A alone, {len(found.only_b)} of B alone, "
        f"{len(found.defaults)} defaults and {len(found.values)} sets of values differ"
    )
