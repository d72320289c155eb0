"""What was measured: programs, files, pairings, machine, requests and rules, with digests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from slipstream.lab.contract.manifest import UNKNOWN, ArtifactIdentity, Pairing
from slipstream.lab.judging.pair_words import ratio_text
from slipstream.lab.reporting.analysis_data import Analysis, Divergence
from slipstream.lab.reporting.published import NOT_COMPARABLE, Claim
from slipstream.lab.reporting.report_document import (
    Cells,
    Entry,
    Fold,
    Heading,
    Paragraph,
    Part,
    Section,
    Title,
    Word,
    listed,
    number,
    sentence,
    shortened,
    table,
)
from slipstream.lab.reporting.report_words import load, named, place, plain

_PARTS: Final = ("tokenizer", "vocabulary", "template", "architecture")
_CONFIRMED: Final = "confirmed: "
_DIGITS: Final = 16
_SWEEP: Final = "ngram-sweep"


def digest(given: str) -> Entry:
    if given in ("", UNKNOWN):
        return Word(UNKNOWN, "open")
    return Word(f"{given[:_DIGITS]}…" if len(given) > _DIGITS else given, note=given)


def known(given: str) -> Entry:
    return Word(UNKNOWN, "open") if given in ("", UNKNOWN) else given


def divergences(analysis: Analysis) -> Section | None:
    """Every output that is not that of ``none``: where it leaves it, and why."""
    if not analysis.divergences:
        return None
    titles: list[Title] = ["prompt", "condition", number("at"), number("gap"), "cause"]
    titles += [sentence("shown by"), number("requests")]
    titles += [sentence("both"), sentence("none goes on"), sentence("this one")]
    rows = [_divergence(analysis, d) for d in analysis.divergences]
    unit = "token" if analysis.rules.comparison == "ids" else "character"
    note = (
        f"At: the first {unit} that differs. Gap: between the two best logits of `none` there; "
        f"below {analysis.rules.tolerance_logit_gap:g} it is a near-tie. Numeric path: `none` "
        "itself gives the other token where it computes the place as one of a prompt's many rows, "
        "as a verification does; if it keeps its own, it is a defect. Without logits and probe the "
        "cause is unknown."
    )
    return Section("Outputs that are not those of none", [Paragraph(note), *table(titles, rows)])


def _divergence(analysis: Analysis, d: Divergence) -> Cells:
    name = named(analysis, d.runtime, d.condition)
    condition = name if d.slots == 1 else f"{name}, {load(d.slots)}"
    tone = Word(d.cause, "open" if d.cause in ("near-tie", "numeric path") else "bad")
    at = UNKNOWN if d.at is None else str(d.at)
    gap = UNKNOWN if d.gap is None else f"{d.gap:.4g}"
    texts: Cells = [f"…{d.before}", d.none, d.other]
    if d.withheld:
        texts = [Word(d.withheld, "quiet"), "", ""]
    return [d.prompt, condition, at, gap, tone, d.shown_by, str(d.repeats), *texts]


def pinned(analysis: Analysis) -> Section:
    """Digests and licences first: without them nothing above can be repeated."""
    parts: list[Part] = [Heading("Files"), *_artifacts(analysis), Heading("Programs")]
    parts += _runtimes(analysis)
    if analysis.pairings:
        parts += [Heading("Pairing of target and draft"), *_pairings(analysis.pairings)]
    return Section("What was pinned", parts)


def _artifacts(analysis: Analysis) -> list[Part]:
    titles: list[Title] = ["role", "file", "SHA-256", number("MB"), "quantisation", "licence"]
    rows: list[Cells] = [
        [
            a.role,
            a.file,
            digest(a.sha256),
            f"{a.bytes / 1e6:,.1f}" if a.bytes else Word(UNKNOWN, "open"),
            *(known(text) for text in (a.quantisation, a.licence, a.terms)),
        ]
        for a in analysis.artifacts
    ]
    made = table([*titles, sentence("terms")], rows)
    return [*made, *(_file(a) for a in analysis.artifacts)]


def _file(artifact: ArtifactIdentity) -> Fold:
    told = {
        "SHA-256": artifact.sha256,
        "source": artifact.source,
        "revision": artifact.revision,
        "trained by": artifact.trained_by,
        "architecture": artifact.architecture,
        "weight types": artifact.weight_types,
        "converter": artifact.converter,
        "tokenizer SHA-256": artifact.tokenizer_sha256,
        "template SHA-256": artifact.template_sha256,
    }
    return Fold(f"{artifact.role}: source and digests in full", _facts(told))


def _runtimes(analysis: Analysis) -> list[Part]:
    made: list[Part] = []
    for runtime in analysis.runtimes:
        fields = {
            "kind": runtime.kind,
            "release": runtime.release,
            "commit": runtime.commit,
            "binary SHA-256": runtime.binary_sha256,
            "compiler": runtime.compiler,
            "build options": runtime.build_options,
            "instruction set": runtime.isa,
            "backend": runtime.backend,
            "driver": runtime.driver,
            "terms": runtime.terms,
            "help text SHA-256": runtime.help_sha256,
            "flags": runtime.flags or "none",
            "placement asked for": runtime.device or UNKNOWN,
            "libraries": runtime.libraries or "none beside the binary",
        }
        build = f"release {runtime.release}, commit {runtime.commit[:_DIGITS]}"
        made.append(Fold(f"{runtime.name}: {runtime.kind}, {build}", _facts(fields)))
    return made


def _facts(told: Mapping[str, Any]) -> list[Part]:
    rows = [[name, known(plain(fact))] for name, fact in told.items()]
    return table(["", sentence("")], rows)


def _pairings(pairings: Iterable[Pairing]) -> list[Part]:
    rows: list[Cells] = []
    for pairing in pairings:
        for part in _PARTS:
            found = str(getattr(pairing, part))
            confirmed = found.startswith(_CONFIRMED)
            state = Word("confirmed", "good") if confirmed else Word("not confirmed", "bad")
            rows.append([pairing.draft, part, state, found.removeprefix(_CONFIRMED)])
    return table(["draft", "part", "state", sentence("source or reason")], rows)


def conditions(analysis: Analysis) -> Section:
    """Methods with every parameter, the flags they became, and what is a starting point."""
    rows = [
        [
            named(analysis, m.runtime, m.condition) if m.runtime else m.condition,
            m.stage,
            m.method,
            str(m.most_proposed),
            "starting point" if m.starting_point else "",
            plain(m.parameters) or "-",
            " ".join(m.flags),
            m.not_run,
        ]
        for m in analysis.methods
    ]
    titles: list[Title] = ["condition", "stage", "method", number("most drafted"), "values"]
    titles += [sentence("parameters"), sentence("flags"), sentence("not run")]
    note = "Values that are a starting point are no recommendation."
    return Section("Conditions", [*table(titles, rows), Paragraph(note, "quiet")])


def setting(analysis: Analysis) -> Section:
    """The machine, the rules fixed before the first request, and every prompt by its digest."""
    machine = {name: getattr(analysis.hardware, name) for name in _fields(analysis.hardware)}
    if isinstance(machine["memory_bytes"], int):
        machine["memory_bytes"] = f"{machine['memory_bytes']:,}"
    rules = {name: getattr(analysis.rules, name) for name in _fields(analysis.rules)}
    rules |= {f"sampling {n}": getattr(analysis.sampling, n) for n in _fields(analysis.sampling)}
    rules |= {f"arrivals {n}": getattr(analysis.arrivals, n) for n in _fields(analysis.arrivals)}
    rules |= {n: getattr(analysis.observation, n) for n in _fields(analysis.observation)}
    rules |= {"threads asked for": analysis.threads or "the program's choice"}
    rules |= {"context": analysis.context, "tenants": analysis.tenants or "none declared"}
    rules |= {"rollback": analysis.rollback or "no previous build is kept"}
    parts: list[Part] = [
        Heading("Machine"),
        *_facts({name.replace("_", " "): fact for name, fact in machine.items()}),
        Fold("Rules and observation, fixed before the first request", _settings(rules)),
        Fold(
            f"Prompts: {len(analysis.prompts)}, each by its digest",
            _prompts(analysis),
            page_alone=True,
        ),
    ]
    pages = [[plain(page)] for page in analysis.question.pages]
    parts += [Heading("Pages consulted"), *table([sentence("")], pages)] if pages else []
    return Section("Machine, rules and requests", parts)


def _fields(struct: Any) -> tuple[str, ...]:
    return tuple(struct.__struct_fields__)


def _settings(rules: Mapping[str, Any]) -> list[Part]:
    rows = [[name.replace("_", " "), plain(rule) or "-"] for name, rule in rules.items()]
    return table(["rule", sentence("value")], rows)


def _prompts(analysis: Analysis) -> list[Part]:
    titles: list[Title] = ["prompt", "workload", "use", number("tokens"), number("most")]
    titles += [number("seed"), "judgement", "licence", sentence("source"), "SHA-256"]
    rows = [
        [
            p.id,
            p.stratum,
            "warm-up" if p.warm_up else ("measured, typical" if p.typical else "measured"),
            *(str(n) for n in (p.tokens, p.max_tokens, p.seed)),
            p.judgement + (", constrained" if p.constrained else ""),
            *(known(text) for text in (p.licence, p.source)),
            digest(p.sha256),
        ]
        for p in analysis.prompts
    ]
    return table(titles, rows)


def published(analysis: Analysis) -> Section | None:
    """What others claim of the methods measured here, beside ours and never compared with it."""
    if not analysis.claims:
        return None
    note = (
        "Other models, devices, prompts and ways to count. None of these figures is a tolerance, "
        "a prior or a target here, and none can be set against a figure above."
    )
    methods = {name.strip() for m in analysis.methods for name in m.method.split(",")}
    ours = [claim for claim in analysis.claims if claim.method in methods]
    others = [claim for claim in analysis.claims if claim.method not in methods]
    told = f"Of methods that this plan has not: {len(others)}"
    fold = Fold(told, _claims(analysis, others), page_alone=True)
    parts: list[Part] = [Paragraph(note), *_claims(analysis, ours), *([fold] if others else [])]
    return Section("Published claims", parts)


def _claims(analysis: Analysis, claims: Sequence[Claim]) -> list[Part]:
    titles: list[Title] = ["method", sentence("published"), sentence("setting"), "beside ours"]
    titles += [sentence("ours"), sentence("source"), "kind of text", "date"]
    rows: list[Cells] = [
        [
            claim.method,
            claim.value,
            shortened(claim.setting),
            Word(NOT_COMPARABLE, "open"),
            _ours(analysis, claim.method),
            claim.source,
            claim.state,
            claim.date,
        ]
        for claim in claims
    ]
    return table(titles, rows, cards=True)


def _ours(analysis: Analysis, method: str) -> str:
    """The speed-ups of the plain method here, workload by workload, one stream at a time."""
    plain_ones = [m for m in analysis.methods if m.method == method and m.stage != _SWEEP]
    names = {(m.runtime, m.condition) for m in plain_ones}
    own = [
        f"{place(c)} {ratio_text(c.speed, 2)}"
        for c in analysis.cells
        if c.speed and c.slots == 1 and names & {(c.runtime, c.condition), ("", c.condition)}
    ]
    return listed(own, 8) or "not measured"


def planned(analysis: Analysis) -> Section:
    """Of a plan that was not executed: what would run, and what is predicted of it."""
    rows: list[Cells] = [
        [
            named(analysis, s.runtime, s.condition),
            s.stratum or "no workload",
            s.stage,
            load(s.slots),
            str(s.of),
            Word("not run", "quiet"),
            s.reason if s.state == "not run" else "",
        ]
        for s in analysis.series
    ]
    titles: list[Title] = ["condition", "workload", "stage", "load", number("blocks")]
    parts: list[Part] = [*table([*titles, "state", sentence("known not to run")], rows)]
    for runtime in analysis.runtimes:
        told = listed(runtime.predicted_paths, 24) or "nothing; the path is unknown"
        parts.append(Paragraph(f"Kernel paths predicted of {runtime.name}: {told}."))
    note = "A prediction is no observation: nothing was started, and every path is unknown."
    return Section("What would be run", [*parts, Paragraph(note)])
