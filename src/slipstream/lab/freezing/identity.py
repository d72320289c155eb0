"""Which files a run uses: digests, and what plan, catalogue and file say of them.

For each fact the plan's author comes first, then the catalogue (by the file's digest), then the
file itself, marked as such; what none of them tells is ``unknown``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from slipstream.cache import remembered_sha256
from slipstream.catalog import CatalogEntry, entries, locate
from slipstream.errors import ModelFileError
from slipstream.fetch.sources import HubFile
from slipstream.lab.contract.manifest import UNKNOWN, ArtifactIdentity
from slipstream.lab.contract.plan import Artifact
from slipstream.lab.freezing.model_facts import read_facts, shards_of

TARGET = "target"


def draft_role(key: str) -> str:
    """``role`` of a draft model's identity; ``key`` is the plan's."""
    return f"draft:{key}"


def absent_program(runtime: str) -> str:
    """Why a condition is not run whose program could not be asked."""
    return f"`{runtime}` is not here"


def artifact_identity(role: str, artifact: Artifact) -> ArtifactIdentity:
    """A model file that is here.

    Args:
        role: ``target``, or ``draft:KEY``.

    Raises:
        ModelFileError: the file is not here, or no sound GGUF file; it says what to pull.
        UnsupportedError: a tensor has a type id in no known table.
    """
    path = locate(artifact.model)
    facts = read_facts(path)
    digest, size = file_digest(path)
    entry = _entry(digest)
    return ArtifactIdentity(
        role=role,
        file=path.name,
        sha256=digest,
        bytes=size,
        source=artifact.source or _source(entry) or facts.source,
        revision=artifact.revision or (entry.revision if entry else UNKNOWN),
        quantisation=facts.quantisation,
        weight_types=facts.weight_types,
        converter=facts.converter,
        tokenizer_sha256=facts.tokenizer_sha256,
        template_sha256=facts.template_sha256,
        licence=artifact.licence or (entry.licence if entry else facts.licence),
        terms=artifact.terms or (entry.terms if entry else facts.terms),
        trained_by=artifact.trained_by or facts.trained_by,
        architecture=facts.architecture,
    )


def absent_artifact(role: str, artifact: Artifact) -> ArtifactIdentity:
    """A file that is not here: a plan that is not run, or a server elsewhere that holds it."""
    return ArtifactIdentity(
        role=role,
        file=Path(artifact.model).name,
        source=artifact.source or UNKNOWN,
        revision=artifact.revision or UNKNOWN,
        licence=artifact.licence or UNKNOWN,
        terms=artifact.terms or UNKNOWN,
        trained_by=artifact.trained_by or UNKNOWN,
    )


def file_digest(path: Path) -> tuple[str, int]:
    """SHA-256 (remembered until the file changes) and bytes of a model.

    That of a split model is the SHA-256 of its files' digests, one a line, in their order.

    Raises:
        ModelFileError: a file cannot be read.
    """
    paths = shards_of(path)
    try:
        digests = [remembered_sha256(shard) for shard in paths]
        size = sum(shard.stat().st_size for shard in paths)
    except OSError as problem:
        found = f"{Path(problem.filename or path).name}: {problem.strerror}"
        raise ModelFileError("a model file that can be read", found, "Check the path.") from None
    if len(digests) == 1:
        return digests[0], size
    return hashlib.sha256("\n".join(digests).encode()).hexdigest(), size


def _entry(digest: str) -> CatalogEntry | None:
    return next((entry for entry in entries() if entry.sha256 == digest), None)


def _source(entry: CatalogEntry | None) -> str:
    """Of a catalogue entry its hub file, else its first source."""
    if entry is None:
        return ""
    hub = (source for source in entry.sources if isinstance(source, HubFile))
    place = next(hub, entry.sources[0])
    return f"{place.describe()} (catalogue entry {entry.name}, by digest)"
