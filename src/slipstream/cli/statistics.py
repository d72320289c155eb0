"""The statistics that end ``run`` and every ``chat`` reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream.api import Piece
    from slipstream.engine.statistics import Statistics


def statistics_lines(last: Piece, *, drawn: bool) -> list[str]:
    """What it cost and what the drafts gave, in words.

    Args:
        last: the last piece of an output.
        drawn: whether the seed was drawn, and is to be echoed.
    """
    statistics = last.statistics
    assert statistics is not None
    passes = f"{statistics.target_passes} passes: it proposed nothing"
    lines = [_speed(statistics, last.finish_reason)]
    if set(statistics.drafters) > set(statistics.never_fired):
        lines.append(_drafts(statistics))
    lines += [f"{name}: drafter never fired in {passes}" for name in statistics.never_fired]
    lines += [
        f"drafts not verified: {count} ({reason})"
        for reason, count in statistics.rejected_drafts.items()
    ]
    return [*lines, f"seed {statistics.seed} (drawn)"] if drawn else lines


def _speed(s: Statistics, reason: str | None) -> str:
    rate = "" if s.decode_tok_s is None else f", {s.decode_tok_s:.1f} tokens/s"
    first = "" if s.ttft_s is None else f", first after {s.ttft_s:.2f} s"
    return (
        f"{s.prompt_tokens} prompt + {s.emitted} tokens in {s.total_s or 0:.2f} s{first}{rate}"
        f" ({reason})"
    )


def _drafts(s: Statistics) -> str:
    share = "" if s.acceptance_rate is None else f" ({100 * s.acceptance_rate:.0f} %)"
    per_pass = "" if s.tokens_per_pass is None else f", {s.tokens_per_pass:.2f} tokens per pass"
    return (
        f"{','.join(s.drafters)}: drafted {s.drafted}, tested {s.tested}, "
        f"accepted {s.accepted}{share}{per_pass}"
    )
