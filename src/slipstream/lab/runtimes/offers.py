"""What a server that runs already lets a plan find out, asked before the plan is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slipstream.catalog import entries
from slipstream.errors import PeerRuntimeError
from slipstream.lab.client import told
from slipstream.lab.client.client import fetch
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.runtimes import observing
from slipstream.lab.runtimes.running_servers import flavour_of, listed_models, offered_methods
from slipstream.options import METHODS

ASKED_S: Final = 5.0
_MOST_NAME: Final = 200
_SILENT: Final = """\
Nobody answers at {url}, so it is not known whether its requests can choose how they draft. As it
stands the plan measures `none` alone and gives no verdict. Start the server and write the plan anew
(--force): if it is a Slipstream, what it offers is then compared with `none`.
"""
_CHOOSES: Final = """\
A Slipstream server answers at {url}; each request chooses how it drafts, so the plan compares that
with `none`: time, outputs, acceptance. The lab did not start it, so its memory and a rollback are
not measurable: the best verdict is `inconclusive`, never `adopt`. For one, let the lab start it:
--runtime slipstream.
"""
_DRAFTS: Final = """\
The server at {url} was started with {drafts} and a request cannot change that: without `none`
beside it nothing can be compared, and this plan measures nothing. Start it without drafting to
measure that alone, or let the lab start it: --runtime {own}.
"""
_FIXED: Final = """\
The {name} at {url} offers no drafting that a request can choose: the plan measures it as it runs,
under the name `none`, and gives no verdict. To compare, let the lab start it: --runtime {own}.
"""


@dataclass(frozen=True)
class Offer:
    """
    Attributes:
        url: of the server.
        answers: whether anybody did.
        flavour: ``slipstream``, ``llama.cpp``, ``vllm`` or ``unknown``.
        methods: drafting methods that a request can choose.
        model: that it serves, as a plan would name it; empty = it does not tell.
        drafts: what it was started with, where no request can choose; empty = nothing.
    """

    url: str
    answers: bool = False
    flavour: str = "unknown"
    methods: tuple[str, ...] = ()
    model: str = ""
    drafts: str = ""

    def limits(self) -> str:
        """What a plan of this server alone can find out, and what not."""
        name = {"unknown": "server"}.get(self.flavour, f"{self.flavour} server")
        own = "slipstream or llama-server=PATH"
        own = "llama-server=PATH" if self.flavour == "llama.cpp" else own
        text = _FIXED
        if not self.answers:
            text = _SILENT
        elif self.methods:
            text = _CHOOSES
        elif self.drafts:
            text = _DRAFTS
        return " ".join(text.format(url=self.url, name=name, drafts=self.drafts, own=own).split())


def offer_of(url: str) -> Offer:
    """Ask the server at a URL; whoever is there, and whatever they say."""
    base = Endpoint(url=url.rstrip("/").removesuffix("/v1"), dialect="openai")
    try:
        fetch(base.url, "/v1/models", timeout_s=ASKED_S)
    except PeerRuntimeError:
        return Offer(url)
    props = told.mapping(observing.json_at(base, "/props"))
    kind = flavour_of(props, observing.text_at(base, "/metrics"))
    slots = observing.json_at(base, "/slots") if kind == "llama.cpp" else None
    return Offer(
        url,
        answers=True,
        flavour=kind,
        methods=tuple(m for m in offered_methods(props) if m in METHODS),
        model=_model(props, listed_models(observing.json_at(base, "/v1/models"))),
        drafts=_drafts(slots),
    )


def _model(props: Mapping[str, Any], listed: list[str]) -> str:
    """A file of this machine, a name of the catalogue, or as the server lists it."""
    path = told.text(props.get("model_path"))
    known = {entry.name for entry in entries()}
    named = [name for name in listed if name in known]
    here = [path] if path and _is_file(path) else []
    found = next(iter([*named, *here, *listed]), "")
    return found if len(found) <= _MOST_NAME and found.isprintable() else ""


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_absolute() and Path(path).is_file()
    except (OSError, ValueError):
        return False


def _drafts(slots: Any) -> str:
    served = observing.served_types(slots)
    if served is not None:
        methods = [name for name in served.split(",") if name in METHODS and name != "none"]
        return "" if served == "none" else ",".join(methods) or "drafting"
    drafts = any(told.mapping(slot).get("speculative") is True for slot in told.items(slots))
    return "drafting" if drafts else ""
