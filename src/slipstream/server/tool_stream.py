"""Text of an output split into content and function calls, as it comes.

However the text is cut into pieces, the parts joined are the same: everything that is decided is
decided at one character. Text is held back only while it may begin a call, white space before it
included. What turns out to be no call is content, as the model wrote it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from slipstream.server.call_scanner import CallPart, CallScanner

Part = str | CallPart
_SPACES: Final = " \t\r\n"
_MOST_AT_ONCE: Final = 4096  # characters: what is held is copied for each call found


class ToolStream(Protocol):
    """Splits one output."""

    def feed(self, text: str) -> list[Part]:
        """What is certain with this text: content (not empty) and pieces of calls."""

    def finish(self) -> list[Part]:
        """The rest, at the end of the output."""


def joined(parts: list[Part]) -> list[Part]:
    """Without empty texts, and content in a row as one text."""
    made: list[Part] = []
    for part in parts:
        last = made[-1] if made else None
        if isinstance(part, str) and isinstance(last, str):
            made[-1] = last + part
        elif part != "":
            made.append(part)
    return made


def scan(scanner: CallScanner, text: str) -> str:
    """Feed a scanner until its call is over; what is left of the text."""
    for place, character in enumerate(text):
        scanner.feed(character)
        if scanner.failed or scanner.done:
            return text[place + 1 :]
        if scanner.overrun:
            return text[place:]
    return ""


class TaggedStream:
    """Calls between two tags, anywhere in the text; white space around them is dropped.

    Args:
        opening, closing: the tags; a closing tag that is missing is not missed.
    """

    def __init__(self, opening: str, closing: str) -> None:
        self._opening = opening
        self._closing = closing
        self._held = ""
        self._gap = ""  # white space before the call that is being read
        self._calls = 0
        self._scanner: CallScanner | None = None
        self._at_closing = False
        self._after_call = False

    def feed(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for start in range(0, len(text), _MOST_AT_ONCE):
            self._held += text[start : start + _MOST_AT_ONCE]
            self._read(parts)
        return joined(parts)

    def _read(self, parts: list[Part]) -> None:
        goes_on = True
        while goes_on and self._held:
            if self._scanner is not None:
                goes_on = self._read_call(self._scanner, parts)
            elif self._at_closing:
                goes_on = self._read_closing()
            else:
                goes_on = self._read_text(parts)

    def finish(self) -> list[Part]:
        parts: list[Part] = []
        if self._scanner is not None and not self._scanner.certain:
            parts.append(self._gap + self._opening + "".join(self._scanner.raw))
        elif self._scanner is None and not self._at_closing:
            parts.append(self._held)
        self._held, self._scanner = "", None
        return joined(parts)

    def _read_text(self, parts: list[Part]) -> bool:
        if self._after_call:
            self._held = self._held.lstrip(_SPACES)
            self._after_call = not self._held
        content, found, rest = self._held.partition(self._opening)
        if found:
            kept = content.rstrip(_SPACES)
            self._gap, self._held = content[len(kept) :], rest
            self._scanner = CallScanner(self._calls)
            parts.append(kept)
            return True
        sure = len(content) - _beginning(content, self._opening)
        sure = len(content[:sure].rstrip(_SPACES))
        parts.append(content[:sure])
        self._held = content[sure:]
        return False

    def _read_call(self, scanner: CallScanner, parts: list[Part]) -> bool:
        self._held = scan(scanner, self._held)
        parts += scanner.take()
        if scanner.failed:
            parts.append(self._gap + self._opening + "".join(scanner.raw))
            self._scanner = None
        elif scanner.done or scanner.overrun:
            self._calls += 1
            self._scanner, self._at_closing = None, True
        return True

    def _read_closing(self) -> bool:
        rest = self._held.lstrip(_SPACES)
        if rest.startswith(self._closing):
            self._held = rest[len(self._closing) :]
        elif self._closing.startswith(rest):
            return False
        self._at_closing, self._after_call = False, True
        return True


class BareStream:
    """Calls that are the whole output, perhaps after a mark; other output is content.

    Args:
        mark: text that may stand before a call.
        names: of the functions that may be called; other objects are content.
    """

    def __init__(self, mark: str, names: Collection[str]) -> None:
        self._mark = mark
        self._names = names
        self._held = ""
        self._gap = ""
        self._calls = 0
        self._scanner: CallScanner | None = None
        self._content = False

    def feed(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for start in range(0, len(text), _MOST_AT_ONCE):
            self._held += text[start : start + _MOST_AT_ONCE]
            self._read(parts)
        return joined(parts)

    def _read(self, parts: list[Part]) -> None:
        goes_on = True
        while goes_on and self._held:
            if self._content:
                parts.append(self._held)
                self._held = ""
            elif self._scanner is not None:
                self._read_call(self._scanner, parts)
            else:
                goes_on = self._read_between()

    def finish(self) -> list[Part]:
        parts: list[Part] = []
        if self._scanner is not None and not self._scanner.certain:
            parts.append(self._gap + "".join(self._scanner.raw))
        elif self._scanner is None:
            parts.append(("" if self._calls else self._gap) + self._held)
        self._held, self._gap, self._scanner = "", "", None
        return joined(parts)

    def _read_between(self) -> bool:
        """Before the first call, or after one: on to the next, or to content."""
        separators = _SPACES + (";" if self._calls else "")
        rest = self._held.lstrip(separators)
        self._gap += self._held[: len(self._held) - len(rest)]
        self._held = rest
        if rest.startswith(self._mark):
            self._held, self._gap = rest[len(self._mark) :], ""
        elif rest.startswith("{"):
            self._scanner = CallScanner(self._calls, self._names)
        elif self._mark.startswith(rest):
            return False
        else:
            self._become_content()
        return True

    def _read_call(self, scanner: CallScanner, parts: list[Part]) -> None:
        self._held = scan(scanner, self._held)
        parts += scanner.take()
        if scanner.failed:
            self._scanner = None
            self._held = "".join(scanner.raw) + self._held
            self._become_content()
        elif scanner.done or scanner.overrun:
            self._calls += 1
            self._scanner, self._gap = None, ""

    def _become_content(self) -> None:
        self._content = True
        self._held, self._gap = self._gap + self._held, ""


def _beginning(text: str, tag: str) -> int:
    """Length of the longest end of a text that begins a tag without being it."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
