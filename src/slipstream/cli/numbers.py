"""Numbers in a verb's own arguments: ``8``, or row counts such as ``1,2,4``."""

from __future__ import annotations

from slipstream.errors import OptionError

MOST_ROWS = 512


def whole_number(flag: str, text: str, least: int = 1, most: int = 1_000_000) -> int:
    """The number in ``text``.

    Raises:
        OptionError: it is not a whole number in the range.
    """
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        expected = f"`{flag}` to be a whole number from {least} to {most}"
        raise OptionError(expected, f"`{text}`", f"Correct {flag}.")
    return number


def parse_row_counts(text: str) -> list[int]:
    """Distinct counts in the order given.

    Raises:
        OptionError: not whole numbers from 1 to 512.
    """
    try:
        counts = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        counts = []
    if not counts or min(counts) < 1 or max(counts) > MOST_ROWS:
        expected = f"`--rows`: whole numbers from 1 to {MOST_ROWS}, separated by commas"
        raise OptionError(expected, f"`{text}`", "For example `--rows 1,2,4`.")
    return counts


def parse_row_count(text: str) -> int:
    """One count; errors as ``parse_row_counts``."""
    counts = parse_row_counts(text)
    if len(counts) != 1:
        raise OptionError("one row count", f"`{text}`", "For example `--rows 8`.")
    return counts[0]
