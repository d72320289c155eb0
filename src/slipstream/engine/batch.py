"""The rows of a step: each sequence's share, laid end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Outputs, Step
from slipstream.drafters.base import Draft, TargetPass
from slipstream.engine.controller import Proposal, Room
from slipstream.engine.sequence import SequenceState

NO_ROOM = Room(-1, 0)
NO_MEMORY = "no memory for draft rows"
"""Why a pass ran without the draft rows that were chosen."""


@dataclass(frozen=True)
class Share:
    """Rows of one sequence in a step: a chunk of its prompt, or its newest token and a draft.

    Attributes:
        tokens: token ids of the rows.
        parents: index of the parent among these rows, -1 = committed prefix.
        logit_rows: indices of the rows whose logits are wanted.
        prompt_rows: how many of the rows are prompt.
        draft: what is verified; row 1 + i is node i.
        room, proposals: what the controller knew and was given.
        cut_for_time: chosen draft nodes that the time limit of a pass left out.
        reason: why nothing was chosen.
    """

    sequence: SequenceState
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    logit_rows: range
    prompt_rows: int = 0
    draft: Draft = field(default_factory=Draft)
    room: Room = NO_ROOM
    proposals: tuple[Proposal, ...] = ()
    cut_for_time: int = 0
    reason: str = ""

    @property
    def proposed(self) -> int:
        return sum(len(proposal.draft) for proposal in self.proposals)

    def path(self, accepted: Sequence[int]) -> list[int]:
        """Rows to commit: the prompt's, or the newest token's and those of accepted nodes."""
        if self.prompt_rows:
            return list(range(self.prompt_rows))
        return [0, *(node + 1 for node in accepted)]

    def depths(self) -> list[int]:
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return depths


def prompt_share(sequence: SequenceState, count: int, room: Room = NO_ROOM) -> Share:
    """The next ``count`` prompt tokens; the last row of the prompt wants logits."""
    first = sequence.committed
    tokens = tuple(sequence.tokens[first : first + count])
    last = count if count == sequence.prompt_left else 0
    parents = tuple(range(-1, count - 1))
    return Share(sequence, tokens, parents, range(max(last - 1, 0), last), count, room=room)


def decode_share(
    sequence: SequenceState,
    draft: Draft,
    room: Room,
    proposals: tuple[Proposal, ...] = (),
    cut_for_time: int = 0,
    reason: str = "",
) -> Share:
    """The newest token and its draft; every row wants logits."""
    tokens = (sequence.tokens[-1], *draft.tokens)
    parents = (-1, *(parent + 1 for parent in draft.parents))
    return Share(
        sequence,
        tokens,
        parents,
        range(len(tokens)),
        draft=draft,
        room=room,
        proposals=proposals,
        cut_for_time=cut_for_time,
        reason=reason,
    )


def assemble(shares: Sequence[Share], hidden: frozenset[str]) -> Step:
    """The step of all shares, in order."""
    tokens: list[int] = []
    sequences: list[int] = []
    parents: list[int] = []
    logit_rows: list[int] = []
    for share in shares:
        start = len(tokens)
        tokens += share.tokens
        sequences += [share.sequence.handle] * len(share.tokens)
        parents += [parent + start if parent >= 0 else -1 for parent in share.parents]
        logit_rows += [start + row for row in share.logit_rows]
    return Step(
        np.array(tokens, np.int32),
        np.array(sequences, np.int32),
        np.array(parents, np.int32),
        np.array(logit_rows, np.int32),
        hidden=hidden,
    )


def target_passes(
    shares: Sequence[Share], outputs: Outputs, *, logits: bool
) -> list[tuple[SequenceState, TargetPass]]:
    """What the step computed, per sequence with drafters, as they see it (before the commit).

    Args:
        logits: whether a drafter asked for the target's logits.
    """
    passes, start, first = [], 0, 0
    for share in shares:
        stop, last = start + len(share.tokens), first + len(share.logit_rows)
        if share.sequence.drafters:
            seen = {name: rows[start:stop] for name, rows in outputs.hidden.items()}
            computed = outputs.logits[first:last] if logits else None
            passes.append((share.sequence, _target_pass(share, seen, computed)))
        start, first = stop, last
    return passes


def _target_pass(
    share: Share, hidden: dict[str, NDArray[np.float32]], logits: NDArray[np.float32] | None
) -> TargetPass:
    return TargetPass(
        share.sequence.id,
        np.array(share.tokens, np.int32),
        np.array(share.depths(), np.int32) + np.int32(share.sequence.committed),
        np.array(share.parents, np.int32),
        hidden,
        np.array(share.logit_rows, np.int32),
        logits,
    )
