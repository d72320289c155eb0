"""The lab's report in a headless Chromium: at a desk and on a phone, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chromium import Browser, Page, find_chromium
from lab_world import SIMPLE, SWEEP
from report_runs import SUFFIX, TimedWorld, executed, planned
from slipstream.lab.contract.plan import Arrivals, RuntimePlan
from slipstream.lab.reporting.report_files import analysed_run, write_reports

CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
SIZES = [(1280, 900), (360, 740)]
OPEN = "document.querySelectorAll('details').forEach((part) => { part.open = true; })"
WIDTH = "document.documentElement.scrollWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
# what sticks out of the page and does not scroll inside a box of its own
ASTRAY = """[...document.querySelectorAll('body *')].filter((part) =>
  part.getBoundingClientRect().right > innerWidth + 1 && !part.closest('.scroll > table')
).map((part) => part.tagName + '.' + part.className)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A study, two programs side by side, and a plan that was not executed."""
    folder = tmp_path_factory.mktemp("runs")
    world = TimedWorld(
        seconds={"none": 1.0, "ngram-simple": 0.6}, diverges={("suffix", "prose/0"): 7}
    )
    executed(folder / "study", SIMPLE, SUFFIX, SWEEP, world=world, arrivals=Arrivals(slots=2))
    two = {name: RuntimePlan(kind="llama-server", binary=f"{name}.bin") for name in ("old", "new")}
    executed(folder / "two", SIMPLE, SUFFIX, runtimes=two)
    planned(folder / "plan")
    names = ("study", "two", "plan")
    return {
        name: write_reports(*analysed_run(folder / name), folder / name, ("html",))[0]
        for name in names
    }


@pytest.fixture(params=["study", "two", "plan"])
def page(
    request: pytest.FixtureRequest, browser: Browser, reports: dict[str, Path]
) -> Iterator[Page]:
    page = browser.open(f"file://{reports[request.param]}", *SIZES[0])
    yield page
    page.call("Page.close")


@pytest.mark.parametrize("size", SIZES)
def test_the_page_never_scrolls_sideways(page: Page, size: tuple[int, int]) -> None:
    page.size(*size)
    for scheme in ("light", "dark"):
        page.colours(scheme)
        assert page.evaluate(WIDTH) == size[0]
        assert page.evaluate(ASTRAY) == []
    page.evaluate(OPEN)
    assert page.evaluate(WIDTH) == size[0]
    assert page.evaluate(ASTRAY) == []


def test_no_table_is_cut_at_a_desk(page: Page) -> None:
    cut = (
        "[...document.querySelectorAll('.scroll')].filter((box) => box.checkVisibility() &&"
        " box.scrollWidth > box.clientWidth).map((box) => box.innerText.slice(0, 80))"
    )
    assert page.evaluate(cut) == []


def test_why_takes_few_lines_at_a_desk(browser: Browser, reports: dict[str, Path]) -> None:
    page = browser.open(f"file://{reports['study']}", *SIZES[0])
    lines = """Math.max(...[...document.querySelectorAll('#verdicts > .scroll td:nth-child(6)')]
      .map((cell) => {
        const text = document.createRange();
        text.selectNodeContents(cell);
        const high = text.getBoundingClientRect().height;
        return high / parseFloat(getComputedStyle(cell).lineHeight); }))"""
    assert page.evaluate(lines) > 0
    assert page.evaluate(lines) < 4.5
    page.call("Page.close")


def test_nothing_is_fetched_and_nothing_complains(page: Page) -> None:
    page.evaluate(OPEN)
    assert len(page.addresses()) == 1
    assert page.complaints() == []


def test_light_and_dark_differ_and_can_be_read(page: Page) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        page.colours(scheme)
        ink = "getComputedStyle(document.querySelector('h1')).color"
        seen[scheme] = (page.evaluate(BACKGROUND), page.evaluate(ink))
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]
    assert all(background != ink for background, ink in seen.values())


def test_links_lead_to_their_sections(page: Page) -> None:
    dead = (
        "[...document.querySelectorAll('nav a')].filter((link) =>"
        " !document.querySelector(link.getAttribute('href'))).length"
    )
    assert page.evaluate("document.querySelectorAll('nav a').length") >= 8
    assert page.evaluate(dead) == 0


def test_verdicts_are_cards_on_a_phone(browser: Browser, reports: dict[str, Path]) -> None:
    page = browser.open(f"file://{reports['study']}", *SIZES[1])
    cell = "document.querySelector('#verdicts .cards td:nth-child(6)')"
    assert page.evaluate(f"getComputedStyle({cell}).display") == "block"
    assert page.evaluate(f"{cell}.getBoundingClientRect().right") <= SIZES[1][0]
    label = f"getComputedStyle({cell}, '::before').content"
    assert page.evaluate(label) == '"why"'
    page.size(*SIZES[0])
    assert page.evaluate(f"getComputedStyle({cell}).display") == "table-cell"
    page.call("Page.close")


def test_text_in_charts_can_be_read_on_a_phone(browser: Browser, reports: dict[str, Path]) -> None:
    page = browser.open(f"file://{reports['study']}", *SIZES[1])
    smallest = (
        "Math.min(...[...document.querySelectorAll('svg')].map((svg) =>"
        " 13 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width))"
    )
    assert page.evaluate(smallest) >= 10
    page.call("Page.close")
