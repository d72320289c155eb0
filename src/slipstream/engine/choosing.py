"""What a request says of speculation, checked against what its engine has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from slipstream.drafters import among
from slipstream.engine.drafts import MOST_NODES
from slipstream.engine.sequence import Speculation
from slipstream.errors import OptionError
from slipstream.options import DraftScope

REACHES: Final[tuple[DraftScope, ...]] = ("request", "session", "all")
"""The narrowest first."""
MOST_NAMES: Final = 64
MOST_SECONDS: Final = 1e9


def chosen_methods(wanted: Speculation, offered: Sequence[str]) -> tuple[str, ...]:
    """Names of the drafters to open, in order of precedence; none where nothing is to be drafted.

    Args:
        offered: the engine's drafters, in order of precedence.

    Raises:
        OptionError: a name that the engine does not have, or ``none`` beside others.
    """
    methods = wanted.methods
    if methods is None:
        return () if wanted.n_max == 0 else tuple(offered)
    listed = isinstance(methods, Sequence) and not isinstance(methods, str | bytes)
    if not listed or not all(isinstance(name, str) for name in methods):
        raise OptionError("a list of drafting methods", f"{methods!r:.80}", "Give their names.")
    if len(methods) > MOST_NAMES:
        raise OptionError(
            f"at most {MOST_NAMES} drafting methods", f"{len(methods)}", "Leave some out."
        )
    chosen = among(methods, offered)
    return () if wanted.n_max == 0 else chosen


def checked_limits(wanted: Speculation) -> Speculation:
    """Its ``n_max``, ``n_min`` and ``p_min``.

    Raises:
        OptionError: one of them is out of range, or no number.
    """
    n_max, n_min, p_min = wanted.n_max, wanted.n_min, wanted.p_min
    if n_max is not None:
        _check_count("n_max", n_max)
    _check_count("n_min", n_min)
    if n_max is not None and 0 < n_max < n_min:
        raise OptionError(
            f"`n_min` at most `n_max` ({n_max})", f"{n_min}", "Lower it or raise `n_max`."
        )
    if not _is_number(p_min) or not 0.0 <= p_min <= 1.0:
        raise OptionError(
            "`p_min` to be a probability, from 0 to 1", f"{p_min!r:.80}", "Change `p_min`."
        )
    return Speculation(n_max=n_max, n_min=n_min, p_min=p_min)


def chosen_reach(wanted: DraftScope | None, widest: DraftScope) -> DraftScope:
    """How far drafters learn from a request.

    Raises:
        OptionError: no such scope, or one wider than the engine's.
    """
    if wanted is None:
        return widest
    allowed = REACHES[: REACHES.index(widest) + 1]
    if wanted not in allowed:
        raise OptionError(
            f"`scope` to be {' or '.join(allowed)}",
            f"{wanted!r:.80}",
            "A request may narrow how far drafters learn from it, and no more.",
        )
    return wanted


def checked_deadline(deadline_s: float | None, now: float) -> float | None:
    """The clock reading after which a request ends.

    Raises:
        OptionError: no number of seconds above 0.
    """
    if deadline_s is None:
        return None
    if not _is_number(deadline_s) or not 0.0 < deadline_s <= MOST_SECONDS:
        raise OptionError(
            f"`deadline_s` to be a number of seconds above 0, at most {MOST_SECONDS:g}",
            f"{deadline_s!r:.80}",
            "Leave it out to wait without end.",
        )
    return now + deadline_s


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_NODES:
        raise OptionError(
            f"`{name}` to be a whole number from 0 to {MOST_NODES}",
            f"{value!r:.80}",
            f"Change `{name}`.",
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
