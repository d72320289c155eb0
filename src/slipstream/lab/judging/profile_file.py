"""``profile.toml`` for ``slipstream serve --profile``: what was adopted, and nothing else.

It is made for one concurrency. A workload without an adopted condition has no entry and so runs
with ``none``. Parameters that belong to the server (docs/profile.md) become its command line, in
the header; two entries that need different ones cannot both be kept.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from slipstream.lab.contract.manifest import Manifest, MethodIdentity
from slipstream.lab.judging.cells import MIX
from slipstream.lab.judging.pair_words import counted_pairs
from slipstream.lab.judging.verdict import Verdict
from slipstream.option_fields import describe
from slipstream.speculation_options import SpeculationOptions

_OWN_KEYS: Final = {"n_max": "n_max", "n_min": "n_min", "p_min": "p_min", "draft_scope": "scope"}
"""Option -> key of a rule. ``n_max`` of a look-up drafter is the server's."""
_KIND: Final = "slipstream"
_LEFT: Final = "left."  # parameters that were left to the runtime: they were not passed
_CLAIMED: Final = "claimed."  # those that a server elsewhere is said to have


@dataclass(frozen=True)
class Entry:
    """An adopted workload.

    Attributes:
        rule: keys of the profile.
        server: options that the server must be started with.
    """

    verdict: Verdict
    rule: Mapping[str, Any]
    server: Mapping[str, Any]

    @property
    def gain(self) -> float:
        time = self.verdict.gate("time")
        return 0.0 if time is None else time.values.get("low", 0.0)


def profile_text(
    manifest: Manifest, verdicts: Iterable[Verdict], *, slots: int | None = None
) -> str:
    """The text of a profile.

    Args:
        slots: concurrency that it is for; None = the plan's.
    """
    count = manifest.plan.arrivals.slots if slots is None else slots
    own = [v for v in verdicts if v.runtime in _runtimes(manifest)]
    given = [part for v in own if v.slots == count for part in _parts(v, own)]
    kept, dropped = _chosen(manifest, given)
    entries = "\n".join(_section(entry) for entry in sorted(kept, key=lambda e: e.verdict.stratum))
    lines = [*_header(manifest, kept, count), *_others(given, kept, dropped)]
    comment = "\n".join(f"# {_line(text)}" if text else "#" for text in lines)
    return f'{comment}\n\ndefault = {{ type = "none" }}\n' + (f"\n{entries}" if entries else "")


def _parts(verdict: Verdict, own: Sequence[Verdict]) -> list[Verdict]:
    """A verdict about a mix holds for those of its workloads whose own, at one slot, agrees."""
    if verdict.stratum != MIX:
        return [verdict]
    alike = [v for v in own if v.slots == 1 and v.stratum != MIX and _same(v, verdict)]
    return [
        msgspec.structs.replace(
            verdict, stratum=v.stratum, word=verdict.word if v.word == "adopt" else v.word
        )
        for v in alike
    ]


def _same(one: Verdict, other: Verdict) -> bool:
    return (one.runtime, one.condition) == (other.runtime, other.condition)


def _runtimes(manifest: Manifest) -> set[str]:
    return {runtime.name for runtime in manifest.runtimes if runtime.kind == _KIND}


def _line(text: str) -> str:
    """One line of a comment: TOML allows no control characters there."""
    return "".join(c if c.isprintable() else " " for c in text)[:2000]


def _entry(manifest: Manifest, verdict: Verdict) -> Entry | None:
    own = (m for m in manifest.methods if m.runtime in ("", verdict.runtime))
    method = next((m for m in own if m.condition == verdict.condition), None)
    if method is None:
        return None
    given = _parameters(method)
    types = given.pop("type", method.method)
    rule = {"type": [n.strip() for n in types.split(",")] if isinstance(types, str) else types}
    rule |= {key: given.pop(option) for option, key in _OWN_KEYS.items() if option in given}
    draft = manifest.plan.drafts.get(method.draft)
    return Entry(verdict, rule, {"draft_model": draft.model, **given} if draft else given)


