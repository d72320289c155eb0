"""JSON bodies of requests: from bytes that anybody may have sent to a struct.

A key is known to the endpoint, or it is refused with the nearest known name: a misspelt option that
is dropped in silence is a wrong result. Keys of the protocols that mean nothing here are accepted
at the values that ask for nothing.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from slipstream.errors import RequestError, UnsupportedError

MOST_BYTES: Final = 64 << 20
MOST_VALUES: Final = 1 << 20
DEEPEST: Final = 100
SHOWN_CHARACTERS: Final = 80
NEAR: Final = 0.55  # so much alike a key and a known one are where the one may stand for the other

ANY: Final = object()
"""For ``neutral``: any value asks for nothing (a tag that a client sends for its own sake)."""

Neutral = Mapping[str, Any]
"""Key -> the value that asks for nothing, a tuple of such values, or ``ANY``."""

Body = TypeVar("Body", bound=msgspec.Struct)

_FAULT = re.compile(r"(?P<fault>.*?)(?: - at `\$\.?(?P<place>.*)`)?", re.DOTALL)


def parse(struct: type[Body], data: bytes, neutral: Neutral | None = None) -> Body:
    """The struct that a body describes; a key with null counts as left out.

    Args:
        neutral: keys that are known and have no effect.

    Raises:
        RequestError: no JSON object, too large or too deep, a key twice or unknown, or a value of
            another type or out of bounds.
        UnsupportedError: a key of ``neutral`` asks for something.
    """
    return fill(struct, document(data), neutral)


class ReadBody(bytes):
    """A body whose JSON was read already.

    Attributes:
        values: see ``document``.
    """

    values: dict[str, Any]


def read_beside(data: bytes) -> ReadBody:
    """A body read such that other threads run meanwhile; errors as ``parse``."""
    body = ReadBody(data)
    body.values = document(data, whole_number=_whole_number)
    return body


def _whole_number(text: str) -> int:
    """Python's parser lets other threads run for a function that is not its own."""
    return int(text)


def document(data: bytes, whole_number: Callable[[str], int] | None = None) -> dict[str, Any]:
    """The JSON object in a body, its values plain; errors as ``parse``.

    Args:
        whole_number: makes an integer of its digits; None = the parser's own.
    """
    if isinstance(data, ReadBody):
        return data.values
    if len(data) > MOST_BYTES:
        raise RequestError(f"a body of at most {MOST_BYTES} bytes", f"{len(data)}", "Shorten it.")
    if data.count(b",") > MOST_VALUES:
        raise RequestError(
            f"a body of at most {MOST_VALUES} values", "more commas than that", "Shorten it."
        )
    value = _decoded(data, whole_number)
    if not isinstance(value, dict):
        raise RequestError("a JSON object as the body", type(value).__name__, "Send an object.")
    if data.count(b"[") + data.count(b"{") > DEEPEST or b"\\u" in data:
        _check_values(value)
    return value


def fill(
    struct: type[Body],
    keys: Mapping[str, Any],
    neutral: Neutral | None = None,
    also: Collection[str] = (),
) -> Body:
    """The struct with the values of some keys; errors as ``parse``.

    Args:
        keys: of ``document``.
        also: known keys that were read already, for the hint.
    """
    known, idle = _field_names(struct), neutral or {}
    given: dict[str, Any] = {}
    for key, value in keys.items():
        if key in known:
            if value is not None:
                given[key] = value
        elif key in idle:
            require_neutral(key, value, idle[key])
        else:
            raise unknown_key(key, [*known, *idle, *also])
    try:
        return msgspec.convert(given, struct)
    except (msgspec.ValidationError, OverflowError) as error:
        raise _mismatch(struct, str(error), given) from None


def unknown_key(key: str, names: Collection[str]) -> RequestError:
    """The error for a key that is none of ``names``."""
    near = difflib.get_close_matches(key[:64], names, 1, NEAR)
    remedy = f"Did you mean `{near[0]}`?" if near else "Leave it out."
    return RequestError("a key that is known here", f"`{shown(key)}`", remedy)


