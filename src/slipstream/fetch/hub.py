"""Files of a model hub over HTTPS, with resume and an access token that never leaves the hub.

A hub answers `<endpoint>/<owner>/<repo>/resolve/<revision>/<file>`, usually by a redirect to a
content host; the redirect announces size and SHA-256 in `X-Linked-Size` and `X-Linked-Etag`.
`HF_ENDPOINT` and `HF_TOKEN` are the environment variables users of such hubs already know.
"""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.parse
from dataclasses import dataclass
from typing import IO

from slipstream.errors import DownloadError
from slipstream.fetch.partial import Partial, PartialState, require_disk_space
from slipstream.fetch.sources import HubFile, Progress
from slipstream.fetch.transport import Answer, HubOpener, may_carry_token, open_within

DEFAULT_ENDPOINT = "https://huggingface.co"
# A hub that has not answered by then is taken as unreachable: the next source is tried.
REACH_S = 5.0
# Once bytes flow, a stall is a cut connection that is resumed.
_RESUME_REACH_S = 30.0
_ATTEMPTS = 4
_BACKOFF_S = 1.0
_CHUNK_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Expected:
    """What the catalogue pins; None where nothing is known before the hub is asked."""

    size_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Announced:
    """What the hub says about the file it serves."""

    size_bytes: int | None
    sha256: str | None
    validator: str | None
    commit: str | None


class _TransientError(Exception):
    """The connection was cut or the server is busy: worth another attempt."""


def endpoint_address(endpoint: str | None = None) -> str:
    """The hub's base address: the argument, else $HF_ENDPOINT, else the public hub."""
    address = endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
    if not _is_web_address(address):
        raise DownloadError(
            "an http or https address of the hub", f"`{address}`", "Correct HF_ENDPOINT."
        )
    return address.rstrip("/")


