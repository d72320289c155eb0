"""What a run fixes before its first request: identities, requests and rules, with digests.

Each group's docstring names the confusion that it prevents; ``schema`` exports them as JSON schema.
What cannot be determined is the text ``unknown``, never a guess. The file is written once; a run
that resumes compares it byte for byte with the files and programs that it finds.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from slipstream.lab.plan import Plan

UNKNOWN: Final = "unknown"
VERSION: Final = 1


class _Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class RuntimeIdentity(_Group, frozen=True, kw_only=True):
    """Prevents: results of two builds in one series, and a release tag taken for its content."""

    name: str
    kind: str
    release: str = UNKNOWN
    commit: str = UNKNOWN
    binary_sha256: str = UNKNOWN
    libraries: dict[str, str] = {}
    """SHA-256 of the libraries beside the binary, by file name: they hold most of its code."""
    compiler: str = UNKNOWN
    build_options: str = UNKNOWN
    isa: str = UNKNOWN
    backend: str = UNKNOWN
    driver: str = UNKNOWN
    terms: str = UNKNOWN
    help_sha256: str = UNKNOWN
    help_file: str = ""
    """Beside the manifest: the text of ``--help``, against which every flag was checked."""
    flags: tuple[str, ...] = ()
    predicted_paths: tuple[str, ...] = ()
    """What a policy table says of this build; a prediction, never an observation."""


class ArtifactIdentity(_Group, frozen=True, kw_only=True):
    """Prevents: another quantisation, revision, template or tokenizer under the same name."""

    role: str
    file: str
    sha256: str = UNKNOWN
    bytes: int = 0
    source: str = UNKNOWN
    revision: str = UNKNOWN
    quantisation: str = UNKNOWN
    weight_types: tuple[str, ...] = ()
    converter: str = UNKNOWN
    tokenizer_sha256: str = UNKNOWN
    template_sha256: str = UNKNOWN
    licence: str = UNKNOWN
    terms: str = UNKNOWN
    trained_by: str = UNKNOWN
    architecture: str = UNKNOWN


class Pairing(_Group, frozen=True, kw_only=True):
    """Prevents: "it loaded" taken for "it fits". Each is ``confirmed: SOURCE`` or a reason."""

    draft: str
    tokenizer: str = UNKNOWN
    vocabulary: str = UNKNOWN
    template: str = UNKNOWN
    architecture: str = UNKNOWN

    @property
    def confirmed(self) -> bool:
        parts = (self.tokenizer, self.vocabulary, self.template, self.architecture)
        return all(part.startswith("confirmed: ") for part in parts)


class MethodIdentity(_Group, frozen=True, kw_only=True):
    """Prevents: defaults that moved between builds, and parameters nobody wrote down."""

    condition: str
    stage: str
    method: str
    parameters: dict[str, Any] = {}
    starting_point: bool = False
    runtime: str = ""
    """Whose flags these are; empty = of every runtime of the plan."""
    most_proposed: int | str = UNKNOWN
    """Most tokens that a step can propose; fixes the rows that it can have."""
    draft: str = ""
    flags: tuple[str, ...] = ()
    """Of this runtime's command line, for this condition alone."""
    not_run: str = ""
    """Why it is not run, known before anything ran."""


class Hardware(_Group, frozen=True, kw_only=True):
    """Prevents: a figure of one machine read as one of another, or of a busy or throttled one."""

    cpu: str = UNKNOWN
    cores: int | str = UNKNOWN
    threads: int | str = UNKNOWN
    memory_bytes: int | str = UNKNOWN
    isa: tuple[str, ...] = ()
    accelerator: str = UNKNOWN
    accelerator_flags: tuple[str, ...] = ()
    placement: dict[str, str] = {}
    sampler_placement: str = UNKNOWN
    power: str = UNKNOWN
    cooling: str = UNKNOWN
    governor: str = UNKNOWN
    virtualisation: str = UNKNOWN
    other_load: str = UNKNOWN
    system: str = UNKNOWN
    energy_source: str = UNKNOWN


class PromptIdentity(_Group, frozen=True, kw_only=True):
    """Prevents: texts that changed, and a mean over prompts nobody can name.

    ``stratum`` is the workload as the plan names it, the unit of blocks and verdicts; ``task`` is a
    finer label within it, ``kind`` the one of the six strata whose question it answers.
    """

    id: str
    stratum: str
    task: str
    sha256: str
    licence: str
    source: str
    tokens: int | str = UNKNOWN
    max_tokens: int = 96
    seed: int = 1
    judgement: str = "exact"
    warm_up: bool = False
    shared: bool = True
    """Whether its text may appear in a report that is passed on."""
    kind: str = ""
    typical: bool = False
    """A long sequence typical of the real load; without one nothing is adopted."""
    constrained: bool = False
    """Whether the request passes the prompt's schema on as ``json_schema``."""
    judgement_sha256: str = ""
    """Of judgement, checks, schema and tools: what is asked beside the text, and judged by."""


class Observation(_Group, frozen=True, kw_only=True):
    """Prevents: cold and warm in one figure, a favouring order, a nameless clock."""

    cold: bool = False
    repeats: int = 5
    order: str = "A B B A"
    timeout_s: float = 600.0
    clock: str = "time.perf_counter of the client"
    metrics_source: str = UNKNOWN
    arrivals_sha256: str = ""
    """Of the file of recorded arrivals; empty for the other patterns."""


class Manifest(_Group, frozen=True, kw_only=True):
    """A whole manifest.

    Attributes:
        run: unique: the plan's name, the start's date and time, and eight digits of its digest.
        created: date-time with zone.
        plan: as it was read.
        slipstream: version and commit of the lab itself.
        pairings: one per draft model and runtime's file.
        questions: stratum -> the question that its section of the report answers.
    """

    version: int = VERSION
    run: str
    created: str
    slipstream: str
    plan: Plan
    runtimes: tuple[RuntimeIdentity, ...]
    artifacts: tuple[ArtifactIdentity, ...]
    pairings: tuple[Pairing, ...] = ()
    methods: tuple[MethodIdentity, ...]
    hardware: Hardware
    prompts: tuple[PromptIdentity, ...]
    observation: Observation
    questions: dict[str, str] = {}

    def canonical(self) -> bytes:
        """Its JSON: keys in the order of the structs, mappings sorted, one line."""
        return msgspec.json.encode(self, order="deterministic")

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.canonical()).hexdigest()


def schema() -> dict[str, Any]:
    """JSON schema of a manifest, its groups' docstrings as descriptions."""
    return msgspec.json.schema(Manifest)
