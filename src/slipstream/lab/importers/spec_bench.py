"""Spec-Bench: ``question.jsonl`` as published with the paper (arXiv 2401.07851, 480 questions).

Assumed format (repository hemingkx/Spec-Bench, ``data/spec_bench/question.jsonl``, 2024; that of
MT-bench): an object a line with ``question_id`` (number), ``category`` and ``turns`` (list of
texts); other keys, such as ``reference``, are ignored. The set gathers texts of several sources, so
the licence of a prompt is ``unknown``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from slipstream.lab.importers.questions import IMPORTED, Format, Question, first_turn, question_id

KINDS: Final[Mapping[str, str]] = {
    "writing": "prose",
    "roleplay": "prose",
    "humanities": "prose",
    "translation": "prose",
    "reasoning": "reasoning",
    "math": "reasoning",
    "math_reasoning": "reasoning",
    "stem": "reasoning",
    "coding": "structured",
    "extraction": "structured",
    "qa": "chat",
    "summarization": "long_input",
    "rag": "long_input",
}


def _parse(value: Mapping[str, Any], _: Path) -> Question:
    message, left_out = first_turn(value)
    category = value.get("category", "")
    return Question(
        id=question_id(value),
        category=category,
        messages=(message,),
        kind=KINDS.get(str(category).lower(), IMPORTED),
        source="Spec-Bench",
        turns_left_out=left_out,
    )


FORMAT: Final = Format("spec-bench", _parse)