def _is_web_address(address: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(address)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an IPv6 address, or a port that is no number
        return False


def file_address(source: HubFile, endpoint: str | None = None) -> str:
    """The address that serves `source`."""
    revision = urllib.parse.quote(source.revision, safe="")
    file = urllib.parse.quote(source.file)
    return f"{endpoint_address(endpoint)}/{source.repository}/resolve/{revision}/{file}"


class HubTransfer:
    """One download of one hub file into a partial file.

    Args:
        token: access token; None takes $HF_TOKEN. Sent to the hub's own origin only.
        endpoint: base address of the hub; see `endpoint_address`.
    """

    def __init__(
        self,
        source: HubFile,
        partial: Partial,
        expected: Expected,
        token: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        self.source = source
        self.partial = partial
        self.expected = expected
        self.progress: Progress | None = None
        self.address = file_address(source, endpoint)
        self.opener = HubOpener(self.address, self._token(token))
        # Bytes under one pinned digest are the same bytes, whichever source they came from.
        self.identity = f"sha256 {expected.sha256}" if expected.sha256 else f"hub {self.address}"
        self._reached = False

    def _token(self, given: str | None) -> str | None:
        token = given or os.environ.get("HF_TOKEN") or None
        if token and not may_carry_token(self.address):
            raise self._failure(
                "an access token would travel unencrypted",
                "Use an https address, or unset HF_TOKEN.",
            )
        if token and not (token.isascii() and token.isprintable()):
            raise self._failure(
                "an access token with characters that no token has", "Copy it again."
            )
        return token

    def fetch(self, progress: Progress | None = None) -> Announced:
        """Receive the whole file, resuming what is already here and after cut connections.

        Raises:
            DownloadError: unreachable, refused, absent, or announced with another size or digest.
        """
        self.progress = progress
        failures = 0
        while True:
            before = self.partial.begin(self.identity)
            try:
                return self._receive(before)
            except _TransientError as error:
                failures = 1 if self.partial.size() > before else failures + 1
                if failures >= _ATTEMPTS:
                    raise self._failure(str(error), "Pull again: it resumes.") from error
                time.sleep(_BACKOFF_S * 2 ** (failures - 1))

    def _receive(self, offset: int) -> Announced:
        state = self.partial.state()
        validator = state.validator if state else None
        if not (self.expected.sha256 or validator):
            offset = 0
        answer = self._open(offset, validator)
        with answer.body as body:
            announced = _announced(answer)
            self._check(announced)
            if answer.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                return self._already_complete(offset, announced)
            if answer.status != http.client.PARTIAL_CONTENT:
                offset = 0
            self.partial.truncate(offset)
            self.partial.write_state(PartialState(self.identity, announced.validator))
            self._require_space(announced, offset)
            self._copy(body, offset, announced.size_bytes)
        return announced

    def _open(self, offset: int, validator: str | None) -> Answer:
        headers = {"Accept-Encoding": "identity", "User-Agent": "slipstream"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if validator and not self.expected.sha256:
                headers["If-Range"] = validator
        try:
            answer = open_within(
                self.opener, headers, _RESUME_REACH_S if self._reached else REACH_S
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            # ValueError: a redirect to what is no address
            reason = str(getattr(error, "reason", error))
            if self._reached:
                raise _TransientError(reason) from error
            raise self._failure(f"no answer ({reason})", "Check the network.") from error
        self._reached = True
        self._check_status(answer)
        return answer

    def _check_status(self, answer: Answer) -> None:
        status = answer.status
        if status in {200, 206, 416}:
            return
        answer.body.close()
        if status in _TRANSIENT_STATUS:
            raise _TransientError(f"HTTP {status}")
        if status in {401, 403}:
            remedy = (
                "Accept the terms on the repository's page, then set HF_TOKEN or pass `--token`."
            )
        else:
            remedy = "Check owner, repository, file name and revision on the hub's page."
        raise self._failure(f"HTTP {status} {http.client.responses.get(status, '')}", remedy)

    def _check(self, announced: Announced) -> None:
        pairs = [
            (self.expected.size_bytes, announced.size_bytes, "size in bytes"),
            (self.expected.sha256, announced.sha256, "SHA-256"),
        ]
        for expected, found, what in pairs:
            if expected is not None and found is not None and expected != found:
                raise DownloadError(
                    f"{what} {expected} of {self.source.describe()}",
                    f"the hub announces another {what}, {found}",
                    "The hub serves another file; use another source.",
                )

    def _require_space(self, announced: Announced, offset: int) -> None:
        size = announced.size_bytes or self.expected.size_bytes or 0
        require_disk_space(self.partial.directory, max(size - offset, 0))

    def _already_complete(self, offset: int, announced: Announced) -> Announced:
        if offset != announced.size_bytes:
            self.partial.truncate(0)
            raise _TransientError("the kept bytes do not fit the file on the hub")
        return announced

    def _copy(self, body: IO[bytes], offset: int, size: int | None) -> None:
        limit = size if size is not None else self.expected.size_bytes
        with self.partial.append() as stream:
            while chunk := self._read(body):
                offset += len(chunk)
                if limit is not None and offset > limit:
                    raise self._failure(f"more than {limit:,} bytes", "Use another source.")
                if limit is None:
                    require_disk_space(self.partial.directory, len(chunk))
                stream.write(chunk)
                if self.progress:
                    self.progress(offset, limit or 0, self.source.describe())
        if limit is not None and offset < limit:
            raise _TransientError(f"the connection closed after {offset:,} of {limit:,} bytes")

    def _read(self, body: IO[bytes]) -> bytes:
        try:
            return body.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise _TransientError(f"the connection was cut: {error}") from error

    def _failure(self, found: str, remedy: str) -> DownloadError:
        return DownloadError(f"{self.source.describe()} from {self.address}", found, remedy)


def _announced(answer: Answer) -> Announced:
    linked = answer.linked
    digest = (linked.get("x-linked-etag") or answer.header("X-Linked-Etag") or "").strip('"')
    validator = answer.header("ETag")
    strong = validator if validator and not validator.startswith("W/") else None
    return Announced(
        size_bytes=_size(answer),
        sha256=digest if _SHA256.fullmatch(digest) else None,
        validator=strong,
        commit=linked.get("x-repo-commit") or answer.header("X-Repo-Commit"),
    )


def _size(answer: Answer) -> int | None:
    text = answer.header("Content-Length")
    if answer.status in {206, 416}:
        text = (answer.header("Content-Range") or "").rpartition("/")[2]
    return int(text) if text and text.isascii() and text.isdigit() else None