def require_neutral(key: str, value: Any, neutral: Any) -> None:
    """
    Raises:
        UnsupportedError: the value of a known key asks for something.
    """
    if value is None or neutral is ANY:
        return
    choices = neutral if isinstance(neutral, tuple) else (neutral,)
    if not any(_same(value, choice) for choice in choices):
        wanted = " or ".join(shown(choice) for choice in choices if choice is not None)
        raise UnsupportedError(
            f"`{key}` to be left out{f', or {wanted}' if wanted else ''}",
            shown(value),
            "It is known, and nothing here would obey it.",
        )


def shown(value: Any) -> str:
    """A value for a message: short, on one line."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _same(value: Any, choice: Any) -> bool:
    return isinstance(value, bool) == isinstance(choice, bool) and bool(value == choice)


def json_value(
    text: str,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
    whole_number: Callable[[str], int] | None = None,
) -> Any:
    """The value of a JSON text, without what Python's parser adds: NaN and infinite numbers.

    Args:
        pairs: makes an object of its keys and values; None = a dictionary.
        whole_number: see ``document``.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is too deep.
    """
    return json.loads(
        text,
        object_pairs_hook=pairs,
        parse_constant=_refuse_constant,
        parse_float=_finite,
        parse_int=whole_number,
    )


def _decoded(data: bytes, whole_number: Callable[[str], int] | None) -> Any:
    try:
        return json_value(data.decode(), _distinct, whole_number)
    except UnicodeDecodeError:
        raise RequestError("a body in UTF-8", "other bytes", "Encode it as UTF-8.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise RequestError(
            "a JSON object as the body", f"no JSON: {shown(str(error))}", "Correct the text."
        ) from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise RequestError("each key once", f"`{shown(key)}` twice", "Remove one.")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _check_values(value: Any) -> None:
    """Depth, and no half of a surrogate pair, which no text can hold."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise _too_deep()
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.keys()
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            elif isinstance(item, str):
                _require_unicode(item)
        level = inner


def _require_unicode(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RequestError(
                "text in valid Unicode", "half of a surrogate pair", "Repair its encoding."
            ) from None


def _too_deep() -> RequestError:
    return RequestError(f"at most {DEEPEST} nested levels", "more", "Flatten the body.")


@cache
def _field_names(struct: type[msgspec.Struct]) -> dict[str, None]:
    return dict.fromkeys(field.encode_name for field in msgspec.structs.fields(struct))


def _mismatch(struct: type[msgspec.Struct], message: str, given: Mapping[str, Any]) -> RequestError:
    """msgspec's message in our terms; a place is written ``messages[0].role``."""
    found = _FAULT.fullmatch(message)
    assert found is not None
    fault, place = found["fault"], found["place"]
    subject = f"`{shown(place)}`" if place else "the body"
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", fault, re.DOTALL):
        return unknown_key(match[1], _all_names(struct))
    if match := re.fullmatch(r"Object missing required field `(.*)`", fault):
        where = f" in {subject}" if place else ""
        return RequestError(f"`{match[1]}`{where}", "nothing", "Give it.")
    if match := re.fullmatch(r"Expected (.*), got (.*)", fault, re.DOTALL):
        return RequestError(f"{subject} to be {match[1]}", shown(match[2]), "Correct it.")
    if match := re.fullmatch(r"Expected (.*)", fault, re.DOTALL):
        value = _at(given, place)
        told = "another value" if value is None else shown(value)
        return RequestError(f"{subject} to be {match[1]}", told, "Correct it.")
    return RequestError(f"{subject} to be of a known value", shown(fault), "Correct it.")


def _at(given: Mapping[str, Any], place: str | None) -> Any:
    """The value at msgspec's place; None where it cannot be found."""
    value: Any = given
    for step in re.findall(r"[^.\[\]]+", place or ""):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (LookupError, TypeError, ValueError):
            return None
    return value if place else None


@cache
def _all_names(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a struct and of those inside it."""
    return tuple(dict.fromkeys(_names_within(inspect.type_info(struct), set())))


def _names_within(kind: inspect.Type, seen: set[type]) -> Iterator[str]:
    if isinstance(kind, inspect.StructType) and kind.cls not in seen:
        seen.add(kind.cls)
        for field in kind.fields:
            yield field.encode_name
            yield from _names_within(field.type, seen)
    elif isinstance(kind, inspect.UnionType):
        for member in kind.types:
            yield from _names_within(member, seen)
    elif isinstance(kind, inspect.Metadata):
        yield from _names_within(kind.type, seen)
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield from _names_within(kind.item_type, seen)
