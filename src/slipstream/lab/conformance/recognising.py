"""Which server it is, and how its requests draft or do not: by what it shows, then by trying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.client import told
from slipstream.lab.client.client import fetch
from slipstream.lab.conformance.asking import Asker, Side, chat
from slipstream.lab.conformance.checks import Room
from slipstream.lab.conformance.outcomes import ContractError
from slipstream.lab.conformance.prompts import COPY
from slipstream.lab.contract.address import address_of
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.observation.metrics_text import metrics_of
from slipstream.lab.runtimes import observing
from slipstream.lab.runtimes.running_servers import (
    flavour_of,
    key_headers,
    listed_models,
    offered_methods,
)

SLIPSTREAM_OFF: Final[Mapping[str, Any]] = {"speculative": {"type": "none"}}
LLAMA_OFF: Final[Mapping[str, Any]] = {"speculative.n_max": 0}
_OFF: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "slipstream": (SLIPSTREAM_OFF,),
    "llama.cpp": (LLAMA_OFF,),
    "unknown": (SLIPSTREAM_OFF, LLAMA_OFF),
}
_EXTRA: Final[Mapping[str, Mapping[str, Any]]] = {"llama.cpp": {"cache_prompt": False}}
"""Nothing reused of earlier prompts, where that is known to be possible."""


@dataclass(frozen=True)
class Server:
    """A server that is there.

    Attributes:
        flavour: ``slipstream``, ``llama.cpp``, ``vllm`` or ``unknown``.
        counters: whether ``/metrics`` tells draft tokens.
        slots, context: as ``Room``; ``methods`` that it offers.
    """

    endpoint: Endpoint
    flavour: str
    counters: bool
    slots: int | None
    context: int | None
    methods: tuple[str, ...]

    def room(self, cancel_s: float) -> Room:
        return Room(
            flavour=self.flavour,
            slots=self.slots,
            context=self.context,
            off=_OFF.get(self.flavour, ()),
            methods=self.methods,
            cancel_s=cancel_s,
        )

    def side(self, chosen: Mapping[str, Any] | None = None) -> Side:
        return Side(self.endpoint, chosen or {}, self.counters)


@dataclass(frozen=True)
class Sides:
    """The two sides of every comparison.

    Attributes:
        off: None = the server cannot be had without speculation.
        speculation, without: in words how, or why not.
    """

    on: Side
    off: Side | None
    speculation: str
    without: str


def server_at(url: str, *, model: str = "", api_key_file: str = "") -> Server:
    """
    Raises:
        OptionError: no address of a server, or no key in the file.
        PeerRuntimeError: nobody listens there.
    """
    address_of(url)
    base = Endpoint(
        url=url.rstrip("/").removesuffix("/v1"),
        dialect="openai",
        headers=key_headers(api_key_file),
    )
    listed = _models(base)
    metrics = observing.text_at(base, "/metrics")
    props = told.mapping(observing.json_at(base, "/props"))
    kind = flavour_of(props, metrics)
    facts = observing.props_settings(props)
    endpoint = Endpoint(
        url=base.url,
        dialect=base.dialect,
        headers=base.headers,
        model=model or (listed[0] if listed else ""),
        extra=_EXTRA.get(kind, {}),
    )
    return Server(
        endpoint,
        kind,
        counters=metrics_of(metrics).counts.drafted is not None,
        slots=facts.get("slots"),
        context=facts.get("context"),
        methods=offered_methods(props),
    )


def _models(endpoint: Endpoint) -> list[str]:
    """Names that it lists, none where it lists nothing readable.

    Raises:
        PeerRuntimeError: nobody listens.
    """
    try:
        value = fetch(endpoint.url, "/v1/models", headers=endpoint.headers).json()
    except PeerRuntimeError as error:
        if error.found.startswith("no connection"):
            raise
        return []
    return listed_models(value)


def sides_of(server: Server, other: Server | None, timeout_s: float) -> Sides:
    """How the server drafts and how it does not.

    Args:
        other: the same without speculation, asked where a request cannot switch it off.
    """
    on, speculation, drafted = _drafting(server, timeout_s)
    for keys in _OFF.get(server.flavour, ()):
        side = server.side(keys)
        if drafted and _drafts(side, timeout_s) == 0:
            return Sides(on, side, speculation, f"the request's {_key(keys)}")
    if not drafted and drafted is not None:
        why = "nothing was drafted, so it is not known what switches drafts off"
    else:
        why = "a request cannot switch drafts off, as far as the server shows"
    if other is None:
        return Sides(on, None, speculation, f"{why}; --without names no server without drafts")
    side = other.side()
    found = _drafts(side, timeout_s)
    if found:
        drafts = f"--without {other.endpoint.url} drafts too ({found} tokens)"
        return Sides(on, None, speculation, drafts)
    return Sides(on, side, speculation, f"the server {other.endpoint.url}")


def _key(keys: Mapping[str, Any]) -> str:
    ((name, value),) = keys.items()
    return f"`{name}` {value}".replace("'", '"')


def _drafting(server: Server, timeout_s: float) -> tuple[Side, str, int | None]:
    """The side that drafts: as it was started, else by what a request may choose."""
    usual = server.side()
    drafted = _drafts(usual, timeout_s)
    if drafted or server.flavour != "slipstream":
        return usual, "as the server was started", drafted
    for name in ("auto", *server.methods):
        chosen = {"speculative": {"type": name}}
        side = server.side(chosen)
        found = _drafts(side, timeout_s)
        if found:
            return side, f"the request's {_key(chosen)}", found
    return usual, "as the server was started: it drafts nothing", drafted


def _drafts(side: Side, timeout_s: float) -> int | None:
    """Draft tokens of an output that repeats itself; None = not told, or not answered."""
    asker = Asker(side, timeout_s)
    try:
        asker.answer(chat(COPY, 96))
    except ContractError:
        return None
    return asker.drafted


def require_other_server(url: str, without: str) -> None:
    """
    Raises:
        OptionError: both are the same.
    """
    if address_of(url) == address_of(without):
        raise OptionError("another server in --without", "the same address", "Start a second one.")
