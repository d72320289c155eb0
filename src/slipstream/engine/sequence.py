"""One request while it runs: its tokens, sampler, text and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.constraint import Constraint
from slipstream.engine.events import EmittedToken, FinishReason
from slipstream.engine.statistics import Statistics
from slipstream.engine.text import TextStream
from slipstream.options import DraftScope, SamplingOptions
from slipstream.sampling import Sampled, SamplerState


@dataclass(frozen=True)
class Speculation:
    """What one request wants of an engine's drafters; None = what the engine does.

    Attributes:
        methods: drafters that are opened for it, ``auto`` among the names; none of them, or
            ``none`` alone, = nothing is drafted, not even what a grammar dictates.
        n_max: most draft tokens on a path.
        n_min: proposals whose longest path is shorter are dropped. Tokens that are drawn (rejection
            sampling) never are, for that would bias the output; ``p_min`` spares so many of them.
        p_min: nodes whose estimate is lower are not verified, nor what follows them; drafters
            that give no estimates are not touched by it.
        scope: how far drafters learn from it; never wider than the engine's.
    """

    methods: Sequence[str] | None = None
    n_max: int | None = None
    n_min: int = 0
    p_min: float = 0.0
    scope: DraftScope | None = None


@dataclass(frozen=True)
class Request:
    """Work for the engine.

    Attributes:
        prompt: token ids, beginning-of-sequence token included.
        sampling: settings of the sampler, stop strings and token limit.
        choice: i of n choices for one prompt; it uses seed + i.
        session: whose request it is; drafters may learn within a session (decision 0007).
        constraint: ``Grammars.constraint(sampling)``, compiled before so that no step waits for
            it; the engine forks it.
        speculation: which drafters, and how much of them; None = as the engine does.
        deadline_s: seconds since ``submit`` after which it ends by an error, waiting or running;
            None = never.
        reuse: whether its prompt may begin with what its session has in memory, and be kept there.
    """

    prompt: Sequence[int]
    sampling: SamplingOptions
    choice: int = 0
    session: str = ""
    constraint: Constraint | None = None
    speculation: Speculation | None = None
    deadline_s: float | None = None
    reuse: bool = True


@dataclass(eq=False)
class SequenceState:
    """A request between ``submit`` and its last event.

    Attributes:
        id: engine sequence id.
        tokens: prompt and output so far; the newest one is not yet in memory.
        prompt_tokens: length of the prompt.
        limit: number of tokens at which it ends by ``length``.
        ends: end-of-generation ids.
        handle: memory handle while it runs, else -1; a running one without waits for another one
            that computes a prompt which begins alike.
        committed: positions in memory.
        shareable: whether later sequences of its session may use what it has in memory; not after
            its session was erased.
        reuses: whether it may use what other sequences of its session have in memory.
        scope: of what drafters learn from it.
        reach: how far drafters may learn from it; ``scope`` is that, named.
        methods: names of the drafters chosen for it, in order of precedence.
        limits: ``n_max``, ``n_min`` and ``p_min`` as its request gave them.
        drafts: whether its request wants anything drafted, be it what its grammar dictates.
        deadline_s: clock reading after which it ends; None = never.
        session: whose request it is.
        drafters: names of those that have it open; never again after one failed.
        told: reasons for drafts not verified that its rounds have.
    """

    id: int
    tokens: list[int]
    prompt_tokens: int
    limit: int
    ends: tuple[int, ...]
    sampler: SamplerState
    text: TextStream
    statistics: Statistics
    handle: int = -1
    committed: int = 0
    shareable: bool = True
    reuses: bool = True
    scope: str = ""
    session: str = ""
    reach: DraftScope = "session"
    methods: tuple[str, ...] = ()
    limits: Speculation = Speculation()
    drafts: bool = True
    deadline_s: float | None = None
    drafters: set[str] = field(default_factory=set)
    told: Counter[str] = field(default_factory=Counter)
    finish_reason: FinishReason | None = None

    @property
    def prompt_left(self) -> int:
        return max(self.prompt_tokens - self.committed, 0)

    @property
    def room(self) -> int:
        """Draft tokens that could be accepted before the limit leaves no next token."""
        return self.limit - len(self.tokens) - 1

    @property
    def nodes(self) -> int:
        """Draft nodes on a path that it may have: ``room``, or fewer by its request."""
        most = self.limits.n_max
        return self.room if most is None else min(self.room, most)

    def untold(self) -> dict[str, int]:
        """Reasons for drafts not verified that no round has yet; from now on one has."""
        reasons = self.statistics.rejected_drafts
        if not reasons:
            return {}
        fresh = {
            reason: count - self.told[reason]
            for reason, count in reasons.items()
            if count > self.told[reason]
        }
        self.told.update(fresh)
        return fresh

    @property
    def complete(self) -> bool | None:
        """Whether the emitted text is a whole document of its grammar; None without a grammar."""
        constraint = self.sampler.constraint
        if constraint is None:
            return None
        # a stop string may cut off tokens that the constraint has seen
        return self.text.stop is None and constraint.may_stop

    def emit(
        self, sampled: Sequence[Sampled], accepted: int
    ) -> tuple[tuple[EmittedToken, ...], int]:
        """Take sampled tokens, the first ``accepted`` of them from a draft, up to the finish.

        Returns:
            The tokens taken, and how many after the finish were cut off.
        """
        emitted: list[EmittedToken] = []
        cut = 0
        for place, drawn in enumerate(sampled):
            text = self._take(drawn.token)
            token = EmittedToken(drawn.token, text, place < accepted, drawn.logprob, drawn.top)
            emitted.append(token)
            if self.finish_reason is not None:
                cut = len(sampled[place + 1 :])
                break
        return tuple(emitted), cut

    def _take(self, token: int) -> str:
        self.tokens.append(token)
        if token in self.ends:
            self.finish_reason = "stop"
            return self.text.finish()
        text = self.text.push(token)
        if self.text.stop is not None:
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"
            text += self.text.finish()
        return text
