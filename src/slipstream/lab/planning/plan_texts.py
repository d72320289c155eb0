"""What a plan's texts must be beyond their types: paths, addresses, a few tenants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from slipstream.errors import OptionError
from slipstream.lab.contract.address import address_of
from slipstream.lab.contract.plan import Plan
from slipstream.lab.planning.plan_faults import Fault
from slipstream.lab.planning.plan_lines import Place
from slipstream.paths import path_fault, shown

MOST_TENANTS: Final = 64


def text_faults(plan: Plan) -> Iterator[Fault]:
    """Texts that can name nothing on any machine."""
    for place, text in _paths(plan):
        if found := path_fault(text):
            yield Fault(place, "to be a path", found, "Correct the path.")
    for name, runtime in plan.runtimes.items():
        if runtime.url:
            yield from _address(("runtimes", name, "url"), runtime.url)
    yield from _tenants(plan)


def _paths(plan: Plan) -> Iterator[tuple[Place, str]]:
    yield ("target", "model"), plan.target.model
    for key, draft in plan.drafts.items():
        yield ("drafts", key, "model"), draft.model
    for name, runtime in plan.runtimes.items():
        for field in ("binary", "python", "api_key_file"):
            yield ("runtimes", name, field), getattr(runtime, field)
    yield ("workloads",), plan.workloads
    for path in plan.imports:
        yield ("imports",), path
    yield ("arrivals", "file"), plan.arrivals.file


def _address(place: Place, url: str) -> Iterator[Fault]:
    remedy = "Write it as http://HOST:PORT."
    if not url.startswith(("http://", "https://")):
        yield Fault(place, "to be an address", f"{shown(url)!r}", remedy)
        return
    try:
        address_of(url)
    except OptionError as problem:
        yield Fault(place, "to be an address", problem.found, remedy)


def _tenants(plan: Plan) -> Iterator[Fault]:
    names = plan.tenants.names
    if len(names) > MOST_TENANTS:
        found = f"{len(names)}"
        why = "Each has a slot of its own; a few show what is shared."
        yield Fault(("tenants", "names"), f"to be at most {MOST_TENANTS}", found, why)
