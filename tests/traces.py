"""Traces of engines over the fake program, on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from engines import drafters_of, drain, fake_engine
from slipstream.drafters.base import Drafter
from slipstream.engine.sequence import Request
from slipstream.engine.trace_format import VERSION, Asked, Header, Record, RoundRecord, encode
from slipstream.engine.tracing import Tracing
from slipstream.options import SamplingOptions


def trace_engine(
    drafter: Drafter | Sequence[Drafter] | None,
    prompts: Sequence[Sequence[int]],
    *,
    cancel_after: int = 0,
    sampling: dict[str, Any] | None = None,
    **keywords: Any,
) -> list[Record]:
    """The records of requests that were all submitted at once.

    Args:
        cancel_after: steps after which the first request is cancelled; 0 = never.
    """
    records: list[Record] = []
    tracing = Tracing(records.append)
    tracing.header(Header(version=VERSION, model="fake"))
    own = tracing.engine([d.name for d in drafters_of(drafter)], "matching", {})
    engine = fake_engine(drafter, trace=own.round, ended=own.end, **keywords)
    options = SamplingOptions(**{"seed": 1, "max_tokens": 40, **(sampling or {})})
    ids = [engine.submit(Request(prompt, options)) for prompt in prompts]
    for _ in range(cancel_after):
        engine.step()
    if cancel_after:
        engine.cancel(ids[0])
    drain(engine)
    assert tracing.failure is None
    return records


def write(path: Path, records: Sequence[Record]) -> Path:
    path.write_bytes(b"".join(map(encode, records)))
    return path


def changed(records: Sequence[Record], place: int, **fields: Any) -> list[Record]:
    """The records with some fields of one replaced."""
    made = list(records)
    made[place] = msgspec.structs.replace(made[place], **fields)
    return made


def a_round(**changes: Any) -> RoundRecord:
    """One verified round: of three nodes, the first branch is accepted."""
    return msgspec.structs.replace(
        RoundRecord(
            engine=0,
            sequence=0,
            step=2,
            prompt=False,
            time_s=1.5,
            nodes=30,
            context=5,
            drawn=False,
            affordable=31,
            scope=0,
            asked=(
                Asked(
                    method="a",
                    cap=4,
                    tokens=(7, 8, 9),
                    parents=(-1, 0, -1),
                    probabilities=(0.5, 0.5, 0.25),
                    seconds=0.001,
                ),
            ),
            tokens=(7, 8, 9),
            parents=(-1, 0, -1),
            methods=("a", "a", "a"),
            path=(0,),
            sampled=(7, 3),
            rejected=True,
            tested=2,
            emitted=2,
            discarded=0,
            cut_for_time=0,
            rows=4,
            pass_rows=4,
            prompt_rows=0,
            draft_s=0.002,
            verify_s=0.03,
            sample_s=0.001,
            commit_s=0.001,
        ),
        **changes,
    )
