"""llama.cpp's two ends of an output that editors ask for: at a line of less indentation, and by
time."""

from __future__ import annotations

from typing import Final

_BLANKS: Final = " \t"


class LineLimits:
    """Watches one output and cuts it where it is to end.

    Args:
        indent: least blanks at the beginning of every line after the first; 0 = any. Empty lines
            have no indentation; they are held back until the next line is known, and go with it.
        most_s: seconds after the first text from which it ends at its next line end; 0 = never.

    Attributes:
        ended: whether the output is over; what comes after is to be dropped.
    """

    def __init__(self, indent: int = 0, most_s: float = 0.0) -> None:
        self._indent = indent
        self._most_s = most_s
        self._began_s: float | None = None
        self._held = ""
        self.ended = False

    @property
    def idle(self) -> bool:
        """Whether nothing is limited."""
        return self._indent == 0 and self._most_s == 0.0

    def push(self, text: str, now_s: float) -> str:
        """What may be shown now.

        Args:
            text: new, perhaps empty.
            now_s: clock reading.
        """
        if self.ended:
            return ""
        if self._began_s is None and text:
            self._began_s = now_s
        shown = self._indented(text) if self._indent else text
        if not self.ended and self._late(now_s) and "\n" in shown:
            self.ended = True
            shown = shown[: shown.index("\n") + 1]
        return shown

    def flush(self) -> str:
        """What is left when the output ends by itself."""
        held, self._held = self._held, ""
        return "" if self.ended else held

    def _late(self, now_s: float) -> bool:
        return (
            self._most_s > 0 and self._began_s is not None and now_s - self._began_s > self._most_s
        )

    def _indented(self, text: str) -> str:
        """The text up to the first line of less indentation; its last line may be held back."""
        text, self._held = self._held + text, ""
        start = text.find("\n")
        while start >= 0:
            stop = _line_stop(text, start)
            if stop is None:
                text, self._held = text[:start], text[start:]
                return text
            if stop - text.rindex("\n", 0, stop) - 1 < self._indent:
                self.ended = True
                return text[:start]
            start = text.find("\n", stop)
        return text


def _line_stop(text: str, start: int) -> int | None:
    """Where the first character stands that is no blank or line end; None = not yet there."""
    for place in range(start, len(text)):
        if text[place] not in _BLANKS and text[place] != "\n":
            return place
    return None
