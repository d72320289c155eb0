"""Which rule the speculation options ask for."""

from __future__ import annotations

from slipstream.acceptance_rates import pretended
from slipstream.errors import OptionError
from slipstream.options import SpeculationOptions, longest_draft
from slipstream.verify.base import Verifier
from slipstream.verify.matching import Matching
from slipstream.verify.rejection import Rejection
from slipstream.verify.synthetic import Synthetic


def verifier_for(options: SpeculationOptions) -> Verifier:
    """Matching where nothing is drafted; else synthetic, rejection or matching, in this order."""
    if options.type == ("none",):
        return Matching()
    rates = pretended(options.synth_rates, options.synth_len, longest_draft(options))
    if rates is not None:
        return Synthetic(rates)
    return Rejection() if options.draft_sampling == "probabilistic" else Matching()


def require_valid_output(options: SpeculationOptions, purpose: str) -> None:
    """Refuse synthetic acceptance where outputs are looked at.

    Args:
        purpose: what needs them, to follow "to".

    Raises:
        OptionError: the output would be invalid.
    """
    for name in ("synth_rates", "synth_len"):
        if getattr(options, name) is not None:
            raise OptionError(
                f"valid output, to {purpose}",
                f"`{name}`, which makes it invalid",
                f"Leave out `{name}`.",
            )
