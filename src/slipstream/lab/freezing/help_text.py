"""What a program's ``--help`` says: its flags, and whether a command line agrees with them.

It reads the layouts of llama.cpp's programs (``-c,    --ctx-size N      text``, a flag's text
continued on indented lines) and of argparse (``  -c, --context N   text (also --ctx-size)``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOST_CHARACTERS: Final = 4 << 20
MOST_INDENT: Final = 10
"""Of a flag's first line; what continues its text is further to the right."""
_NAME: Final = re.compile(r"-{1,2}[A-Za-z][\w-]*", re.ASCII)
_DEFAULT: Final = re.compile(r"\(default: (.*?)\)(?=[\s.\[]|$)|\[([^\[\]]+)\](?: \(also|$)")
_ALLOWED: Final = re.compile(r"allowed values: ([\w,. -]+?)(?: \(default|$)")
_ENCLOSED: Final = re.compile(r"[\[{<]([^\[\]{}<>]*)[\]}>]$")
_ALSO: Final = re.compile(r"\(also ([^)]*)\)")


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        names: all spellings.
        value: hint of its value; empty = it takes none.
        text: what the help says of it, on one line.
        default: as the help tells it; empty = not told.
        choices: values that it may have; empty = any. A list has them with commas.
        removed: that it is only named to say that it is gone.
    """

    names: tuple[str, ...]
    value: str
    text: str
    default: str
    choices: tuple[str, ...]
    removed: bool


class Help:
    """
    Attributes:
        flags: name -> flag, each under all its spellings; the first of a name counts, as a help
            may go on with those of other programs.
    """

    def __init__(self, text: str) -> None:
        found: dict[str, Flag] = {}
        for flag in _flags(text[:MOST_CHARACTERS]):
            for name in flag.names:
                found.setdefault(name, flag)
        self.flags: Mapping[str, Flag] = found

    def has(self, name: str) -> bool:
        """Whether a flag is there and works."""
        flag = self.flags.get(name)
        return flag is not None and not flag.removed

    def first(self, *names: str) -> str | None:
        """The first of the names that is there and works."""
        return next((name for name in names if self.has(name)), None)

    def default(self, name: str) -> str:
        """Of a flag, as the help tells it; empty where it does not."""
        flag = self.flags.get(name)
        return "" if flag is None else flag.default

    def faults(self, words: Sequence[str]) -> tuple[str, ...]:
        """What is wrong with a command line, by the help alone; empty = nothing."""
        return tuple(self._faults(list(words)))

    def _faults(self, words: list[str]) -> Iterator[str]:
        while words:
            word, *words = words
            name, given, value = word.partition("=")
            flag = self.flags.get(word) or (self.flags.get(name) if given else None)
            if flag is None:
                yield self._unknown(word)
            elif flag.removed:
                yield f"its help says of `{name}`: {flag.text:.120}"
            elif flag.value and not given:
                if not words or self.flags.get(words[0]):
                    yield f"`{word}` lacks its value"
                    continue
                value, *words = words
            yield from self._value_faults(flag, name, value)

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"`{word:.80}` belongs to no flag"
        near = difflib.get_close_matches(word[:80], self.flags, 1, 0.5)
        hint = f" (nearest: `{near[0]}`)" if near else ""
        return f"its help has no `{word:.80}`{hint}"

    def _value_faults(self, flag: Flag | None, name: str, value: str) -> Iterator[str]:
        if flag is None or flag.removed or not flag.choices or not value:
            return
        wrong = [part for part in value.split(",") if part not in flag.choices]
        if wrong:
            yield f"`{name}` may not be `{wrong[0]:.80}`; its help has {', '.join(flag.choices)}"


def _flags(text: str) -> Iterator[Flag]:
    for first, *rest in _paragraphs(text):
        line = re.sub(r",\s+(?=-)", ", ", first.strip())
        head, _, tail = _parted(line)
        names, value = _names(head)
        if names:
            yield _flag(names, value, " ".join(" ".join([tail, *rest]).split()))


def _paragraphs(text: str) -> Iterator[list[str]]:
    """A flag's first line and those that continue it."""
    found: list[str] = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent <= MOST_INDENT and _NAME.match(line.lstrip()):
            if found:
                yield found
            found = [line]
        elif found and indent > MOST_INDENT:
            found.append(line)
        elif found:
            yield found
            found = []
    if found:
        yield found


def _parted(line: str) -> tuple[str, str, str]:
    """Names and value, the gap, the text: parted by two spaces or more."""
    match = re.search(r"\s{2,}", line)
    if match is None:
        return line, "", ""
    return line[: match.start()], match[0], line[match.end() :]


def _names(head: str) -> tuple[tuple[str, ...], str]:
    """Spellings and the hint of the value, which may stand after each or after the last."""
    names: list[str] = []
    hint = ""
    for part in re.split(r",? (?=-{1,2}[A-Za-z])|, (?=-)", head):
        name, _, rest = part.strip().partition(" ")
        if _NAME.fullmatch(name):
            names.append(name)
            hint = rest.strip() or hint
    return tuple(names), hint


def _flag(names: tuple[str, ...], value: str, text: str) -> Flag:
    default = _DEFAULT.search(text)
    also = [name for match in _ALSO.finditer(text) for name in _NAME.findall(match[1])]
    return Flag(
        names=tuple(dict.fromkeys([*names, *also])),
        value=value,
        text=text,
        default="" if default is None else (default[1] or default[2] or "").strip(),
        choices=_choices(value, text),
        removed="has been removed" in text,
    )


def _choices(value: str, text: str) -> tuple[str, ...]:
    enclosed = _ENCLOSED.search(value)
    inner = "" if enclosed is None else enclosed[1].replace(" ", "")
    allowed = _ALLOWED.search(text)
    if allowed:
        return tuple(part.strip() for part in allowed[1].split(","))
    if re.fullmatch(r"[\w.-]+(?:[|,][\w.-]+)+", inner):
        found = tuple(re.split(r"[|,]", inner))
        # <0...100> is a range, <dev1,dev2,..> an example
        return () if ".." in inner or inner.endswith("1,dev2") else found
    if re.fullmatch(r"[a-z][\w-]*(?:,[a-z][\w-]*){2,}", value):
        return tuple(value.split(","))
    return ()
