"""Counts of one sequence, all of them recomputable from its rounds.

Law: accepted + target_passes = emitted + discarded, and drafted >= tested >= accepted. Each side
is counted where it happens, so a breach shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from slipstream.drafters.base import GRAMMAR
from slipstream.verify.base import Verifier


@dataclass(frozen=True, slots=True)
class Round:
    """One target pass that sampled for a sequence: prefill's last, then one per step.

    Attributes:
        drafted: draft nodes verified; ``tested`` of them were examined, ``accepted`` accepted.
        reached: draft depths at which a child was examined (``accepted`` or one more).
        sampled: tokens that verification gave: the accepted ones and the next.
        emitted: those delivered; ``discarded`` the others, cut off by a stop or the limit.
        rows: rows of the pass that belong to this sequence.
        proposed: nodes that drafters proposed, before any cut.
        cut_for_time: nodes that the controller wanted and the time limit of a pass left out.
        method: the drafters of the verified nodes, joined by commas; ``none`` without a draft.
        fired: the drafters that proposed anything.
        asked: the drafters that were asked.
        drafted_by, accepted_by: drafter -> its nodes that were verified, and accepted.
        elapsed_s: backend seconds of the pass, shared by all its sequences.
        draft_s: seconds of choosing and asking drafters, shared likewise.
        sample_s: seconds of verification proper: sampling and comparing, shared likewise.
        commit_s: seconds of committing and of telling the drafters, shared likewise.
        reasons: why drafts were not verified since the round before -> how many.
    """

    drafted: int
    tested: int
    accepted: int
    reached: int
    sampled: int
    emitted: int
    discarded: int
    rows: int
    proposed: int = 0
    cut_for_time: int = 0
    method: str = "none"
    fired: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    drafted_by: dict[str, int] = field(default_factory=dict)
    accepted_by: dict[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0
    draft_s: float = 0.0
    sample_s: float = 0.0
    commit_s: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass
class Statistics:
    """What a sequence cost and gave.

    Attributes:
        prompt_tokens: length of the prompt.
        seed: noise key in use, drawn if the request gave none.
        rounds: in order; one per target pass that sampled.
        rejected_drafts: reason -> malformed drafts that were not verified.
        drafters: names of the drafting methods at work for it, ``none`` left out.
        warm: whether a drafter had learned tokens in its scope before it started, the controller
            how drafts do there, or tokens of its prompt were reused.
        private: whether what was learned of it went with it (scope ``request``).
        reused_tokens: of the prompt, that other sequences of its session had computed.
        not_reused: why none may be; empty where they may.
        complete: whether the output is a whole document of its grammar; None without one.
        verification: the rule by which drafts are accepted.
        lossless: whether the output has the distribution of plain decoding; without it the output
            is invalid.
        seed_exact: whether it is plain decoding's output of the same seed.
        submitted_s, admitted_s, first_token_s, finished_s: clock readings; ``admitted_s``: when it
            got a place.
    """

    prompt_tokens: int
    seed: int
    submitted_s: float
    rounds: list[Round] = field(default_factory=list)
    rejected_drafts: Counter[str] = field(default_factory=Counter)
    drafters: tuple[str, ...] = ()
    warm: bool = False
    private: bool = False
    reused_tokens: int = 0
    not_reused: str = ""
    complete: bool | None = None
    verification: str = "matching"
    lossless: bool = True
    seed_exact: bool = True
    first_token_s: float | None = None
    finished_s: float | None = None
    admitted_s: float | None = None

    def verified_by(self, verifier: Verifier, temperature: float) -> None:
        """Greedy decoding has one output, so what is lossless is exact there."""
        self.verification, self.lossless = verifier.name, verifier.lossless
        self.seed_exact = verifier.seed_exact or (verifier.lossless and temperature == 0.0)

    @property
    def output_valid(self) -> bool:
        """False where acceptance was pretended."""
        return self.lossless

    @property
    def emitted(self) -> int:
        return sum(r.emitted for r in self.rounds)

    @property
    def target_passes(self) -> int:
        return len(self.rounds)

    @property
    def verification_steps(self) -> int:
        return sum(r.drafted > 0 for r in self.rounds)

    @property
    def drafted(self) -> int:
        return sum(r.drafted for r in self.rounds)

    @property
    def tested(self) -> int:
        return sum(r.tested for r in self.rounds)

    @property
    def accepted(self) -> int:
        return sum(r.accepted for r in self.rounds)

    @property
    def discarded(self) -> int:
        return sum(r.discarded for r in self.rounds)

    @property
    def cut_for_time(self) -> int:
        return sum(r.cut_for_time for r in self.rounds)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted; None when nothing was drafted."""
        return _ratio(self.accepted, self.drafted)

    @property
    def tokens_per_pass(self) -> float | None:
        return _ratio(self.emitted, self.target_passes)

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted / verification_steps; None without verification steps."""
        steps = self.verification_steps
        return 1 + self.accepted / steps if steps else None

    @property
    def acceptance_at(self) -> tuple[float, ...]:
        """Depth i -> drafts accepted at depth i / drafts that reached it (were examined there)."""
        depths = max((r.reached for r in self.rounds), default=0)
        return tuple(
            sum(r.accepted > i for r in self.rounds) / sum(r.reached > i for r in self.rounds)
            for i in range(depths)
        )

    @property
    def never_fired(self) -> tuple[str, ...]:
        """Drafters that proposed nothing to this sequence; a grammar need not dictate anything."""
        fired = {GRAMMAR}.union(*(r.fired for r in self.rounds))
        return tuple(name for name in self.drafters if name not in fired)

    @property
    def never_asked(self) -> tuple[str, ...]:
        """Those of them that were not even asked."""
        asked = {GRAMMAR}.union(*(r.asked for r in self.rounds))
        return tuple(name for name in self.drafters if name not in asked)

    @property
    def queue_s(self) -> float | None:
        """Submission to a place, or to its end where it never got one; None while it waits."""
        until = self.finished_s if self.admitted_s is None else self.admitted_s
        return None if until is None else until - self.submitted_s

    @property
    def ttft_s(self) -> float | None:
        """Submission to first token."""
        return None if self.first_token_s is None else self.first_token_s - self.submitted_s

    @property
    def total_s(self) -> float | None:
        return None if self.finished_s is None else self.finished_s - self.submitted_s

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens after the first per second since the first; None before there are two."""
        if self.first_token_s is None or self.finished_s is None or self.emitted < 2:
            return None
        return _ratio(self.emitted - 1, self.finished_s - self.first_token_s)

    def summary(self) -> dict[str, object]:
        """Plain values for JSON, the rounds from which the counts come included."""
        return {**self.totals(), "rounds": [asdict(r) for r in self.rounds]}

    def totals(self) -> dict[str, object]:
        """``summary`` without its rounds, which take long to copy."""
        names = (
            "prompt_tokens emitted target_passes verification_steps drafted tested accepted "
            "discarded queue_s ttft_s total_s decode_tok_s acceptance_rate tokens_per_pass "
            "mean_acceptance_length acceptance_at drafters never_fired never_asked cut_for_time "
            "seed warm reused_tokens not_reused complete verification lossless seed_exact "
            "output_valid"
        )
        summary = {name: getattr(self, name) for name in names.split()}
        return {**summary, "rejected_drafts": dict(self.rejected_drafts)}
