"""The statistics line that ends ``run`` and every ``chat`` reply."""

from __future__ import annotations

from slipstream.engine.statistics import Statistics


def statistics_lines(statistics: Statistics, methods: tuple[str, ...]) -> list[str]:
    """What it cost and what the drafts gave, in words."""
    lines = [_speed(statistics)]
    if methods != ("none",):
        lines.append(_drafts(statistics, methods))
    lines += [
        f"{count} malformed drafts not verified: {reason}"
        for reason, count in statistics.rejected_drafts.items()
    ]
    return lines


def _speed(s: Statistics) -> str:
    rate = "" if s.decode_tok_s is None else f", {s.decode_tok_s:.1f} tokens/s"
    first = "" if s.ttft_s is None else f", first after {s.ttft_s:.2f} s"
    total = 0.0 if s.total_s is None else s.total_s
    return f"{s.prompt_tokens} prompt + {s.emitted} tokens in {total:.2f} s{first}{rate}"


def _drafts(s: Statistics, methods: tuple[str, ...]) -> str:
    name = ",".join(methods)
    if s.drafted == 0:
        proposed = sum(r.proposed for r in s.rounds)
        why = "proposals were cut to nothing" if proposed else "no proposal"
        return f"{name}: drafter never fired ({why} in {s.target_passes} passes)"
    return (
        f"{name}: drafted {s.drafted}, tested {s.tested}, accepted {s.accepted} "
        f"({100 * s.accepted / s.drafted:.0f} %), {s.tokens_per_pass:.2f} tokens per pass"
    )
