"""The built-in page in a headless Chromium, against canned replies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.applications import Starlette

from character_service import CharacterService, ended, said
from chromium import Browser, Page, find_chromium
from page_server import ATTACK, FakeServer, served
from slipstream.server import openai_chat, props
from slipstream.server.meters import Meters
from slipstream.server.page import routes as page_routes
from slipstream.server.wire import WireEvent, WireToken

CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
FINISHED = "document.getElementById('status').textContent.startsWith('Reply finished')"
REPLY = "[...document.querySelectorAll('article.assistant p')].at(-1)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def address(server: FakeServer) -> Iterator[str]:
    with served(server.application()) as address:
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    page = browser.open(address)
    page.wait_for("document.getElementById('model').textContent.includes('tiny')")
    yield page
    page.call("Page.close")


def text_of(page: Page, identifier: str) -> str:
    text = page.evaluate(f"document.getElementById('{identifier}').textContent")
    assert isinstance(text, str)
    return text


def ask(page: Page, text: str, until: str = FINISHED) -> None:
    page.evaluate("document.getElementById('message').focus()")
    page.type(text)
    page.press("Enter")
    page.wait_for(until)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fill(page: Page, identifier: str, value: str) -> None:
    page.evaluate(f"document.getElementById('{identifier}').value = '{value}'")


def test_a_reply_is_shown_with_its_drafts_tinted(page: Page, server: FakeServer) -> None:
    ask(page, "count")
    assert page.evaluate(f"{REPLY}.textContent") == "One two three four five six seven."
    tinted = f"[...{REPLY}.querySelectorAll('.drafted')].map((part) => part.textContent)"
    assert page.evaluate(tinted) == [" two three", " five", "."]
    background = "getComputedStyle({}.querySelector('{}')).backgroundColor"
    drafted = page.evaluate(background.format(REPLY, ".drafted"))
    assert drafted != page.evaluate(background.format(REPLY, "span:not(.drafted)"))
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "count"}]
    assert page.complaints() == []


def test_the_figures_are_the_servers(page: Page) -> None:
    ask(page, "count")
    assert text_of(page, "speed") == "41.5 tokens/s"
    assert text_of(page, "first-token") == "0.25 s for 12 tokens"
    assert text_of(page, "tokens") == "9 in 5 passes"
    assert text_of(page, "drafts") == "4 of 7 accepted (57 %)"
    assert text_of(page, "in-effect") == "suffix · n_max 48"
    assert text_of(page, "seed-used") == "7"
    assert "4 of them accepted draft tokens" in text_of(page, "status")


def test_acceptance_is_charted_by_position(page: Page) -> None:
    ask(page, "count")
    assert text_of(page, "chart-text") == "1: 100 % of 3, 2: 50 % of 2, 3: 0 % of 1"
    heights = page.evaluate(
        "[...document.querySelectorAll('#chart .bar')].map((bar) => +bar.getAttribute('height'))"
    )
    assert heights == [80, 40, 0]


def test_figures_and_chart_move_while_the_reply_is_written(page: Page) -> None:
    ask(page, "endless", "document.querySelectorAll('article.assistant span').length > 0")
    assert text_of(page, "speed") == "41.5 tokens/s"
    assert page.evaluate("document.getElementById('send').disabled") is True
    assert page.evaluate("document.getElementById('transcript').ariaBusy") == "true"
    page.press("Escape")
    page.wait_for("!document.getElementById('send').disabled")


def test_escape_ends_the_stream(page: Page, server: FakeServer) -> None:
    ask(page, "endless", "document.querySelectorAll('article.assistant span').length > 0")
    page.press("Escape")
    page.wait_for("document.getElementById('status').textContent.startsWith('Reply stopped')")
    ask(page, "count")
    wait_until(lambda: server.left == 1)
    roles = [message["role"] for message in server.bodies[1]["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_the_stop_button_gives_the_focus_back(page: Page) -> None:
    ask(page, "endless", "!document.getElementById('stop').disabled")
    page.evaluate("document.getElementById('stop').focus()")
    page.evaluate("document.getElementById('stop').click()")
    page.wait_for("document.getElementById('stop').disabled")
    assert page.evaluate("document.activeElement.id") == "message"


def test_what_a_model_writes_is_never_markup(page: Page) -> None:
    ask(page, "attack")
    assert page.evaluate(f"{REPLY}.textContent") == ATTACK * 2
    assert page.evaluate("document.querySelectorAll('article img, article script').length") == 0
    assert page.evaluate("document.title") == "Slipstream"
    assert (
        page.evaluate(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'let in'; }"
            " catch { return 'refused'; } })()"
        )
        == "refused"
    )


def test_code_is_set_apart_as_text(page: Page) -> None:
    ask(page, "code")
    blocks = "[...document.querySelectorAll('article.assistant :is(p, pre)')]"
    assert page.evaluate(f"{blocks}.map((block) => [block.tagName, block.textContent])") == [
        ["P", "Look:\n"],
        ["PRE", "```python\nx = 1\n```\n"],
        ["P", "That was `code`."],
    ]
    tinted = "[...document.querySelectorAll('article .drafted')].map((part) => part.textContent)"
    assert page.evaluate(tinted) == ["Look:\n", "``", "``", "was `code`."]


def test_a_tint_is_more_than_a_colour_and_explained(page: Page) -> None:
    ask(page, "count")
    width = f"getComputedStyle({REPLY}.querySelector('.drafted')).borderBottomWidth"
    assert page.evaluate(width) == "2px"
    legend = "document.querySelector('.under .drafted').parentElement.textContent"
    assert page.evaluate(legend) == "tinted = accepted draft tokens"


def test_a_narrow_page_shows_the_speed_beside_the_reply(page: Page) -> None:
    page.size(390, 844)
    ask(page, "count")
    assert text_of(page, "brief") == "41.5 tokens/s, 57 % accepted"
    assert page.evaluate("document.getElementById('brief').checkVisibility()") is True


def test_settings_are_sent(page: Page, server: FakeServer) -> None:
    fill(page, "temperature", "0.7")
    fill(page, "seed", "11")
    fill(page, "max-tokens", "64")
    fill(page, "method", "ngram-mod")
    ask(page, "count")
    body = server.bodies[0]
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.7, 11, 64)
    assert body["speculative"] == {"type": "ngram-mod"}
    assert (body["stream"], body["show_drafts"], body["timings_per_token"]) == (True, True, True)


def test_what_is_not_set_is_left_to_the_server(page: Page, server: FakeServer) -> None:
    ask(page, "count")
    assert not {"temperature", "seed", "speculative"} & server.bodies[0].keys()


def test_methods_come_from_the_server(page: Page) -> None:
    options = page.evaluate(
        "[...document.getElementById('method').options].map((o) => [o.text, o.disabled])"
    )
    assert options == [
        ["the server's", False],
        ["none", False],
        ["suffix", False],
        ["ngram-mod", False],
        ["draft-simple: no draft model was given", True],
    ]


def test_a_setting_out_of_range_is_not_sent(page: Page, server: FakeServer) -> None:
    fill(page, "temperature", "-1")
    ask(page, "count", "document.activeElement.id === 'temperature'")
    assert server.bodies == []


def test_shift_enter_breaks_the_line(page: Page, server: FakeServer) -> None:
    page.evaluate("document.getElementById('message').focus()")
    page.type("first")
    page.press("Enter", shift=True)
    ask(page, "second")
    assert server.bodies[0]["messages"][0]["content"] == "first\nsecond"


@pytest.mark.parametrize(
    ("asked", "problem"),
    [("refuse", "Expected less; found more."), ("break", "The engine ended")],
)
def test_a_failure_is_told(page: Page, asked: str, problem: str) -> None:
    ask(page, asked, "document.getElementById('problem').textContent !== ''")
    assert text_of(page, "problem") == problem
    page.wait_for("!document.getElementById('send').disabled")


def test_a_refused_message_can_be_mended(page: Page, server: FakeServer) -> None:
    ask(page, "refuse", "document.getElementById('message').value === 'refuse'")
    page.wait_for("!document.getElementById('send').disabled")
    fill(page, "message", "")
    ask(page, "count")
    assert server.bodies[1]["messages"] == [{"role": "user", "content": "count"}]


def test_a_server_that_ended_is_told(browser: Browser, server: FakeServer) -> None:
    with served(server.application()) as address:
        page = browser.open(address)
        page.wait_for("document.getElementById('model').textContent.includes('tiny')")
    ask(page, "count", "document.getElementById('problem').textContent !== ''")
    assert text_of(page, "problem") == "The server cannot be reached. It may have ended."
    assert text_of(page, "status") == "Reply failed. Your message is in the field again."
    assert page.evaluate("document.getElementById('message').value") == "count"
    page.call("Page.close")


def test_a_new_chat_forgets(page: Page, server: FakeServer) -> None:
    ask(page, "count")
    page.evaluate("document.getElementById('new-chat').click()")
    assert page.evaluate("document.querySelectorAll('article').length") == 0
    assert page.evaluate("document.getElementById('empty').hidden") is False
    assert page.evaluate("document.activeElement.id") == "message"
    ask(page, "count")
    assert len(server.bodies[1]["messages"]) == 1


def test_a_new_chat_leaves_the_reply_that_runs(page: Page, server: FakeServer) -> None:
    ask(page, "endless", "document.querySelectorAll('article.assistant span').length > 0")
    page.evaluate("document.getElementById('new-chat').click()")
    ask(page, "count")
    assert page.evaluate(f"{REPLY}.textContent") == "One two three four five six seven."
    assert len(server.bodies[1]["messages"]) == 1
    wait_until(lambda: server.left == 1)


def whole_server(service: CharacterService) -> Starlette:
    """The page before the endpoints that it uses, as they are."""
    meters = Meters(("suffix",), 4)
    endpoints = [*openai_chat.routes(service), *props.routes(service, meters)]  # type: ignore[arg-type]
    return Starlette(routes=[*page_routes(), *endpoints])


def test_the_page_understands_the_servers_own_endpoints(browser: Browser) -> None:
    drafted = (WireToken(5, " two", True), WireToken(6, " three", True), WireToken(7, "<b>", False))
    service = CharacterService(
        [
            said("One"),
            WireEvent(1, drafted, " two three<b>", 3, 3, 2, reached=3),
            WireEvent(1, (WireToken(8, "", False),), "", 2, 0, 0),  # drafted, and not verified
            ended(acceptance_at=[1.0, 1.0, 0.0], drafters=["suffix"], target_passes=3),
        ]
    )
    with served(whole_server(service)) as address:
        page = browser.open(address)
        page.wait_for("document.getElementById('model').textContent.includes('scripted')")
        assert "draft-simple: no draft model was given" in text_of(page, "method")
        ask(page, "count")
        assert page.evaluate(f"{REPLY}.textContent") == "One two three<b>"
        tinted = f"[...{REPLY}.querySelectorAll('.drafted')].map((part) => part.textContent)"
        assert page.evaluate(tinted) == [" two three"]
        assert text_of(page, "drafts") == "2 of 5 accepted (40 %)"
        assert text_of(page, "tokens") == "6 in 3 passes"
        assert text_of(page, "in-effect") == "suffix"
        assert text_of(page, "chart-text") == "1: 100 % of 1, 2: 100 % of 1, 3: 0 % of 1"
        assert page.complaints() == []
        page.call("Page.close")


def test_a_key_is_asked_for_and_used(browser: Browser, server: FakeServer, address: str) -> None:
    server.key = "secret-of-this-test"
    page = browser.open(address)
    page.wait_for("!document.getElementById('key-row').hidden")
    for given, found in (("wrong", "does not know"), (server.key, "")):
        fill(page, "key", "")
        page.evaluate("document.getElementById('key').focus()")
        page.type(given)
        page.press("Enter")
        if found:
            page.wait_for(f"document.getElementById('problem').textContent.includes('{found}')")
    page.wait_for("document.getElementById('key-row').hidden")
    assert page.evaluate("document.activeElement.id") == "message"
    ask(page, "count")
    stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    assert server.key not in page.evaluate(stored)
    page.call("Page.close")


def test_nothing_is_asked_of_another_host(page: Page, address: str) -> None:
    ask(page, "count")
    foreign = [url for url in page.addresses() if not url.startswith((address, "data:", "about:"))]
    assert foreign == []


def test_a_screen_reader_meets_names_for_everything(page: Page) -> None:
    ask(page, "count")
    found = page.accessible()
    for role, name in (
        ("button", "Send"),
        ("button", "New chat"),
        ("textbox", "Message"),
        ("combobox", "Speculation"),
        ("spinbutton", "Temperature"),
        ("spinbutton", "Seed"),
        ("region", "Conversation"),
        ("heading", "This reply"),
    ):
        assert (role, name) in found
    [chart] = [name for role, name in found if role in ("image", "img")]
    assert chart == "Acceptance by position 1: 100 % of 3, 2: 50 % of 2, 3: 0 % of 1"
    roles = ("button", "textbox", "combobox", "spinbutton", "link", "image")
    assert not [role for role, name in found if role in roles and not name]


@pytest.mark.parametrize("width", [320, 480, 800, 1200])
def test_nothing_overflows(page: Page, width: int) -> None:
    page.size(width, 700)
    ask(page, "long")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 850, 1200])
def test_the_end_of_a_reply_and_an_error_are_in_sight(page: Page, width: int) -> None:
    page.size(width, 700)
    ask(page, "long")
    bottom = "document.querySelector('article:last-of-type').getBoundingClientRect().bottom"
    cover = "document.getElementById('composer').getBoundingClientRect().top"
    assert page.evaluate(f"{bottom} <= {cover} + 1")
    ask(page, "refuse", "document.getElementById('problem').textContent !== ''")
    problem = "document.getElementById('problem').getBoundingClientRect()"
    assert page.evaluate(f"document.elementFromPoint(50, {problem}.bottom - 5)?.id") == "problem"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(page: Page, scheme: str) -> None:
    page.colours(scheme)
    ask(page, "count")
    for selector in (
        "article.assistant .drafted",
        ".under .drafted",
        ".quiet",
        "#send",
        "dd",
        "label",
        "article p",
    ):
        ratio = page.evaluate(f"({CONTRAST})(document.querySelector('{selector}'))")
        assert ratio >= 4.5, selector
    ask(page, "refuse", "document.getElementById('problem').textContent !== ''")
    assert page.evaluate(f"({CONTRAST})(document.getElementById('problem'))") >= 4.5


# Contrast of an element's text with what lies behind it, as WCAG defines it.
CONTRAST = """(element) => {
  const channels = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let behind = element;
  const solid = (node) => channels(getComputedStyle(node).backgroundColor)[3] !== 0;
  while (behind.parentElement && !solid(behind)) behind = behind.parentElement;
  const [text, back] = [
    luminance(getComputedStyle(element).color),
    luminance(getComputedStyle(behind).backgroundColor),
  ];
  return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
}"""
