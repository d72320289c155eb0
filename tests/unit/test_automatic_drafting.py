"""The method `auto`, the controller an engine gets, and what `--explain-drafts` prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slipstream import drafters
from slipstream.cli.draft_lines import HEADER, decision_lines, in_words
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
    assert "would take longer than it saves" in lines[3]
    assert decision_lines([]) == ["  ".join(HEADER)]


REASONS = {
    "": "",
    "first pass": "first step: no times known yet",
    "nothing proposed; draft-simple parked": (
        "the drafters had nothing to propose; draft-simple not asked: not expected to pay just now"
    ),
    "suffix budget, draft-simple parked: budget": (
        "suffix not asked: would cost more than the 1 % set aside; "
        "draft-simple not asked: would cost more than the 1 % set aside"
    ),
    "no gain; draft-simple no gain: 512 tokens to read": (
        "would take longer than it saves; draft-simple not asked: "
        "reading 512 tokens first would take longer than it saves"
    ),
    "no memory for draft rows": "no memory for draft rows",
}


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_are_plain_words(reason: str) -> None:
    assert in_words(reason) == REASONS[reason]


def test_the_table_stays_within_100_columns() -> None:
    many = tuple(
        Proposal(name, 9, Draft((5, 6, 7), (-1, -1, 0), (name,) * 3, (0.7, 0.2, 0.6)))
        for name in ("ngram-simple", "ngram-map-k4v", "suffix", "draft-simple")
    )
    made = [
        replace(decision(Draft(), 0, reason), proposals=many, cut_for_time=12) for reason in REASONS
    ]
    lines = decision_lines(made)
    assert max(map(len, lines)) <= 100
    text = " ".join(" ".join(lines).split())
    for proposal in many:
        assert text.count(f"{proposal.method} 3/2 (0.70)") == len(REASONS)
