"""Bodies of requests: what is read, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from slipstream.errors import RequestError, SlipstreamError, UnsupportedError
from slipstream.server import bodies
from slipstream.server.bodies import ANY, document, parse


class Inner(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    colour: str = "red"


class Thing(msgspec.Struct, kw_only=True):
    name: str
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    share: float = 0.5
    inner: Inner | None = None
    parts: list[Inner] = []
    anything: Any = None


NEUTRAL = {"user": ANY, "store": False, "tier": ("auto", "default"), "modes": (["text"],)}


def read(value: Any) -> Thing:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return parse(Thing, data, NEUTRAL)


def test_values_defaults_and_null() -> None:
    thing = read({"name": "a", "count": None, "share": 1, "inner": {"colour": "blue"}})
    assert (thing.name, thing.count, thing.share) == ("a", 1, 1.0)
    assert thing.inner == Inner(colour="blue")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"name": "a", "cuont": 2}, ["`cuont`", "`count`"]),
        ({"name": "a", "inner": {"color": "x"}}, ["`color`", "`colour`"]),
        ({"name": "a", "parts": [{}, {"colr": "x"}]}, ["`colr`", "`colour`"]),
        ({"count": 2}, ["`name`", "nothing"]),
        ({"name": 3}, ["`name`", "str", "int"]),
        ({"name": "a", "count": 10}, ["`count`", "9", "found 10"]),
        ({"name": "a", "count": 10**400}, ["`count`"]),
        ({"name": "a", "parts": [{"colour": 1}]}, ["`parts[0].colour`"]),
        ({"name": "a", "x" * 5000: 1}, ["xxx", "..."]),
        ([1], ["object", "list"]),
        (b"", ["JSON"]),
        (b"{", ["JSON"]),
        (b'{"name": "a"} x', ["JSON"]),
        (b'{"name": "a", "share": NaN}', ["NaN"]),
        (b'{"name": "a", "share": -Infinity}', ["Infinity"]),
        (b'{"name": "a", "share": 1e999}', ["too large"]),
        (b'{"name": "a", "count": ' + b"1" * 5000 + b"}", ["JSON"]),
        (b'{"name": "a", "name": "b"}', ["`name` twice"]),
        (b'{"name": "a", "anything": {"k": 1, "k": 1}}', ["`k` twice"]),
        (b'{"name": "\xff"}', ["UTF-8"]),
        (b'{"name": "\\ud800"}', ["surrogate"]),
        (b'{"name": "a", "anything": [{"\\udc00": 1}]}', ["surrogate"]),
        (b'{"name": "a", "anything": ' + b"[" * 200 + b"]" * 200 + b"}", ["nested"]),
        (b"[" * 1_000_000, ["nested"]),
        (b'{"name": "a", "anything": [' + b"1," * (1 << 20) + b"1]}", ["values"]),
    ],
)
def test_refusals(value: Any, words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        read(value)
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 400


def test_no_key_is_proposed_that_is_not_alike() -> None:
    with pytest.raises(RequestError, match="Leave it out"):
        read({"name": "a", "zzqqx": 1})


def test_a_body_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES", 20)
    with pytest.raises(RequestError, match="at most 20 bytes"):
        read({"name": "a" * 20})


def test_surrogate_pairs_are_text() -> None:
    assert read(b'{"name": "\\ud83d\\ude00"}').name == "😀"


def test_neutral_values() -> None:
    idle = {"user": {"any": 1}, "store": False, "tier": "auto", "modes": ["text"]}
    assert read({"name": "a", **idle}).name == "a"
    assert read({"name": "a", "store": None, "tier": None}).name == "a"


@pytest.mark.parametrize(
    "idle", [{"store": True}, {"store": 0}, {"tier": "flex"}, {"modes": ["text", "audio"]}]
)
def test_keys_without_effect_may_ask_for_nothing(idle: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        read({"name": "a", **idle})
    assert f"`{next(iter(idle))}`" in caught.value.expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
KEYS = st.sampled_from(["name", "count", "share", "inner", "parts", "user", "store", "nam"])


def outcome(action: Callable[[], Any]) -> Any:
    """What it returns, or the error of ours that it raises."""
    try:
        return action()
    except SlipstreamError as error:
        return error


@given(st.dictionaries(KEYS | st.text(max_size=4), VALUES, max_size=6))
def test_any_object_is_read_or_refused(value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    thing = outcome(lambda: parse(Thing, data, NEUTRAL))
    if isinstance(thing, SlipstreamError):
        assert thing.http_status in (400, 422)
        return
    assert thing.name == value["name"]
    assert set(value) <= {"name", "count", "share", "inner", "parts", "anything", *NEUTRAL}


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read = outcome(lambda: document(data))
    if isinstance(read, SlipstreamError):
        assert isinstance(read, RequestError)
        assert "\n" not in str(read)
    else:
        assert isinstance(read, dict)
