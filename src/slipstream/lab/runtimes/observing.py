"""What a server says of itself, beside what was asked of it."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

from slipstream.errors import PeerRuntimeError
from slipstream.lab.client import told
from slipstream.lab.client.client import Answer, Prompt, ask_now, fetch
from slipstream.lab.contract.manifest import UNKNOWN
from slipstream.lab.contract.methods import canonical
from slipstream.lab.contract.plan import RuntimePlan
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.observation.log_scan import LogScan

PROBE_TEXT: Final = "one two three four five six seven eight nine ten\n" * 6
PROBE_TOKENS: Final = 48

AT_LEAST: Final = frozenset({"context"})
"""Settings that a server may round up."""

_LOG_NAMES: Final[Mapping[str, str]] = {"size_key": "size_n", "size_value": "size_m"}
_LOG_SETTINGS: Final = ("n_batch", "n_ubatch", "cache_type_k", "cache_type_v", "flash_attn")
_FLAG_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "n_batch": ("-b", "--batch-size"),
    "n_ubatch": ("-ub", "--ubatch-size"),
    "cache_type_k": ("-ctk", "--cache-type-k"),
    "cache_type_v": ("-ctv", "--cache-type-v"),
}


def now() -> str:
    """Date and time with zone."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def json_at(endpoint: Endpoint, path: str) -> Any:
    """JSON of a path; None where the server has none there."""
    with contextlib.suppress(PeerRuntimeError):
        reply = fetch(endpoint.url, path, headers=endpoint.headers)
        return reply.json() if reply.status == 200 else None
    return None


def text_at(endpoint: Endpoint, path: str) -> str:
    """Text of a path; empty where the server has none there."""
    with contextlib.suppress(PeerRuntimeError):
        reply = fetch(endpoint.url, path, headers=endpoint.headers)
        return reply.text if reply.status == 200 else ""
    return ""


def ask_probe(endpoint: Endpoint, limit_s: float) -> Answer:
    """The request of an untimed probe: a text that repeats itself, so that drafters fire."""
    sampling = {"max_tokens": PROBE_TOKENS, "temperature": 0.0, "ignore_eos": True, "seed": 1}
    return ask_now(endpoint, Prompt(text=PROBE_TEXT), sampling, timeout_s=limit_s)


def props_settings(props: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in effect that ``/props`` tells."""
    defaults = told.mapping(props.get("default_generation_settings"))
    found = {
        "context": told.whole(defaults.get("n_ctx")),
        "slots": told.whole(props.get("total_slots")),
        "build_info": told.text(props.get("build_info")),
        "model_ftype": told.text(props.get("model_ftype")),
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def served_types(slots: Any) -> str | None:
    """Drafting methods that ``/slots`` tells; None = it does not.

    A slot tells the names once it had a request, before that only whether it drafts.
    """
    for slot in told.items(slots):
        entry = told.mapping(slot)
        types = told.text(told.mapping(entry.get("params")).get("speculative.types"))
        if types:
            names = [name for name in types.split(",") if name != "none"]
            return ",".join(names) or "none"
        if entry.get("speculative") is False:
            return "none"
    return None


def log_settings(scan: LogScan) -> dict[str, Any]:
    """Settings in effect that a log tells; ``spec-type`` only where the log speaks of drafting."""
    found: dict[str, Any] = {
        name: scan.settings[name] for name in _LOG_SETTINGS if name in scan.settings
    }
    if "n_threads" in scan.settings:
        found["threads"] = scan.settings["n_threads"]
    if scan.tells_drafting:
        found["spec-type"] = ",".join(scan.drafting) or "none"
    for method, values in scan.drafting.items():
        for name, value in values.items():
            option = canonical([method], _LOG_NAMES.get(name, name))
            if option is not None:
                found[option] = value
    return found


def flag_value(flags: Sequence[str], *names: str) -> str:
    """Value of the last of these flags on a command line; empty where none is given."""
    found = ""
    for place, word in enumerate(flags, 1):
        name, given, inside = word.partition("=")
        if name in names:
            found = inside if given else "".join(flags[place : place + 1])
    return found


def flag_settings(plan: RuntimePlan) -> dict[str, str]:
    """Settings that the plan's own flags ask for, under the names of ``log_settings``."""
    found = {name: flag_value(plan.flags, *spelt) for name, spelt in _FLAG_SETTINGS.items()}
    return {name: value for name, value in found.items() if value}


def differing(asked: Mapping[str, Any], effective: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Setting -> (asked, in effect), for those known on both sides that differ."""
    return {
        name: (str(wanted), str(effective[name]))
        for name, wanted in asked.items()
        if name in effective and not _same(name, wanted, effective[name])
    }


def _same(name: str, wanted: Any, found: Any) -> bool:
    left, right = _number(wanted), _number(found)
    if left is None or right is None:
        return _set_of(wanted) == _set_of(found)
    if name in AT_LEAST:
        return right >= left
    return abs(left - right) <= 1e-6 * max(1.0, abs(left))


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _set_of(value: Any) -> frozenset[str]:
    return frozenset(str(value).lower().split(","))


def metal_paths(scan: LogScan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Kernel paths that a debug log shows, and the lines behind them; ``unknown`` without both.

    A path counts as observed only where the device spoke of itself (family, simdgroup matrices,
    tensor API) and a product's pipeline was compiled.
    """
    spoke = {"gpu family", "simdgroup matrix", "tensor API"} <= set(scan.capability)
    products = tuple(name for name in scan.pipelines if name.startswith("kernel_mul_m"))
    if not spoke or not products:
        return (UNKNOWN,), scan.evidence
    return products, scan.evidence
