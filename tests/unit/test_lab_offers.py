"""`lab init` beside a server that runs already: it is asked, and the plan says what it can tell."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from slipstream.cli.app import dispatch
from slipstream.lab.contract.plan import Plan
from slipstream.lab.init.plan_template import Choices, parse_runtimes, plan_text
from slipstream.lab.planning.plan_file import parse_plan, read_plan
from slipstream.lab.runtimes.offers import Offer, offer_of

URL = "http://127.0.0.1:8080"
MODELS = {"data": [{"id": "smollm2-135m"}]}


def slipstream_props(*names: str) -> dict[str, Any]:
    methods: dict[str, Any] = {name: {"offered": True} for name in names}
    methods["draft-eagle3"] = {"offered": False, "reason": "no heads"}
    return {"model_path": "x.gguf", "slipstream": {"draft_methods": methods}}


class Served(ThreadingHTTPServer):
    paths: dict[str, Any]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        value = self.server.paths.get(self.path)  # type: ignore[attr-defined]
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(404 if value is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def served() -> Iterator[Served]:
    with Served(("127.0.0.1", 0), Handler) as server:
        server.paths = {"/v1/models": MODELS}
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def written(*offers: Offer, draft: str = "") -> tuple[str, Plan]:
    names = [f"s{i}:openai={URL}" for i in range(len(offers))]
    given = {f"s{i}": offer for i, offer in enumerate(offers)}
    text = plan_text(Choices(parse_runtimes(names), draft=draft, offers=given))
    return text, parse_plan(text)


def test_a_slipstream_offers_its_methods(served: Served) -> None:
    served.paths["/props"] = slipstream_props("suffix", "ngram-simple", "ngram-mod", "own\n[x]")
    offer = offer_of(f"{served.url}/v1")
    assert (offer.answers, offer.flavour, offer.model) == (True, "slipstream", "smollm2-135m")
    assert offer.methods == ("suffix", "ngram-simple", "ngram-mod")
    text, plan = written(offer)
    assert [c.name for c in plan.conditions] == ["suffix", "ngram-simple"]
    assert not any(c.parameters for c in plan.conditions)  # a request cannot set them
    assert '# name = "ngram-mod"' in text
    assert "never `adopt`" in text


def test_a_draft_that_is_offered_needs_a_name() -> None:
    offer = Offer(URL, answers=True, flavour="slipstream", methods=("ngram-cache", "draft-simple"))
    text, plan = written(offer)
    assert [c.name for c in plan.conditions] == ["ngram-cache"]
    assert "--draft-model" in text
    _, plan = written(offer, draft="qwen2.5-coder-0.5b")
    assert [(c.name, c.draft) for c in plan.conditions] == [
        ("ngram-cache", ""),
        ("draft-simple", "draft"),
    ]


def test_of_two_servers_only_what_both_offer() -> None:
    one = Offer(URL, answers=True, flavour="slipstream", methods=("ngram-simple", "suffix"))
    other = Offer(URL, answers=True, flavour="slipstream", methods=("suffix",))
    assert [c.name for c in written(one, other)[1].conditions] == ["suffix"]
    assert written(one, Offer(URL))[1].conditions == ()


@pytest.mark.parametrize(
    ("slots", "drafts", "says"),
    [
        ([{"speculative": False}], "", "measures it as it runs, under the name `none`"),
        ([{"speculative": True}], "drafting", "this plan measures nothing"),
        ([{"params": {"speculative.types": "ngram-mod"}}], "ngram-mod", "started with ngram-mod"),
        ([{"params": {"speculative.types": "a\n[b]"}}], "drafting", "started with drafting"),
    ],
)
def test_llama_servers(served: Served, slots: list[Any], drafts: str, says: str) -> None:
    served.paths |= {"/props": {"build_info": "b1-abcdef1"}, "/slots": slots}
    offer = offer_of(served.url)
    assert (offer.flavour, offer.methods, offer.drafts) == ("llama.cpp", (), drafts)
    text, plan = written(offer)
    assert plan.conditions == ()
    assert says in " ".join(text.replace("\n#", "").split())
    assert "--runtime llama-server=PATH" in text


def test_a_server_of_no_known_kind(served: Served) -> None:
    served.paths = {"/v1/models": {"data": [{"id": "x" * 999}]}}
    offer = offer_of(served.url)
    assert (offer.answers, offer.flavour, offer.model) == (True, "unknown", "")
    assert "The server at" in offer.limits()
    assert "gives no verdict" in offer.limits()


def test_a_model_of_this_machine_is_named_by_its_file(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    served.paths = {"/v1/models": {"data": [{"id": "m"}]}, "/props": {"model_path": str(file)}}
    assert offer_of(served.url).model == str(file)
    served.paths["/props"] = {"model_path": "/no/such.gguf"}
    assert offer_of(served.url).model == "m"


def test_init_beside_a_slipstream(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    served.paths["/props"] = slipstream_props("ngram-simple", "suffix")
    assert dispatch(["lab", "init", "--runtime", f"openai={served.url}", "--json"]) == 0
    shown = capsys.readouterr().out
    assert "2 conditions beside `none`" in shown
    assert "each request chooses how it drafts" in " ".join(shown.split())
    assert json.loads(shown.splitlines()[-1])["conditions"] == ["ngram-simple", "suffix"]
    assert read_plan(tmp_path / "plan.toml").target.model == "smollm2-135m"


def test_init_where_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dispatch(["lab", "init", "--runtime", "openai=http://127.0.0.1:1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "0 conditions beside `none`" in shown
    assert "Nobody answers at http://127.0.0.1:1" in shown
    assert "measures `none` alone and gives no verdict" in shown
    assert "Nobody answers" in (tmp_path / "plan.toml").read_text()
