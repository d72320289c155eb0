"""What is verified of drawn tokens (rejection sampling) is settled before any of them is drawn.

A token drawn from q is emitted with the right probability only if whether it is examined does not
depend on it. What a drafter says of deeper nodes does, and so do their number and the time that
they took; the number of nodes asked for, what experience says, and limits do not. So drawn drafts
are not weighed: they are cut from the end of draft order to a number known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.drafters import runs_a_model
from slipstream.drafters.base import Draft
from slipstream.engine.controller import Proposal, Room


def is_drawn(draft: Draft) -> bool:
    """Whether some of it may have been drawn: what looks up proposes fixed tokens."""
    known = any(distribution is not None for distribution in draft.distributions)
    return known or any(runs_a_model(method) for method in draft.methods)


def weighable(room: Room, made: Sequence[Proposal]) -> list[Draft]:
    """The drafts that may be chosen from by what they hold."""
    drafts = [proposal.draft for proposal in made if len(proposal.draft)]
    return [draft for draft in drafts if not (room.drawn and is_drawn(draft))]


def drawn_proposals(room: Room, made: Sequence[Proposal]) -> list[Proposal]:
    """Those that may not, in order of precedence."""
    if not room.drawn:
        return []
    return [proposal for proposal in made if len(proposal.draft) and is_drawn(proposal.draft)]
