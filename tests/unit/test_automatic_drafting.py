"""The method `auto`, the controller an engine gets, and what `--explain-drafts` prints."""

from __future__ import annotations

import pytest

from slipstream import drafters
from slipstream.cli.draft_lines import HEADER, decision_lines
from slipstream.drafters.base import Draft
from slipstream.engine.controller import Decision, DoublingController, Proposal, Room
from slipstream.engine.controllers import LONE_CREDIT, controller_for
from slipstream.engine.cost_controller import CREDIT, CostController
from slipstream.errors import OptionError, UnsupportedError


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that has every method."""
    monkeypatch.setattr(drafters, "find_spec", lambda _: True)


@pytest.mark.usefixtures("complete")
def test_auto_stands_for_suffix_and_for_a_draft_model_where_there_is_one() -> None:
    assert drafters.check_names(["auto"]) == ("suffix",)
    assert drafters.check_names(["auto"], draft_model=True) == ("suffix", "draft-simple")
    assert drafters.check_names(["auto", "ngram-mod"]) == ("ngram-mod", "suffix")
    assert "auto" in drafters.implemented()
    with pytest.raises(OptionError):
        drafters.check_names(["auto", "none"])


def test_auto_needs_what_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafters, "find_spec", lambda name: name.endswith("suffix"))
    assert drafters.check_names(["auto"]) == ("suffix",)
    with pytest.raises(UnsupportedError):
        drafters.check_names(["auto"], draft_model=True)
    monkeypatch.setattr(drafters, "find_spec", lambda _: None)
    assert drafters.implemented() == ("none",)
    with pytest.raises(UnsupportedError):
        drafters.check_names(["auto"])


def test_the_controller_fits_the_drafters() -> None:
    cheap = controller_for(["suffix", "draft-simple"], fixed=False)
    assert isinstance(cheap, CostController)
    assert cheap._credit == CREDIT
    lone = controller_for(["draft-simple"], fixed=False)
    assert isinstance(lone, CostController)
    assert lone._credit == LONE_CREDIT
    fixed = controller_for(["suffix"], fixed=True)
    assert isinstance(fixed, DoublingController)
    assert fixed.fixed
    assert isinstance(controller_for([], fixed=False), DoublingController)


def decision(verified: Draft, accepted: int, reason: str = "", **keywords: object) -> Decision:
    tree = Draft((5, 6, 7), (-1, -1, 0), ("draft-simple",) * 3, (0.7, 0.2, 0.6))
    proposals = (
        Proposal("suffix", 48, Draft.chain((5, 6, 7, 8), "suffix")),
        Proposal("draft-simple", 3, tree),
    )
    return Decision(
        0.0,
        Room(0, 100),
        proposals,
        verified,
        tuple(range(accepted)),
        (*verified.tokens[:accepted], 1),
        False,
        0,
        5,
        0.1,
        reason=reason,
        **keywords,  # type: ignore[arg-type]
    )


def test_a_line_per_round_says_what_was_proposed_verified_and_accepted() -> None:
    lines = decision_lines(
        [
            decision(Draft(), 0, prompt=True),
            decision(Draft.chain((5, 6), "suffix"), 2),
            decision(Draft(), 0, "no gain; draft-simple parked"),
        ]
    )
    assert lines[0].split() == " ".join(HEADER).split()
    assert lines[1].endswith("end of the prompt")
    assert "suffix 4, draft-simple 3/2 (0.70)" in lines[2]
    assert lines[2].split()[-3:] == ["2", "2", "suffix"]
    assert lines[3].endswith("no gain; draft-simple parked")
    assert decision_lines([])[0].startswith("round")