def _parameters(method: MethodIdentity) -> dict[str, Any]:
    """Those that are set, under the options' own names: a plan may use llama.cpp's spellings."""
    own = {alias: info.name for info in describe(SpeculationOptions) for alias in info.aliases}
    return {
        own.get(name, name): value
        for name, value in method.parameters.items()
        if value is not None and not name.startswith((_LEFT, _CLAIMED))
    }


def _chosen(manifest: Manifest, verdicts: Sequence[Verdict]) -> tuple[list[Entry], dict[str, str]]:
    """The best adopted condition of each workload, and workload -> why one was left out.

    The best is the one whose gain is surest: the highest low end of its interval.
    """
    made = (_entry(manifest, v) for v in verdicts if v.word == "adopt")
    found = sorted((e for e in made if e is not None), key=lambda e: (-e.gain, e.verdict.condition))
    server: dict[str, Any] = {}
    kept: dict[str, Entry] = {}
    dropped: dict[str, str] = {}
    for entry in found:
        stratum = entry.verdict.stratum
        if stratum in kept:
            continue
        clash = [k for k, v in entry.server.items() if k in server and server[k] != v]
        if clash:
            dropped.setdefault(
                stratum, f"{entry.verdict.condition} needs another {', '.join(clash)} of the server"
            )
            continue
        kept[stratum] = entry
        server |= entry.server
    return list(kept.values()), {k: v for k, v in dropped.items() if k not in kept}


def _header(manifest: Manifest, kept: Sequence[Entry], slots: int) -> Iterator[str]:
    hardware, runtimes = manifest.hardware, manifest.runtimes
    yield f"Written by `slipstream lab` from run {manifest.run}, of {manifest.created}."
    yield "It holds for this machine, these files, these workloads and this concurrency alone;"
    yield "elsewhere run the lab again."
    yield ""
    yield f"manifest     {manifest.digest}"
    yield f"machine      {hardware.cpu}, {hardware.cores} cores, {hardware.threads} threads"
    yield f"             {hardware.accelerator}, {hardware.system}"
    for runtime in runtimes:
        if runtime.kind == _KIND:
            yield f"program      {runtime.name} {runtime.release} {runtime.binary_sha256}"
    for artifact in manifest.artifacts:
        yield f"{artifact.role:12} {artifact.file} {artifact.sha256}"
    yield f"concurrency  {slots} at a time, {manifest.plan.arrivals.kind} arrivals"
    if kept:
        yield f"start with   {_command(manifest, kept, slots)}"
    yield ""


def _command(manifest: Manifest, kept: Sequence[Entry], slots: int) -> str:
    types = dict.fromkeys(name for entry in kept for name in entry.rule["type"])
    given = {k: v for entry in kept for k, v in entry.server.items()}
    words = ["slipstream", "serve", manifest.plan.target.model, "--profile", "profile.toml"]
    words += ["--parallel", str(slots), "--spec", ",".join(types)]
    for name, value in sorted(given.items()):
        flag = f"--{name.replace('_', '-')}"
        words += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
    return shlex.join(words)


def _others(
    given: Sequence[Verdict], kept: Sequence[Entry], dropped: Mapping[str, str]
) -> Iterator[str]:
    """Workloads that stay with ``none``, each with its reason."""
    adopted = {entry.verdict.stratum for entry in kept}
    for stratum in dict.fromkeys(v.stratum for v in given):
        if stratum in adopted:
            continue
        own = [v for v in given if v.stratum == stratum]
        words = ", ".join(f"{v.condition} {v.word}" for v in own)
        yield f"{stratum}: none ({dropped.get(stratum, words)})"


def _section(entry: Entry) -> str:
    verdict = entry.verdict
    time = verdict.gate("time")
    pairs = 0 if time is None else int(time.values.get("pairs", 0))
    gain = "" if time is None else f": {time.observed}, {counted_pairs(pairs)}"
    rows = [f"{key} = {_value(value)}" for key, value in entry.rule.items()]
    head = f"# {_line(f'{verdict.condition} at {verdict.slots} slot(s){gain}')}"
    return "\n".join([head, f"[workload.{_key(verdict.stratum)}]", *rows, ""])


def _key(text: str) -> str:
    bare = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if bare else _quoted(text)


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's escapes are among its own, DEL has to be added."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    return _quoted(value) if isinstance(value, str) else repr(value)
