"""What two builds have differently: identity, flags and their defaults, settings in effect."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from slipstream.lab.comparing.compare_data import Change, HelpDifference
from slipstream.lab.contract.manifest import UNKNOWN, Manifest, RuntimeIdentity
from slipstream.lab.contract.records import Line, ObservedRecord
from slipstream.lab.freezing.help_text import MOST_CHARACTERS, Flag, Help

LEFT: Final = "left."
_SHOWN: Final = 200
_DIGESTS: Final = ("binary_sha256", "libraries", "help_sha256")
_PASSED_OVER: Final = ("name", "help_file", "predicted_paths")


def identity_changes(a: RuntimeIdentity, b: RuntimeIdentity) -> Iterator[Change]:
    """Parts of an identity that differ, digests first."""
    parts = (*_DIGESTS, *(f for f in a.__struct_fields__ if f not in (*_DIGESTS, *_PASSED_OVER)))
    for part in parts:
        one, two = getattr(a, part), getattr(b, part)
        if isinstance(one, dict):
            yield from _changes(one, two, f"{part}.")
        elif one != two:
            yield Change(name=part, a=_shown(one), b=_shown(two))


def same_files(a: RuntimeIdentity, b: RuntimeIdentity) -> bool | None:
    """Whether both are one program, by the digests of its files; None = a digest is unknown."""
    if UNKNOWN in (a.binary_sha256, b.binary_sha256):
        return None
    return (a.binary_sha256, a.libraries) == (b.binary_sha256, b.libraries)


def read_help(folder: Path, identity: RuntimeIdentity) -> str | None:
    """The kept help text of a build; None where there is none, or not the one of its digest."""
    name = identity.help_file
    if not name or Path(name).name != name:
        return None
    try:
        with (folder / name).open("rb") as file:
            content = file.read(4 * MOST_CHARACTERS)
    except OSError:
        return None
    sound = hashlib.sha256(content).hexdigest() == identity.help_sha256
    return content.decode("utf-8", "replace") if sound else None


def help_difference(a: str | None, b: str | None) -> HelpDifference:
    """Flags that one of two help texts lacks, and what it says differently of those of both."""
    if a is None or b is None:
        lacking = " and ".join(n for n, text in (("A", a), ("B", b)) if text is None)
        return HelpDifference(unknown=f"no help text of {lacking} with the manifest's digest")
    one, two = Help(a), Help(b)
    both = [(flag, other) for flag in _working(one) if (other := _partner(flag, two))]
    return HelpDifference(
        only_a=tuple(_name(flag) for flag in _working(one) if _partner(flag, two) is None),
        only_b=tuple(_name(flag) for flag in _working(two) if _partner(flag, one) is None),
        defaults=tuple(_differing(both, "default")),
        values=tuple(_differing(both, "choices")),
    )


def _working(text: Help) -> list[Flag]:
    """Each once, in the order of the text; those that are only named to say that they are gone
    are left out."""
    flags = {id(flag): flag for flag in text.flags.values() if not flag.removed}
    return list(flags.values())


def _partner(flag: Flag, other: Help) -> Flag | None:
    name = other.first(*flag.names)
    return None if name is None else other.flags[name]


def _name(flag: Flag) -> str:
    return max(flag.names, key=len)


def _differing(pairs: Iterable[tuple[Flag, Flag]], part: str) -> Iterator[Change]:
    for flag, other in pairs:
        one, two = getattr(flag, part), getattr(other, part)
        if one != two:
            yield Change(name=_name(flag), a=_shown(one), b=_shown(two))


def left_changes(manifest: Manifest) -> Iterator[Change]:
    """Parameters that a condition leaves to the program, where the builds' own values differ."""
    for condition in dict.fromkeys(m.condition for m in manifest.methods):
        a, b = (_left(manifest, name, condition) for name in manifest.plan.comparison.builds)
        yield from _changes(a, b, "", condition)


def _left(manifest: Manifest, build: str, condition: str) -> dict[str, Any]:
    for method in manifest.methods:
        if method.condition == condition and method.runtime in ("", build):
            given = method.parameters.items()
            return {k.removeprefix(LEFT): v for k, v in given if k.startswith(LEFT)}
    return {}


def setting_changes(manifest: Manifest, lines: Sequence[Line]) -> Iterator[Change]:
    """Settings in effect that differ, as the programs told them under each condition."""
    a, b = manifest.plan.comparison.builds
    for condition in dict.fromkeys(m.condition for m in manifest.methods):
        one, two = (effective(lines, name, condition) for name in (a, b))
        if one and two:
            yield from _changes(one, two, "", condition)


def effective(lines: Sequence[Line], build: str, condition: str) -> dict[str, Any]:
    """What a build said last of its settings under a condition."""
    told = (x for x in reversed(lines) if isinstance(x, ObservedRecord) and x.effective)
    ours = (x.effective for x in told if (x.runtime, x.condition) == (build, condition))
    return next(ours, {})


def _changes(
    a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "", where: str = ""
) -> Iterator[Change]:
    for key in dict.fromkeys((*a, *b)):
        if a.get(key) != b.get(key):
            name = f"{prefix}{key}"
            yield Change(name=name, a=_shown(a.get(key)), b=_shown(b.get(key)), where=where)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    text = ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return text[:_SHOWN]
