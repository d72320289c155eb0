"""The statistics that end ``run`` and every ``chat`` reply."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from slipstream.cli.output import megabytes
from slipstream.errors import PairingError

if TYPE_CHECKING:
    from slipstream.api import Piece
    from slipstream.drafters.resources import DraftModel
    from slipstream.engine.statistics import Statistics
    from slipstream.loading import LoadedModel
    from slipstream.options import SpeculationOptions

SHOWN_NOTES: Final = 3
"""Notes on tensors that are printed in full; the JSON has all."""


def caveats(loaded: LoadedModel) -> list[str]:
    """What a model's user should know: fallbacks, and ops whose bits depend on the step's rows."""
    record = backend_record(loaded)
    varying = record["varying_ops"]
    kept = record["kv_type"]
    return [
        *([precision_line(record["precision"])] if record["precision"] == "a16" else []),
        *note_lines(record["notes"]),
        *([f"keys and values: {kept}"] if kept != "f16" else []),
        *([exact_line(varying)] if varying else []),
    ]


def backend_record(loaded: LoadedModel) -> dict[str, Any]:
    """The part of a JSON record that tells what ran and what it guarantees."""
    from slipstream.backends.base import varying_ops

    varying = varying_ops(loaded.backend.row_invariant, loaded.graph)
    return {
        "backend": loaded.backend.name,
        "isa": getattr(loaded.backend, "isa", "numpy"),
        "kv_type": loaded.memory.kv_type,
        "isa_reason": getattr(loaded.backend, "isa_reason", "the reference backend has no levels"),
        "precision": loaded.backend.precision,
        "exact": not varying,
        "varying_ops": varying,
        "notes": getattr(loaded.weights, "notes", ()),
    }


def draft_record(found: DraftModel | PairingError | None) -> dict[str, Any]:
    """The part of a JSON record that tells which draft model was loaded, if one was asked for."""
    if found is None:
        return {}
    if isinstance(found, PairingError):
        return {"draft_model": None, "draft_fault": str(found)}
    names = ("name", "context", "drafted", "step_bytes", "resident_bytes")
    return {"draft_model": {name: getattr(found, name) for name in names}}


def draft_lines(found: DraftModel | PairingError | None) -> list[str]:
    """The same in words."""
    if found is None:
        return []
    if isinstance(found, PairingError):
        return [f"draft model not used: {found}"]
    held = megabytes(found.resident_bytes) if found.resident_bytes else "weights left in the file"
    held = "the target's weights" if found.shared else held
    ids = f", drafts ids below {found.drafted}" if found.drafted < found.vocabulary else ""
    return [f"draft model {found.name}: {held}, {megabytes(found.step_bytes)} read per pass{ids}"]


def precision_line(precision: str) -> str:
    """What the activations of quantised weights are rounded to."""
    words = {"a8": "int8", "a16": "two int8 planes", "float32": "not rounded"}
    return f"precision: {precision} (activations {words[precision]})"


def exact_line(varying: Sequence[str]) -> str:
    """Whether a token's bits are independent of the other rows of its step."""
    return f"exact: not guaranteed ({', '.join(varying)})" if varying else "exact: every op"


def note_lines(notes: Sequence[str]) -> list[str]:
    lines = [f"note: {note}" for note in notes[:SHOWN_NOTES]]
    hidden = len(notes) - len(lines)
    return [*lines, f"note: {hidden} more tensors, listed by --json"] if hidden else lines


def statistics_lines(last: Piece, *, drawn: bool) -> list[str]:
    """What it cost and what the drafts gave, in words.

    Args:
        last: the last piece of an output.
        drawn: whether the seed was drawn, and is to be echoed.
    """
    statistics = last.statistics
    assert statistics is not None
    lines = [_speed(statistics, last.finish_reason)]
    if any(r.fired for r in statistics.rounds):
        lines.append(_drafts(statistics))
    if statistics.warm:
        lines.append(
            "warm: earlier requests taught the drafters or left their prompts; "
            "a first one may be slower"
        )
    lines += verification_lines(statistics)
    lines += silent_lines(statistics)
    lines += [
        f"drafts not verified: {count} ({reason})"
        for reason, count in statistics.rejected_drafts.items()
    ]
    if statistics.complete is False:
        lines.append(f"not a complete document: it ended early ({last.finish_reason})")
    return [*lines, f"seed {statistics.seed} (drawn)"] if drawn else lines


def silent_lines(s: Statistics) -> list[str]:
    """The drafters that proposed nothing, and whether that was their own doing."""
    passes = f"{s.target_passes} passes"
    told = [reason.partition(" failed: ")[0] for reason in s.rejected_drafts]
    asked = [name for name in s.never_fired if name not in s.never_asked]
    parked = [name for name in s.never_asked if name not in told]
    return [f"{name}: drafter never fired in {passes}: it proposed nothing" for name in asked] + [
        f"{name}: drafter not asked in {passes}: it was not expected to pay" for name in parked
    ]


INVALID: Final = (
    "INVALID OUTPUT: the acceptance of draft tokens is pretended (--synth-rates, --synth-len); "
    "only the speed means anything"
)


def warn_of_pretence(options: SpeculationOptions) -> None:
    """Say before the first token that the output will be invalid, if it will."""
    pretended = (options.synth_rates, options.synth_len) != (None, None)
    if pretended and options.type != ("none",):
        print(INVALID, file=sys.stderr, flush=True)


def verification_lines(s: Statistics) -> list[str]:
    """What the rule of verification means for the output, unless it is that of plain decoding."""
    if not s.output_valid:
        return [INVALID]
    if s.seed_exact:
        return []
    return [
        f"verification: {s.verification}; the output has the distribution of plain decoding, but "
        f"it is not plain decoding's output of seed {s.seed}"
    ]


def _speed(s: Statistics, reason: str | None) -> str:
    rate = "" if s.decode_tok_s is None else f", {s.decode_tok_s:.1f} tokens/s"
    first = "" if s.ttft_s is None else f", first after {s.ttft_s:.2f} s"
    reused = f" ({s.reused_tokens} reused)" if s.reused_tokens else ""
    return (
        f"{s.prompt_tokens} prompt{reused} + {s.emitted} tokens in {s.total_s or 0:.2f} s"
        f"{first}{rate} ({reason})"
    )


def _methods(s: Statistics) -> list[str]:
    """The drafters, and before them ``grammar`` where it dictated tokens."""
    from slipstream.drafters.base import GRAMMAR

    dictated = any(GRAMMAR in made.drafted_by for made in s.rounds)
    return [*([GRAMMAR] if dictated else []), *s.drafters]


def _drafts(s: Statistics) -> str:
    share = "" if s.acceptance_rate is None else f" ({100 * s.acceptance_rate:.0f} %)"
    per_pass = "" if s.tokens_per_pass is None else f", {s.tokens_per_pass:.2f} tokens per pass"
    return (
        f"{','.join(_methods(s))}: drafted {s.drafted}, tested {s.tested}, "
        f"accepted {s.accepted}{share}{per_pass}"
    )
