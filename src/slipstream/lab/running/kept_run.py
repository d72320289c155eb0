"""A run as its folder keeps it: manifest and records that belong together, or what is wrong.

The first record of a run holds the digest of ``manifest.json``; a manifest that is another one is
an error. Blocks whose records are not those that were written (``lab.evidence.seals``) are left
out and told in a finding. Records from before there were digests are read, and told as not tied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from slipstream.errors import OperationError, OptionError, RequestError
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import SAME
from slipstream.lab.contract.records import FORMAT, FindingRecord, Line, RunRecord
from slipstream.lab.evidence import seals
from slipstream.lab.evidence.seals import Kept, Key
from slipstream.lab.evidence.store import RECORDS, Store, blocks_of, read_kept
from slipstream.lab.freezing.freeze import MANIFEST, read_manifest
from slipstream.lab.judging.findings import CHANGED, NAMES, UNTIED
from slipstream.lab.scheduling.schedule import blocks

MOST_RECORD_BYTES: Final = 512 << 20
_MOST_TOLD: Final = 5
_NOT_TIED: Final = (
    "the records do not hold the digest of their manifest, as those of earlier versions of the "
    "lab: that its rules are those of the run is not shown"
)
_RESTORE: Final = "The file was changed by something else; restore it, or begin a new run."


def read_run(folder: Path) -> tuple[Manifest, list[Line]]:
    """The manifest and the records of a run; of a plan that was not executed there are none.

    Blocks that were changed afterwards are left out; a finding ``records-changed`` names them. One
    called ``not-tied`` says that the records do not tell their manifest.

    Raises:
        OptionError: there is no manifest, or it is of another version.
        RequestError: the records are too large, malformed, of another run or of another manifest,
            or have values that cannot be.
    """
    manifest = read_manifest(folder)
    _require_whole(manifest, folder)
    kept = _read(folder / RECORDS)
    require_own(manifest, kept, frozen_digest(folder, manifest))
    gone = seals.broken(kept)
    lines = seals.without((x.line for x in kept), gone)
    return manifest, [*lines, *_told(manifest, [x.line for x in kept], gone)]


def _read(path: Path) -> Sequence[Kept]:
    try:
        size = path.stat().st_size if path.exists() else 0
        if size > MOST_RECORD_BYTES:
            expected = f"at most {MOST_RECORD_BYTES} bytes of records in {RECORDS}"
            raise RequestError(expected, f"{size}", "Restore the file, or run a smaller plan.")
        return read_kept(path)
    except OSError as problem:
        found = f"`{path}`: {problem.strerror or type(problem).__name__}"
        raise OperationError("records that can be read", found, "Check the folder.") from None


def _require_whole(manifest: Manifest, folder: Path) -> None:
    """Its parts speak of the same programs: a file that was changed by hand may not."""
    planned, found = set(manifest.plan.runtimes), {r.name for r in manifest.runtimes}
    kept = manifest.plan.rollback
    strangers = planned ^ found | ({kept} - {"", SAME} - planned)
    if strangers:
        where = f"a manifest in `{folder / MANIFEST}` whose parts speak of the same runtimes"
        told = f"`{min(strangers)[:128]}` in one of them alone"
        raise OptionError(where, told, "Restore the file.")


def frozen_digest(folder: Path, manifest: Manifest) -> str:
    """SHA-256 of the manifest's file, by its bytes; where there is none, as it would be written."""
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return manifest.digest


def require_own(manifest: Manifest, kept: Iterable[Kept], digest: str) -> None:
    """
    Args:
        digest: of the manifest as it is now.

    Raises:
        RequestError: a record is of another run or manifest, has an unknown format, names a finding
            that there is not, or a block that the plan has not.
    """
    lines = [x.line for x in kept]
    most = len(blocks(manifest)) if is_tied(lines) else None
    for number, line in enumerate(lines, 1):
        if line.run != manifest.run:
            raise RequestError(
                f"records of the run `{manifest.run}`",
                f"one of `{line.run[:128]}` in line {number}",
                "Bring each run's manifest and records back together, or name a new folder: --out.",
            )
        if isinstance(line, RunRecord):
            _require_tie(line, digest)
        for expected, found in _faults(line, most):
            raise RequestError(f"{expected} in line {number} of {RECORDS}", found, _RESTORE)


def is_tied(lines: Iterable[Line]) -> bool:
    """Whether the records say what their manifest was."""
    return any(isinstance(x, RunRecord) for x in lines)


def tied(store: Store, manifest: Manifest, digest: str) -> str:
    """Begin the records of a run, or check that those that are there can be gone on with.

    Returns what a reader must know of them, or an empty text.

    Raises:
        RequestError: as ``require_own``; or a block was changed since it was written.
        OperationError: the disk is full.
    """
    if not store.lines:
        store.append(RunRecord(run=manifest.run, manifest_sha256=digest))
    require_own(manifest, store.kept, digest)
    if gone := seals.broken(store.kept):
        key, why = min(gone.items())
        raise RequestError(
            f"the records that the run wrote in {RECORDS}",
            f"{len(gone)} changed blocks, the first block {key[0]}: {why}",
            _RESTORE,
        )
    return "" if is_tied(store.lines) else _NOT_TIED


def _require_tie(line: RunRecord, digest: str) -> None:
    if line.format != FORMAT:
        remedy = "Read them with the lab that wrote them."
        raise RequestError(f"records of format {FORMAT}", f"{line.format}", remedy)
    if line.manifest_sha256 != digest:
        raise RequestError(
            f"the manifest that the run began with, SHA-256 {line.manifest_sha256}",
            f"`{MANIFEST}` of SHA-256 {digest}",
            "Restore the file: rules, prompts and programs are fixed before the first request, and "
            "other ones are a new run.",
        )


def _faults(line: Line, most: int | None) -> Iterator[tuple[str, str]]:
    """(expected, found).

    Args:
        most: blocks of the plan; None = the manifest may not be that of the records.
    """
    block = getattr(line, "block", None)
    if most is not None and block is not None and block >= most:
        yield f"a block from 0 to {most - 1}, as the plan has them,", f"{block}"
    if isinstance(line, FindingRecord) and line.name not in NAMES:
        yield "a known finding", f"`{line.name[:64]}`"


def _told(
    manifest: Manifest, lines: Sequence[Line], gone: Mapping[Key, str]
) -> Iterator[FindingRecord]:
    """Findings about the records themselves."""
    if lines and not is_tied(lines) and not gone:
        yield FindingRecord(run=manifest.run, name=UNTIED, text=_NOT_TIED)
    if gone:
        yield FindingRecord(run=manifest.run, name=CHANGED, text=changed_text(lines, gone))


def changed_text(lines: Sequence[Line], gone: Mapping[Key, str]) -> str:
    """Which blocks do not count, and why; the first five by name."""
    records = blocks_of(lines)
    parts = [
        f"block {key[0]} ({records[key].condition[:64]}, {records[key].stratum[:64]}): {why}"
        for key, why in sorted(gone.items())
    ]
    more = f"; and {len(parts) - _MOST_TOLD} more" if len(parts) > _MOST_TOLD else ""
    count = f"{len(parts)} of {len(records)} blocks count for nothing, and no verdict can rest on "
    return f"{count}what is left: {'; '.join(parts[:_MOST_TOLD])}{more}"
