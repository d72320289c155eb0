"""Whether a request may choose how it drafts, and whether that is obeyed and echoed."""

from __future__ import annotations

from typing import Final

from slipstream.lab.client import told
from slipstream.lab.conformance.asking import Asker, chat
from slipstream.lab.conformance.checks import Room, measurable, require
from slipstream.lab.conformance.comparing import Output
from slipstream.lab.conformance.error_checks import require_error
from slipstream.lab.conformance.outcomes import RefusedError, UnmeasuredError
from slipstream.lab.conformance.prompts import COPY
from slipstream.lab.conformance.replies import Reply

_SHORT_PATH: Final = 1


def control(asker: Asker, room: Room) -> list[Output]:
    """A request that wants no drafts gets none; what else it chooses is in effect."""
    measurable(room.off, "no way is known in which a request of this server chooses")
    usual = asker.answer(chat(COPY))
    measurable(usual.drafted is not None, "replies do not tell what was drafted")
    measurable(usual.drafted, "nothing is drafted, so nothing can be switched off")
    refusals = []
    for keys in room.off:
        try:
            _require_off(asker.answer(chat(COPY, **keys)), usual)
        except RefusedError as refused:
            refusals.append(refused.found)
        else:
            break
    else:
        raise UnmeasuredError(f"a request cannot choose: {refusals[0]}")
    if room.flavour == "slipstream":
        _require_choices(asker)
    return []


def _require_off(reply: Reply, usual: Reply) -> None:
    require(
        not reply.drafted,
        f"accepted and not obeyed: {reply.drafted} tokens drafted, {usual.drafted} without the key",
        reply,
    )
    echoed = told.mapping(reply.speculative).get("type")
    require(echoed in (None, "none"), f"it says that {echoed!r} was in effect", reply)


def _require_choices(asker: Asker) -> None:
    """Slipstream's further keys: the longest path, and none that is unknown."""
    chosen = told.mapping(asker.side.chosen.get("speculative"))
    reply = asker.answer(chat(COPY, speculative={**chosen, "n_max": _SHORT_PATH}))
    echoed = told.mapping(reply.speculative).get("n_max")
    require(echoed == _SHORT_PATH, f"`n_max` {_SHORT_PATH} asked, {echoed!r} in effect", reply)
    places = told.items(reply.timings.get("acceptance_at"))
    require(
        len(places) <= _SHORT_PATH,
        f"drafts of {len(places)} tokens with `n_max` {_SHORT_PATH}",
        reply,
    )
    unknown = asker.ask(chat(COPY, 4, speculative={**chosen, "n_maxx": 3}))
    require_error(unknown, "an unknown key in `speculative`")
