"""SPEED-Bench: a split of nvidia/SPEED-Bench (arXiv 2604.09557), written as JSON lines.

Assumed format (data card of 2026): the columns ``question_id``, ``category``, ``sub_category``,
``turns`` (list of texts), ``source``, ``src_id``, ``difficulty`` and ``multiturn``; only the first,
second and fourth are read. The published files are Parquet; export them as JSON lines, after the
set's own preparation has put the texts of other data sets into ``turns``: until then a turn says
that its data should be fetched from the source, and is refused. Licence of every prompt: the data
card's ``nvidia-evaluation-dataset-license``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from slipstream.lab.importers.questions import IMPORTED, Format, Question, first_turn, question_id

KINDS: Final[Mapping[str, str]] = {
    "coding": "structured",
    "humanities": "prose",
    "math": "reasoning",
    "multilingual": "prose",
    "qa": "chat",
    "rag": "long_input",
    "reasoning": "reasoning",
    "roleplay": "prose",
    "stem": "reasoning",
    "summarization": "long_input",
    "writing": "prose",
    "low_entropy": "long_input",
    "high_entropy": "long_input",
    "mixed": "long_input",
}
_UNPREPARED: Final = "DATA SHOULD BE FETCHED FROM THE SOURCE"


def _parse(value: Mapping[str, Any], _: Path) -> Question:
    message, left_out = first_turn(value)
    if _UNPREPARED in message.content[:512].upper():
        raise ValueError("a turn without its text: the set was not prepared")
    category = value.get("category", "")
    return Question(
        id=question_id(value),
        category=category,
        messages=(message,),
        kind=KINDS.get(str(category).lower(), IMPORTED),
        source="nvidia/SPEED-Bench",
        licence="nvidia-evaluation-dataset-license",
        turns_left_out=left_out,
    )


FORMAT: Final = Format("speed-bench", _parse)
