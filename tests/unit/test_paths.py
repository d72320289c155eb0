"""Texts that name files, and files that nobody vouches for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipstream.errors import OptionError, RequestError
from slipstream.paths import path_fault, path_of, read_file, shown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\0b", "NUL"),
        ("x" * 5000, "4095 bytes"),
        ("x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
        ("a/" * 2048, "4095 bytes"),
        ("~nosuchuser/x", "no home"),
        ("\ud800", "no text"),
    ],
)
def test_a_text_that_is_no_path(text: str, found: str) -> None:
    with pytest.raises(OptionError) as caught:
        path_of(text, "`binary`")
    assert caught.value.expected.startswith("`binary`")
    assert found in caught.value.found
    assert len(caught.value.found) < 300


def test_a_text_that_may_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of")
    assert path_of("~/a b", "x") == Path("/home/of/a b")
    assert path_of("x" * 255, "x").name == "x" * 255
    assert path_fault("") == ""


def test_a_long_text_is_shown_by_its_beginning() -> None:
    assert shown("ab", 2) == "ab"
    assert shown("a" * 1000, 3) == "aaa.. (1,000 characters)"


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"four")
    assert read_file(path, "a file", 4) == b"four"
    with pytest.raises(RequestError) as caught:
        read_file(path, "a file", 3)
    assert caught.value.expected == "a file of at most 3 bytes"


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "fifo":
        os.mkfifo(path)
    path = {"fifo": path, "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    with pytest.raises(OptionError) as caught:
        read_file(path, "a plan", 1 << 40, OptionError)
    assert caught.value.expected == "a plan in a regular file"
    assert {"fifo": "a pipe", "device": "a device", "folder": "a folder"}[kind] in str(caught.value)


@pytest.mark.parametrize(
    ("name", "found"), [("none", "No such file"), ("x" * 300, "too long"), ("a\0b", "NUL")]
)
def test_why_a_file_cannot_be_read(tmp_path: Path, name: str, found: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_file(tmp_path / name, "a plan", 4)
    assert found in caught.value.found
