"""Which rule the speculation options ask for."""

from __future__ import annotations

from slipstream.acceptance_rates import pretended
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
