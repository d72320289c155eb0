"""The report's three forms: what each section holds, and that nothing of a record is markup."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab_records import Story, manifest, observed
from lab_world import DRAFT, SIMPLE, SWEEP, World
from report_runs import SUFFIX, TimedWorld, cut, executed, planned
from slipstream.lab.contract.plan import Arrivals, Question, RuntimePlan
from slipstream.lab.contract.records import Counts, FindingRecord
from slipstream.lab.judging.gate_result import GateResult
from slipstream.lab.judging.verdict import Verdict
from slipstream.lab.reporting.analysis import analysed
from slipstream.lab.reporting.analysis_data import VERSION, Analysis
from slipstream.lab.reporting.report_content import document
from slipstream.lab.reporting.report_document import (
    MOST_ROWS,
    Document,
    Fold,
    Paragraph,
    Section,
    Table,
    listed,
    spread,
    table,
)
from slipstream.lab.reporting.report_files import FORMATS, analysed_run, rendered
from slipstream.lab.reporting.report_json import report_json
from slipstream.lab.reporting.report_page import page
from slipstream.lab.reporting.report_text import ISSUE_CHARACTERS, MOST_CHARACTERS, inline, markdown
from slipstream.lab.reporting.report_verdicts import why_of

ATTACK = "<script>alert(1)</script>|`x` [a](http://b) ![i](u) \x1b[31m\u202e&amp; **b** \n# h"
FIGURES = (
    "Speed-up",
    "Acceptance against speed-up",
    "Acceptance by position",
    "Where the time goes",
    "First token, total time and tail",
    "Memory and energy",
    "Rows per step",
    "Drift over the run",
    "Kernel paths, predicted and observed",
    "Settings in effect",
    "Noise, and the pairs it needs",
)
ALWAYS = (
    "Verdicts",
    "Findings",
    "Workloads and their questions",
    "Conditions",
    "What was pinned",
    "Machine, rules and requests",
    "Published claims",
    "How to read this",
)


class Markup(HTMLParser):
    """Tags and text of a page; every tag that is opened must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "link"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with everything in it, run to its end."""
    folder = tmp_path_factory.mktemp("run")
    world = TimedWorld(
        seconds={"none": 1.0, "ngram-simple": 0.6, "suffix": 0.97},
        diverges={("suffix", "prose/0"): 7},
        gap=0.01,
    )
    executed(folder, SIMPLE, SUFFIX, SWEEP, world=world, arrivals=Arrivals(slots=2))
    return folder


@pytest.fixture(scope="module")
def analysis(run: Path) -> Analysis:
    return analysed_run(run)[1]


def titles(made: Document) -> list[str]:
    return [section.title for section in made.sections]


def of_folder(folder: Path) -> Document:
    return document(analysed_run(folder)[1])


def test_every_section_of_a_run_is_there_in_order(analysis: Analysis) -> None:
    found = titles(document(analysis))
    wanted = [*ALWAYS[:3], *FIGURES[:8], *FIGURES[8:10], "Outputs that are not those of none"]
    wanted += [FIGURES[10], *ALWAYS[3:]]
    assert [title for title in found if title != "Not run, or not to the end"] == wanted


def test_no_section_is_empty(analysis: Analysis) -> None:
    for section in document(analysis).sections:
        assert section.parts, section.title
        for part in section.parts:
            if isinstance(part, Table):
                assert part.rows
                assert all(len(row) == len(part.columns) for row in part.rows)


def test_it_opens_with_its_question_and_scope(analysis: Analysis) -> None:
    text = markdown(document(analysis))
    head = text.partition("## Verdicts")[0]
    assert head.startswith("# Does speculation pay on this machine")
    for part in ("no evidence for other devices", "No service level is promised", "separate"):
        assert part in head
    assert head.index(analysis.manifest_sha256) < head.index("no evidence")
    assert text.rstrip().endswith(analysis.manifest_sha256)


def test_a_divergence_says_how_its_cause_was_established(analysis: Analysis) -> None:
    _, _, rest = markdown(document(analysis)).partition("## Outputs that are not those of none")
    assert "| near-tie | a gap below 0.05 |" in rest


def test_latency_and_throughput_stand_apart(analysis: Analysis) -> None:
    text = markdown(document(analysis))
    one, _, load = text.partition("### Throughput under load, 2 at a time")
    assert "### Latency of one stream" in one
    assert "throughput ratio" in load
    assert "throughput ratio" not in one.partition("### Latency of one stream")[2]


def test_the_page_needs_no_network(analysis: Analysis) -> None:
    text = page(document(analysis))
    made = Markup(text)
    assert not {"script", "img", "iframe", "object", "form"} & set(made.tags)
    loaded = [value for name, value in made.attributes if name in ("src", "srcset", "action")]
    assert loaded == []
    assert not re.search(r"@import|url\(", text)
    assert "default-src &#x27;none&#x27;" in text
    assert text.count("prefers-color-scheme: dark") >= 2
    assert '<meta name="viewport" content="width=device-width' in text


def test_run_and_digest_are_in_header_and_footer(analysis: Analysis) -> None:
    text = page(document(analysis))
    header = text.partition("<header>")[2].partition("</header>")[0]
    footer = text.partition("<footer>")[2]
    for part in (analysis.run, analysis.manifest_sha256):
        assert part in header
        assert part in footer


def test_every_chart_has_its_figures_in_a_table(analysis: Analysis) -> None:
    text = page(document(analysis))
    assert text.count("<svg ") >= 10
    speed = text.partition('id="speed-up"')[2].partition("</section>")[0]
    own = next(c.speed for c in analysis.cells if c.speed)
    assert own.low is None
    assert f"{own.figure.median:.3f} ({own.figure.least:.3f} to {own.figure.most:.3f}, " in speed
    assert f"{own.figure.n} pairs)" in speed
    assert " hollow" in speed
    assert "of fewer than 5 pairs" in speed
    assert "<title>ngram-simple: " in speed


def test_gates_are_shown_one_by_one(analysis: Analysis) -> None:
    text = markdown(document(analysis))
    gates = text.partition("### Gates, one by one")[2].partition("## Findings")[0]
    judged = [v for v in analysis.verdicts if v.gates]
    assert gates.count("<details>") == gates.count("</details>") == len(judged)
    for name in ("output", "time", "tail", "memory", "pinned", "rollback", "isolation"):
        assert gates.count(f"| {name} |") == len(judged)


def test_reports_are_the_same_bytes_wherever_the_folder_lies(run: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(run, moved)
    here, there = (analysed_run(folder)[1] for folder in (run, moved))
    for form in FORMATS:
        assert rendered(here, form) == rendered(there, form)
        assert str(run).encode() not in rendered(here, form)


def test_json_is_the_whole_analysis(analysis: Analysis) -> None:
    raw = report_json(analysis)
    assert raw.endswith(b"}\n")
    assert json.loads(raw)["version"] == VERSION
    assert msgspec.json.decode(raw, type=Analysis) == analysis


def test_a_plan_that_was_not_executed(tmp_path: Path) -> None:
    planned(tmp_path)
    made = of_folder(tmp_path)
    found = titles(made)
    assert "What would be run" in found
    assert not set(FIGURES) & set(found)
    text = markdown(made)
    assert "**This plan was not executed: nothing here was measured." in text
    assert "Kernel paths predicted of fake: nothing; the path is unknown" in text
    assert "<svg" not in page(made)
    Markup(page(made))


def test_a_run_that_was_interrupted(tmp_path: Path) -> None:
    executed(tmp_path)
    cut(tmp_path, 40)
    text = markdown(of_folder(tmp_path))
    assert "**The run was interrupted: it was ended before its last block. 9 blocks ended" in text
    assert "## Not run, or not to the end" in text
    assert "| to run |" in text


def test_a_run_whose_first_block_never_ended(tmp_path: Path) -> None:
    executed(tmp_path)
    cut(tmp_path, 3)
    made = of_folder(tmp_path)
    assert "Figures" in titles(made)
    assert "No block ended, so there is no figure." in markdown(made)
    Markup(page(made))


def test_two_programs_stand_side_by_side(tmp_path: Path) -> None:
    two = {name: RuntimePlan(kind="llama-server", binary=f"{name}.bin") for name in ("old", "new")}
    executed(tmp_path, SIMPLE, runtimes=two)
    made = of_folder(tmp_path)
    assert "Programs side by side" in titles(made)
    text = markdown(made).partition("## Programs side by side")[2]
    assert "| workload | condition | figure | old | new |" in text
    assert "builds are never pooled" in text
    assert "ngram-simple (old)" in markdown(made)
    assert "lab compare" not in markdown(made)
    Markup(page(made))


def test_a_comparison_of_builds_says_where_it_is_judged(tmp_path: Path) -> None:
    made = planned(tmp_path, SIMPLE)
    asked = msgspec.structs.replace(made.plan.comparison, builds=("old", "new"))
    compares = msgspec.structs.replace(
        made, plan=msgspec.structs.replace(made.plan, comparison=asked)
    )
    head = markdown(document(analysed(compares, []))).partition("## Verdicts")[0]
    assert "compares the builds `old` and `new`" in head
    assert "`slipstream lab compare`" in head


def test_where_nothing_was_drafted_acceptance_is_undefined() -> None:
    nothing = {"counts": Counts(drafted=0, accepted=0, steps=0, source="request")}
    made = document(analysed(manifest(), Story(changed=lambda *_: nothing).lines(6)))
    text = markdown(made)
    section = text.partition("## Acceptance against speed-up")[2].partition("\n## ")[0]
    assert "| undefined |" in section
    assert "Nothing was drafted and timed: acceptance is undefined." in section
    assert "0.0 %" not in section
    assert "never-fired" in text


def hostile() -> Analysis:
    """Every text that comes from elsewhere tries to be markup."""
    plan = manifest(
        methods=(msgspec.structs.replace(manifest().methods[1], condition=ATTACK),),
        plan={"question": Question(text=ATTACK), "strata": (ATTACK,)},
    )
    prompts = tuple(msgspec.structs.replace(p, stratum=ATTACK) for p in plan.prompts)
    hardware = msgspec.structs.replace(plan.hardware, cpu=ATTACK, system=ATTACK)
    plan = msgspec.structs.replace(
        plan, run=ATTACK, prompts=prompts, hardware=hardware, questions={ATTACK: ATTACK}
    )

    def changed(turn: int, condition: str, _: str) -> dict[str, Any]:
        failed = {"error": ATTACK} if turn == 1 else {}
        own = ATTACK if condition == "suffix" else condition
        return {"run": ATTACK, "stratum": ATTACK, "condition": own, **failed}

    def block(turn: int, condition: str) -> dict[str, Any]:
        own = ATTACK if condition == "suffix" else condition
        bad = {"outcome": "inconclusive", "reason": ATTACK} if turn == 2 else {}
        return {"run": ATTACK, "stratum": ATTACK, "condition": own, **bad}

    told = observed(ATTACK, {ATTACK: ATTACK}, kernel_paths=(ATTACK,), capability={ATTACK: ATTACK})
    found = FindingRecord(run=ATTACK, name=ATTACK, text=ATTACK, condition=ATTACK)
    lines = [*Story(changed=changed, block=block).lines(6), told, found]
    return analysed(plan, lines)


def test_nothing_hostile_becomes_html() -> None:
    text = page(document(hostile()))
    made = Markup(text)
    assert "script" not in made.tags
    assert not {"img", "b", "strong"} & set(made.tags)
    assert not [v for n, v in made.attributes if n == "href" and v and v.startswith("http://b")]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "alert(1)" in "".join(made.text)


def test_nothing_hostile_becomes_markdown() -> None:
    text = markdown(document(hostile()))
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not re.search(r"(?<!\\)\[a(?<!\\)\]", text)
    columns = 0
    for line in text.splitlines():
        borders = len(re.findall(r"(?<!\\)\|", line))
        if line.startswith("| "):
            columns = columns or borders
            assert borders == columns, line
        else:
            columns = 0
            assert borders == 0
    assert not any(line.startswith("# h") for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain_name", "plain\\_name"),
        ("a `none` b", "a `none` b"),
        ("a ` b", "a \\` b"),
        ("`a|b`", "\\`a\\|b\\`"),
        ("<b> & [x]", "&lt;b&gt; &amp; \\[x\\]"),
        ("two\nlines", "two lines"),
    ],
)
def test_escapes_of_markdown(text: str, shown: str) -> None:
    assert inline(text) == shown


def test_a_huge_table_says_what_it_leaves_out() -> None:
    made = table(["n"], [[str(i)] for i in range(MOST_ROWS + 7)])
    assert isinstance(made[0], Table)
    assert len(made[0].rows) == MOST_ROWS
    assert "7 more rows are in report.json" in str(made[1])
    assert table(["n"], []) == []
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


def test_markdown_leaves_long_lists_to_the_page(analysis: Analysis) -> None:
    made = document(analysis)
    assert "_Prompts: 6, each by its digest; see report.html or report.json._" in markdown(made)
    digest = analysis.prompts[0].sha256
    assert digest in page(made)
    assert digest[:16] not in markdown(made)


def test_outputs_that_differ_show_both_texts(run: Path) -> None:
    text = markdown(of_folder(run))
    section = text.partition("## Outputs that are not those of none")[2].partition("\n## ")[0]
    assert "prose/0" in section
    assert "near-tie" in section
    assert "9 9 9" in section


def test_pairing_says_what_was_not_confirmed(tmp_path: Path) -> None:
    planned(tmp_path, SIMPLE, DRAFT)
    text = markdown(of_folder(tmp_path))
    section = text.partition("### Pairing of target and draft")[2].partition("\n## ")[0]
    assert section.count("confirmed") == 4
    assert "page" in section


def test_a_setting_that_was_ignored_stands_out(tmp_path: Path) -> None:
    world = World(ignores={"ngram-simple": {"size_n": ("12", "4")}})
    executed(tmp_path, SIMPLE, SUFFIX, world=world)
    text = markdown(of_folder(tmp_path))
    section = text.partition("## Settings in effect")[2].partition("\n## ")[0]
    assert "| ngram-simple | size\\_n | 12 | **" in section or "| 12 | 4 |" in section
    assert "flag-ignored" in text


def test_published_claims_are_not_comparable(analysis: Analysis) -> None:
    assert len(analysis.claims) > 10
    text = markdown(document(analysis))
    section = text.partition("## Published claims")[2].partition("\n## ")[0]
    methods = {m.method for m in analysis.methods}
    ours = [claim for claim in analysis.claims if claim.method in methods]
    assert section.count("not comparable") == len(ours) > 0
    assert f"Of methods that this plan has not: {len(analysis.claims) - len(ours)}" in section
    whole = page(document(analysis)).partition('id="published-claims"')[2]
    assert whole.count(">not comparable<") == len(analysis.claims)
    assert "none can be set against a figure above" in section
    own = next(line for line in section.splitlines() if line.startswith("| ngram-simple"))
    assert "repetitive 1.6" in own


def long_document(sections: int, rows: int, words: int = 30) -> Document:
    cell = "x " * words
    one = [
        *table(["n", "text"], [[str(i), cell] for i in range(rows)]),
        Fold("more", [Paragraph("in a fold " * 200)]),
    ]
    return Document(
        title="Q?",
        identity="Run r; manifest 00",
        lead=[Paragraph("lead")],
        sections=[Section(f"Section {i}", one) for i in range(sections)],
    )


def test_markdown_that_fits_is_whole() -> None:
    text = markdown(long_document(2, 5))
    assert "Left out here" not in text
    assert "in a fold" in text


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (long_document(30, 10), "what is folded, but for the first section. All"),
        (long_document(5, 300), "rows beyond 40 of a table"),
        (long_document(40, 41), "rows beyond 12 of a table"),
        (long_document(120, 41), "rows beyond 4 of a table"),
        (long_document(400, 41), "the sections Section "),
        (long_document(4000, 1), "the sections Section "),
        (long_document(2, 2, 100_000), "the sections Section 0, Section 1."),
    ],
)
def test_markdown_fits_in_an_issue_and_says_what_it_leaves_out(made: Document, told: str) -> None:
    text = markdown(made)
    assert len(text) <= MOST_CHARACTERS < ISSUE_CHARACTERS == 65_536
    assert told in text
    assert "report.html and report.json" in text
    assert text.startswith("# Q?")


def test_why_is_brief_where_the_whole_stands_below() -> None:
    time = GateResult(
        name="time",
        passed=None,
        observed="speed-up 1.154 [0.956, 1.319]",
        limit="above 1",
        evidence="6 pairs, 69 needed; a pair's noise is 12%",
    )
    output = GateResult(
        name="output",
        passed=None,
        observed="6 of 6 outputs equal",
        limit="equal",
        evidence="compared by ids; no checked outputs",
    )
    reasons = (
        "time not measurable: speed-up 1.154 [0.956, 1.319]; 6 pairs, 69 needed; a pair's noise",
        "output not measurable: 6 of 6 outputs equal; compared by ids; no checked outputs",
        "tail: " + "y" * 500,
        "one more",
    )
    verdict = Verdict(
        runtime="r",
        stratum="s",
        condition="c",
        slots=1,
        word="reject",
        reasons=reasons,
        gates=(time, output),
    )
    why = why_of(verdict)
    assert why.startswith(
        "time not measurable: 6 pairs, 69 needed; output not measurable: no checked outputs; "
    )
    assert why.endswith("; 2 more below")
    long = msgspec.structs.replace(verdict, reasons=("tail: " + "y" * 500,))
    assert len(why_of(long)) < 100


def test_a_figure_breaks_between_quartiles_and_extremes_alone() -> None:
    made = Document(
        "Q?", "Run", [], [Section("S", table([spread("f")], [["1 (2 to 3; 4 to 5; 6)"]]))]
    )
    assert "1\xa0(2\xa0to\xa03; 4\xa0to\xa05;\xa06)" in page(made)
