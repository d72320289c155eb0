"""Findings about two clocks: the decode rate that a server tells, and what the client saw.

The client reads late where its machine is busy, and never early. So its clock may see a decoding
that is shorter than the server's (the first piece was read late) or longer (the last one was); it
cannot see a request end before the server was done. Only the latter contradicts the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from slipstream.lab.contract.records import FindingRecord, RequestRecord
from slipstream.lab.evidence.definitions import decode_rate, total_s
from slipstream.lab.judging.cells import Cell, Evidence
from slipstream.lab.judging.service_findings import finding

_TIMES: Final = 1.5  # a told decode rate may be off the client's by that factor
_FEWEST_TOKENS: Final = 16
_LEAST_S: Final = 0.2  # between the first and the last piece
_SLACK: Final = 1.1  # of the whole request: servers count the first token, or round the rate
_SLACK_S: Final = 0.05


def impossible_rate(record: RequestRecord) -> str:
    """A told decoding that lasted longer than the whole request did by the client's clock."""
    told, tokens, whole = record.decode_tok_s, record.output_tokens, total_s(record)
    if not told or told < 0 or tokens is None or tokens < _FEWEST_TOKENS or whole is None:
        return ""
    decoding = (tokens - 1) / told
    if decoding <= whole * _SLACK + _SLACK_S:
        return ""
    return f"{decoding:.4g} s of decoding told ({told:.4g} tokens/s), all of it took {whole:.4g} s"


def clock_disagrees(evidence: Evidence) -> Iterator[FindingRecord]:
    """In most requests the told decode rate is not the client's, though both may be honest.

    Figures are by the client's clock, and no gate uses a told rate: it is noted.
    """
    for cell in evidence.cells:
        text = _most_differ(evidence, cell)
        if text:
            yield finding(evidence, cell, "clock-disagrees", text)


def _most_differ(evidence: Evidence, cell: Cell) -> str:
    rates = [(r.prompt, pair) for r in evidence.requests(cell) if (pair := _rates(r)) is not None]
    off = [(prompt, pair) for prompt, pair in rates if max(pair) > _TIMES * min(pair)]
    if 2 * len(off) <= len(rates):
        return ""
    prompt, (told, measured) = off[0]
    return (
        f"{len(off)} of {len(rates)} requests; "
        f"{prompt}: {told:.4g} tokens/s told, {measured:.4g} by the client's clock"
    )


def _rates(record: RequestRecord) -> tuple[float, float] | None:
    """Told and measured, where the output is long enough and the told one is possible."""
    told, measured, times = record.decode_tok_s, decode_rate(record), record.token_times_s
    long_enough = len(times) > 1 and times[-1] - times[0] >= _LEAST_S
    if told is None or measured is None or not long_enough or impossible_rate(record):
        return None
    return (told, measured) if (record.output_tokens or 0) >= _FEWEST_TOKENS else None
