"""The built-in page's files: what is served, under which policy, and what it may never contain."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

pytest.importorskip("starlette")

from starlette.applications import Starlette
from starlette.testclient import TestClient

from slipstream.server.page import FILES, POLICY, routes


@pytest.fixture
def client() -> TestClient:
    return TestClient(Starlette(routes=routes()))


def source(name: str) -> str:
    return (files("slipstream.server.page") / name).read_text()


def scripts() -> str:
    return "".join(source(name) for name, kind in FILES.values() if kind == "text/javascript")


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_served_under_the_policy(client: TestClient, path: str) -> None:
    name, kind = FILES[path]
    reply = client.get(path)
    assert reply.status_code == 200
    assert reply.text == source(name)
    assert reply.headers["content-type"] == f"{kind}; charset=utf-8"
    assert reply.headers["content-security-policy"] == POLICY
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-cache"


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    allowed = dict(part.split(" ", 1) for part in POLICY.split("; "))
    assert allowed["default-src"] == "'none'"
    assert not re.search(r"unsafe|\*|https?:", POLICY)
    assert allowed["require-trusted-types-for"] == "'script'"
    assert allowed["frame-ancestors"] == "'none'"


def test_only_reading_is_possible(client: TestClient) -> None:
    assert client.post("/").status_code == 405
    assert client.get("/page/../index.html").status_code == 404
    assert client.get("/page/__init__.py").status_code == 404


def test_no_file_names_another_host_or_writes_markup() -> None:
    for name, _ in FILES.values():
        text = source(name).replace("http://www.w3.org/2000/svg", "")  # a name, never fetched
        assert not re.search(r"(https?:)?//[a-z]", text), name
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function",
        scripts(),
    )
    assert not re.search(r"\son[a-z]+=|\sstyle=|<style|javascript:", source("index.html"))


def test_every_element_that_the_script_names_exists_once() -> None:
    page, script = source("index.html"), scripts()
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))
    named = re.findall(r'(?:byId|say)\("([^"]+)"', script)
    assert named
    assert set(named) <= set(identifiers)


def test_every_control_has_a_label() -> None:
    page = source("index.html")
    controls = re.findall(r'<(?:input|select|textarea)[^>]*\bid="([^"]+)"', page)
    assert len(controls) == 6
    for control in controls:
        assert f'<label for="{control}">' in page
