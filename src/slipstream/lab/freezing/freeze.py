"""From a plan to a manifest: everything is found out, checked and written before the first request.

The manifest's file is its canonical JSON, so that the file's SHA-256 is the manifest's digest.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from slipstream.cache import write_atomically
from slipstream.errors import OptionError
from slipstream.lab.contract.manifest import VERSION, Manifest, RuntimeIdentity
from slipstream.lab.contract.plan import Plan
from slipstream.lab.freezing.assembly import Assembly, Runtimes
from slipstream.lab.planning.plan_checks import check_plan
from slipstream.paths import read_file

MANIFEST: Final = "manifest.json"
MOST_MANIFEST_BYTES: Final = 64 << 20
_NAMED_BY: Final = {
    "runtimes": ("name",),
    "artifacts": ("role",),
    "pairings": ("draft",),
    "methods": ("runtime", "condition"),
    "prompts": ("id",),
}
_PASSING: Final = frozenset({"other_load"})
# Of our own program the digest of what serves requests counts, not commits beside it.
_COMMIT: Final = frozenset({"commit"})


def now() -> datetime.datetime:
    """The current time with its zone."""
    return datetime.datetime.now().astimezone()


def freeze(
    plan: Plan,
    runtimes: Runtimes,
    folder: Path,
    *,
    missing: list[str] | None = None,
    clock: Callable[[], datetime.datetime] = now,
) -> Manifest:
    """Find out everything that a run fixes, and write ``manifest.json`` into ``folder``.

    What is returned is what the file holds, so that a run that goes on sees the same.

    Args:
        runtimes: by the plan's names.
        folder: gets the manifest and the programs' help texts.
        missing: None = what is not here is an error; a list = it is appended there and is
            ``unknown`` in the manifest, which then describes a plan that cannot run here.

    Raises:
        InputError: the plan contradicts itself, a file is not here, a flag is in no help.
        OperationError: a program cannot say what it is, or the folder cannot be written.
    """
    check_plan(plan)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = Assembly(plan, runtimes, folder, missing).manifest(clock())
    write_atomically(folder / MANIFEST, manifest.canonical())
    return read_manifest(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run.

    Raises:
        OptionError: there is none, it is no manifest of this version, or its plan is none.
    """
    path = folder / MANIFEST
    content = read_file(path, "a run's folder with its manifest", MOST_MANIFEST_BYTES, OptionError)
    try:
        _require_version(path, msgspec.json.decode(content, type=_Versioned).version)
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        remedy = "It was changed, or written by another version."
        raise OptionError(f"a manifest in `{path}`", f"{problem}", remedy) from None
    check_plan(manifest.plan)
    return manifest


class _Versioned(msgspec.Struct):
    version: int = VERSION


def _require_version(path: Path, version: int) -> None:
    if version != VERSION:
        remedy = "Read it with the lab that wrote it, or restore the file."
        raise OptionError(f"a manifest of version {VERSION} in `{path}`", f"{version}", remedy)


def reopened(folder: Path, runtimes: Runtimes) -> Manifest:
    """The manifest of a run that is to go on: its files and programs are still the same.

    Raises:
        OptionError: names what differs; a series has one identity from beginning to end.
    """
    manifest = read_manifest(folder)
    found = differences(manifest, runtimes)
    if found:
        raise OptionError(
            f"the files and programs of `{manifest.run}`",
            "; ".join(found),
            "Bring them back, or begin a new run: builds and files are never pooled.",
        )
    return manifest


def differences(manifest: Manifest, runtimes: Runtimes) -> tuple[str, ...]:
    """What differs between a manifest and the files, programs and machine that are here now.

    What changes from minute to minute (other load) and who reads it (the lab's own version) are
    passed over.
    """
    with tempfile.TemporaryDirectory() as folder:
        absent: list[str] = []
        fresh = Assembly(manifest.plan, runtimes, Path(folder), absent).manifest(now())
    found = [*absent, *_compared(manifest, fresh)]
    return tuple(dict.fromkeys(found))


def _compared(before: Manifest, after: Manifest) -> Iterator[str]:
    for group in _NAMED_BY:
        olds, news = getattr(before, group), getattr(after, group)
        if len(olds) != len(news):
            yield f"{group}: {len(olds)} then, {len(news)} now"
        for old, new in zip(olds, news, strict=False):
            own = isinstance(old, RuntimeIdentity) and old.kind == "slipstream"
            yield from _fields(_name(group, old), old, new, _COMMIT if own else frozenset())
    yield from _fields("hardware", before.hardware, after.hardware, _PASSING)
    yield from _fields("observation", before.observation, after.observation)


def _name(group: str, identity: msgspec.Struct) -> str:
    return " ".join([group, *(str(getattr(identity, field)) for field in _NAMED_BY[group])])


def _fields(
    label: str, old: msgspec.Struct, new: msgspec.Struct, passed_over: frozenset[str] = frozenset()
) -> Iterator[str]:
    for name in old.__struct_fields__:
        then, there = getattr(old, name), getattr(new, name)
        if then != there and name not in passed_over:
            yield f"{label}: {name} {then!r:.70} then, {there!r:.70} now"
