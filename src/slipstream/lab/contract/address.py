"""Where a server is: the one place that reads an address."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from slipstream.errors import OptionError
from slipstream.paths import shown

MOST_URL: Final = 2048
MOST_HOST: Final = 253
"""Characters of a name, as the domain name system has them."""


class Address(NamedTuple):
    """Where a server is; ``prefix`` stands before every path."""

    host: str
    port: int
    tls: bool = False
    prefix: str = ""


def address_of(url: str) -> Address:
    """
    Raises:
        OptionError: no address of a server.
    """
    fault = _text_fault(url)
    try:
        parts = urlsplit("none://" if fault else url if "://" in url else f"http://{url}")
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        parts, port, host = urlsplit("none://"), None, ""
    if parts.scheme not in ("http", "https") or not host or parts.username or port == 0:
        fault = fault or f"`{shown(url)}`"
    fault = fault or _host_fault(host)
    if fault:
        raise OptionError(
            "`url` to be a server's, such as http://127.0.0.1:8080", fault, "Correct it."
        )
    tls = parts.scheme == "https"
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return Address(host, port or (443 if tls else 80), tls, prefix)


def _text_fault(url: str) -> str:
    if len(url) > MOST_URL:
        return f"`{shown(url)}`, longer than {MOST_URL} characters"
    if not url.isprintable() or " " in url:
        return f"a space or a control character in {url!r:.200}"
    return ""


def _host_fault(host: str) -> str:
    """A name that no resolver takes: Python's raises for it, whatever the network says."""
    try:
        encoded = host.encode("idna")
    except UnicodeError:
        return f"the host `{shown(host)}`, with an empty label or one over 63 characters"
    return f"the host `{shown(host)}`, over {MOST_HOST} characters" * (len(encoded) > MOST_HOST)
