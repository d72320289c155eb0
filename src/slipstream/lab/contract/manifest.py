"""What a run fixes before its first request: identities, requests and rules, with digests.

Each group's docstring names the confusion that it prevents; ``schema`` exports them as JSON schema.
What cannot be determined is the text ``unknown``, never a guess. The file is written once; a run
that resumes compares it byte for byte with the files and programs that it finds.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from slipstream.lab.contract.plan import Plan

UNKNOWN: Final = "unknown"
VERSION: Final = 1


class _Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class RuntimeIdentity(_Group, frozen=True, kw_only=True):
    """Prevents: results of two builds in one series, and a release tag taken for its content.

    Attributes:
        name: as the plan calls it.
        kind: ``slipstream``, ``llama-server`` or ``openai``.
        release: tag or version, as the program or the plan says it; it proves no content.
        commit: that the program tells, else the plan; a field of its own, as tags move.
        binary_sha256: of the file that is started; of Slipstream its native core.
        libraries: SHA-256 of those beside the binary, by file name: they hold most of its code.
        compiler: with version and target, as the program or the plan tells.
        build_options: as the plan's author gave them to the build.
        isa: instruction set level that its kernels use.
        backend: what computes, and the devices that the program lists.
        driver: of the accelerator, with its version.
        terms: under which the program may be passed on.
        help_sha256: of the text of ``--help``.
        help_file: beside the manifest: that text, against which every flag was checked.
        flags: of every start, whatever the condition.
        predicted_paths: kernels that a policy table expects of it; never an observation.
    """

    name: str
    kind: str
    release: str = UNKNOWN
    commit: str = UNKNOWN
    binary_sha256: str = UNKNOWN
    libraries: dict[str, str] = {}
    compiler: str = UNKNOWN
    build_options: str = UNKNOWN
    isa: str = UNKNOWN
    backend: str = UNKNOWN
    driver: str = UNKNOWN
    terms: str = UNKNOWN
    help_sha256: str = UNKNOWN
    help_file: str = ""
    flags: tuple[str, ...] = ()
    predicted_paths: tuple[str, ...] = ()


class ArtifactIdentity(_Group, frozen=True, kw_only=True):
    """Prevents: another quantisation, revision, template or tokenizer under the same name.

    Attributes:
        role: ``target``, or ``draft:KEY`` with the plan's key.
        file: its name, without the folder.
        sha256: of its bytes; of a split model of its files' digests, one a line.
        bytes: of all its files; 0 = it is not here.
        source: where it came from: the plan's word, else the catalogue's, else the file's own.
        revision: of that source.
        quantisation: as the file names it.
        weight_types: types of its tensors, which decide on kernels.
        converter: what wrote the file, as it says.
        tokenizer_sha256: of all ``tokenizer.ggml.`` keys of the file.
        template_sha256: of its chat template.
        licence: of the weights.
        terms: under which they may be passed on.
        trained_by: who trained it; of a draft model whoever trained the drafter.
        architecture: as the file names it.
    """

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
    """Prevents: "it loaded" taken for "it fits". Each is ``confirmed: SOURCE`` or a reason.

    Attributes:
        draft: the plan's key of the draft model.
        tokenizer: both split a text alike.
        vocabulary: an id stands for the same text in both.
        template: both write the run's conversations alike.
        architecture: the drafter can read what the target gives it.
    """

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
    """Prevents: defaults that moved between builds, and parameters nobody wrote down.

    Attributes:
        condition: its name; ``none`` is the baseline.
        stage: rung of the ladder that it belongs to.
        method: name of the drafting method, several with commas.
        parameters: passed; ``left.NAME``: the runtime's own, ``claimed.NAME``: the plan's word.
        starting_point: whether the values are a starting point and no recommendation.
        runtime: whose flags these are; empty = of every runtime of the plan.
        most_proposed: most tokens that a step can propose; fixes the rows that it can have.
        draft: the plan's key of the draft model; empty where none is needed.
        flags: of this runtime's command line, for this condition alone.
        not_run: why it is not run, known before anything ran; empty = nothing is known.
    """

    condition: str
    stage: str
    method: str
    parameters: dict[str, Any] = {}
    starting_point: bool = False
    runtime: str = ""
    most_proposed: int | str = UNKNOWN
    draft: str = ""
    flags: tuple[str, ...] = ()
    not_run: str = ""


class Hardware(_Group, frozen=True, kw_only=True):
    """Prevents: a figure of one machine read as one of another, or of a busy or throttled one.

    Attributes:
        cpu: its model, as the system names it.
        cores: physical ones that this process may use.
        threads: logical processors that it may use.
        memory_bytes: of the machine, or what a control group leaves of it.
        isa: instruction sets that matter to kernels and that the processor has.
        accelerator: graphics processors that the system lists; ``none seen`` where it lists none.
        accelerator_flags: what the accelerator can do, as far as the system says it.
        placement: what the plan asks for: layers, draft device, types of keys and values.
        sampler_placement: where tokens are sampled.
        power: source, as the plan or the system says it.
        cooling: as the plan says it.
        governor: that sets the processor's clock.
        virtualisation: kind of virtual machine or container.
        other_load: the plan's note of what else ran, and the load averages at the freeze.
        system: name and version of system and kernel.
        energy_source: meter that energy is read from; never derived from time.
    """

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

    Attributes:
        id: unique; the file's or the importer's.
        stratum: the workload as the plan names it, the unit of blocks and verdicts.
        task: a finer label within it.
        sha256: of the text, or of the turns.
        licence: of the text.
        source: who wrote it, or which set it came from.
        tokens: of the prompt, by the target's tokenizer and template.
        max_tokens: most of the output.
        seed: of its request; of prompt i the plan's + i.
        judgement: ``exact``, ``schema``, ``tools`` or ``rubric``: how its output is judged.
        warm_up: asked before a block and part of no figure.
        shared: whether its text may appear in a report that is passed on.
        kind: the one of the six strata whose question it answers.
        typical: a long sequence typical of the real load; without one nothing is adopted.
        constrained: whether the request passes the prompt's schema on as ``json_schema``.
        judgement_sha256: of judgement, checks, schema and tools, asked and judged by.
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
    kind: str = ""
    typical: bool = False
    constrained: bool = False
    judgement_sha256: str = ""


class Observation(_Group, frozen=True, kw_only=True):
    """Prevents: cold and warm in one figure, a favouring order, a nameless clock.

    Attributes:
        cold: whether the first request of every process is measured instead of warm ones.
        repeats: blocks of every condition and workload.
        order: of conditions within a round; mirrored, so that a linear drift favours none.
        timeout_s: of a request.
        clock: that every time of a record is of.
        metrics_source: where each runtime's counters are read.
        arrivals_sha256: of the file of recorded arrivals; empty for the other patterns.
    """

    cold: bool = False
    repeats: int = 5
    order: str = "A B B A"
    timeout_s: float = 600.0
    clock: str = "time.perf_counter of the client"
    metrics_source: str = UNKNOWN
    arrivals_sha256: str = ""


class Manifest(_Group, frozen=True, kw_only=True):
    """Prevents: rules and identities that are chosen after the first result is known.

    Attributes:
        version: of this format.
        run: unique: the plan's name, the start's date and time, and eight digits of its digest.
        created: date-time with zone.
        slipstream: version and commit of the lab itself.
        plan: as it was read, rules included; see below.
        runtimes: the programs, one entry for each.
        artifacts: the target and every draft model.
        pairings: one per draft model and runtime's file.
        methods: ``none`` and every condition, sweeps unfolded, for each runtime.
        hardware: of the machine that the lab runs on.
        prompts: every request, workload by workload, each with its warm-ups before it.
        observation: how it is measured.
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
