"""Texts of grammars, checked before a compiler sees them: size, nesting, and what they are.

The limits keep a hostile text from exhausting the compiler's memory or its stack.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from slipstream.errors import GrammarError
from slipstream.options import SamplingOptions

MOST_BYTES: Final[Mapping[str, int]] = {
    "JSON schema": 1 << 17,
    "regular expression": 1 << 14,
    "grammar": 1 << 17,
}
"""Of a text, by its kind: compiling takes time quadratic in it."""
DEEPEST: Final = 64


def grammar_texts(sampling: SamplingOptions) -> list[tuple[str, str]]:
    """Kind and text of what the output must look like; at most one."""
    texts = (
        ("JSON schema", sampling.json_schema),
        ("regular expression", sampling.regex),
        ("grammar", sampling.grammar),
    )
    return [(kind, text) for kind, text in texts if text is not None]


def check_schema(text: str) -> str:
    """A JSON schema, as an object.

    Raises:
        GrammarError: it is no JSON, no schema, admits nothing, or is too large or too deep.
    """
    require_size("JSON schema", text)
    schema = _parsed(text)
    if schema is True:
        return "{}"
    if schema is False:
        raise GrammarError("a JSON schema that some value meets", "false", "Use another schema.")
    if not isinstance(schema, dict):
        found = {list: "an array", str: "a text", type(None): "null"}.get(type(schema), "a number")
        raise GrammarError("a JSON schema: an object, or true", found, "Give a schema.")
    _require_depth("a JSON schema", _depth(schema))
    return text


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep("a JSON schema", "many more") from None
    except ValueError as error:
        raise GrammarError("a JSON schema", f"no JSON: {error}", "Correct the text.") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _depth(value: Any) -> int:
    """Objects and arrays around the innermost value."""
    depth, level = 0, [value]
    while level:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        level = inner
        depth += 1
    return depth - 1


def check_regex(text: str) -> str:
    """A regular expression in the syntax of Rust's ``regex`` crate; it spans the whole output.

    Raises:
        GrammarError: it is too large.
    """
    require_size("regular expression", text)
    return text


def check_grammar(text: str) -> str:
    """A grammar in llguidance's variant of Lark.

    Raises:
        GrammarError: it is empty, too large, too deep, or GBNF.
    """
    require_size("grammar", text)
    if not text.strip():
        raise GrammarError("a grammar with a rule `start`", "an empty text", "Write the rule.")
    if "::=" in text and "start:" not in text.replace(" ", ""):
        raise GrammarError(
            "a grammar in llguidance's variant of Lark (`start: ...`)",
            "GBNF (`root ::= ...`)",
            "Rewrite it, or give a JSON schema.",
        )
    _require_depth("a grammar", _nesting(text))
    return text


def _nesting(text: str) -> int:
    """The most brackets open at one place, those within quotes left out.

    A bracket in a regular expression counts: that errs on the side of refusing.
    """
    deepest = depth = 0
    quoted = escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == "\n":
            quoted = False
        elif not quoted and character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif not quoted and character in ")]}":
            depth = max(depth - 1, 0)
    return deepest


def require_size(kind: str, text: str) -> None:
    """
    Args:
        kind: a key of ``MOST_BYTES``.

    Raises:
        GrammarError: the text is too large, or no Unicode.
    """
    most = MOST_BYTES[kind]
    size = len(text) if len(text) > most else len(text.encode("utf-8", "surrogatepass"))
    if size > most:
        raise GrammarError(f"a {kind} of at most {most >> 10} KiB", f"{size} bytes", "Shorten it.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise GrammarError(
            f"a {kind} in valid Unicode", "a lone surrogate", "Repair its encoding."
        ) from None


def _require_depth(kind: str, depth: int) -> None:
    if depth > DEEPEST:
        raise _too_deep(kind, str(depth))


def _too_deep(kind: str, found: str) -> GrammarError:
    return GrammarError(f"{kind} of at most {DEEPEST} nested levels", found, "Flatten it.")
