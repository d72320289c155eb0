"""Detect text that no figure should rest on: empty, looping, or full of template markers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_MARKERS = re.compile(
    r"<\|(im_start|im_end|endoftext|eot_id|start_header_id)\|>|<(start|end)_of_turn>"
)
_LONGEST_PERIOD = 64
_REPEATS = 4
_LOOP_SHARE = 0.5
_FEW_DISTINCT = 0.08


def _tail_loop(ids: Sequence[int]) -> int | None:
    """Period of a loop that fills at least half of the ids and at least four rounds at the end."""
    for period in range(1, min(_LONGEST_PERIOD, len(ids) // _REPEATS) + 1):
        length = period
        while length < len(ids) and ids[-1 - length] == ids[-1 - length + period]:
            length += 1
        if length >= max(_REPEATS * period, int(_LOOP_SHARE * len(ids))):
            return period
    return None


def degenerate_reason(text: str, ids: Sequence[int]) -> str | None:
    """Why this output is unfit for a figure, or None.

    Args:
        text: the generated text.
        ids: its token ids.

    Four rules: nothing but white space; template markers inside the text (the chat template is
    missing or wrong); a loop of up to 64 tokens that fills half of the output; fewer distinct
    tokens than 8 % of an output of 64 tokens or more.
    """
    if not text.strip():
        return "empty"
    marker = _MARKERS.search(text)
    if marker:
        return f"template marker {marker.group(0)} in the text"
    if len(ids) >= 16:
        period = _tail_loop(ids)
        if period is not None:
            return f"loop of {period} token{'s' if period > 1 else ''}"
    if len(ids) >= 64 and len(Counter(ids)) < _FEW_DISTINCT * len(ids):
        return f"only {len(Counter(ids))} distinct tokens in {len(ids)}"
    return None
