"""What the HTTP process and the engine process say to each other: frames over a socket pair.

A frame is a big-endian uint32 length and that many bytes of msgpack: one tagged struct. Orders go
to the worker; one ``StepFrame`` per engine step comes back, whatever the number of sequences.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from slipstream.options import DraftScope, SamplingOptions

MOST_FRAME_BYTES: Final = 1 << 28
_LENGTH: Final = struct.Struct(">I")


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """As ``engine.sequence.Speculation``; None = the server's."""

    methods: tuple[str, ...] | None = None
    n_max: int | None = None
    n_min: int = 0
    p_min: float = 0.0
    scope: DraftScope | None = None


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """A request for one output.

    Attributes:
        request: number chosen by the HTTP process, never used twice.
        prompt: token ids.
        sampling: with a grammar in it, it is compiled beside the step loop.
        choice: i of n outputs for one prompt; it uses seed + i.
        session: scope of what is learned and reused; holds no key.
        deadline_s: seconds from its arrival after which it ends by an error; None = none.
        reuse: see ``engine.sequence.Request``.
    """

    request: int
    prompt: list[int]
    sampling: SamplingOptions
    choice: int = 0
    session: str = ""
    speculation: Speculation | None = None
    deadline_s: float | None = None
    reuse: bool = True


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """End a request; its last event comes all the same. Unknown numbers are ignored."""

    request: int


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """A question answered between two steps (``Answer`` with the same number).

    Attributes:
        what: ``remembered`` (what drafters and prefix cache keep for a session), ``forget``
            (erase it) or ``observed`` (kernel paths that ran).
        session: exact name; None = all sessions.
    """

    number: int
    what: str
    session: str | None = None


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """Cancel everything, send the last events, exit."""


class WireError(msgspec.Struct, frozen=True, kw_only=True):
    """A ``SlipstreamError``: the name of its class and its three texts."""

    kind: str
    expected: str
    found: str
    remedy: str


class WireToken(msgspec.Struct, frozen=True, array_like=True):
    """``engine.events.EmittedToken``."""

    id: int
    text: str
    from_draft: bool
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class WireEvent(msgspec.Struct, frozen=True, array_like=True):
    """What a step did for one request.

    Attributes:
        request: the number in ``Submit``.
        tokens, text, finish_reason, stop, error: as ``engine.events.Event``.
        drafted, tested, accepted: of this step, for this request.
        reached: depths of its draft that were examined: ``accepted``, or one more.
        summary: ``Statistics.summary()`` without its rounds, on the last event, and beside it
            ``times`` {queue_s, prompt_s, draft_s, verify_s, sample_s, commit_s} and
            ``reused_tokens``.
    """

    request: int
    tokens: tuple[WireToken, ...]
    text: str
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    finish_reason: str | None = None
    stop: str | None = None
    error: WireError | None = None
    summary: dict[str, Any] | None = None
    reached: int = 0


class Load(msgspec.Struct, frozen=True, array_like=True):
    """State of the engine after a step.

    Attributes:
        running, waiting: requests.
        context_used: committed positions of the running requests.
        memory_bytes: of pages in use, kept prefixes included; ``memory_limit_bytes`` of all pages.
        kept_prefixes: entries of the prefix cache.
        steps: target passes since the start; ``rows`` of them in all.
        step_s: of the last pass.
        prompt_tokens_left: rows of prompts still to compute.
        verified_rows: rows of each pass since the frame before that verified drafts.
    """

    running: int = 0
    waiting: int = 0
    context_used: int = 0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    kept_prefixes: int = 0
    steps: int = 0
    rows: int = 0
    step_s: float = 0.0
    prompt_tokens_left: int = 0
    verified_rows: tuple[int, ...] = ()


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """A running request, told when it starts (for ``/slots``): its first event carries it.

    Attributes:
        request: its number.
        reused: prompt tokens taken from the prefix cache.
        queue_s: seconds it waited for a place.
    """

    request: int
    reused: int
    queue_s: float


class StepFrame(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """Everything since the frame before; sent after every step that has events, and at least every
    half second while the engine is busy."""

    events: tuple[WireEvent, ...]
    load: Load
    started: tuple[Slot, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    number: int
    value: dict[str, Any] = {}
    error: WireError | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """While the model loads: weight bytes."""

    done: int
    total: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The model is loaded.

    Attributes:
        facts: what ``/props`` says of model, backend and memory: ``model``, ``path``, ``sha256``,
            ``architecture``, ``context``, ``parallel``, ``backend``, ``isa``, ``threads``,
            ``precision``, ``kv_type``, ``exact`` (true, or why it is not guaranteed),
            ``weight_bytes``, ``vocabulary``.
        methods: method -> {``offered``: bool, ``reason``: why not, ``parameters``: in effect}.
        speculation: what a request without ``speculative`` gets.
    """

    facts: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    speculation: Speculation


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The worker cannot go on (or could not load); it exits after this frame."""

    error: WireError


ToWorker = Submit | Cancel | Ask | Stop
FromWorker = StepFrame | Answer | Progress | Ready | Failed


class Framing:
    """Cuts a byte stream into frames.

    Args:
        kind: union of structs that may come.
    """

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The frames that are complete now.

        Raises:
            ValueError: a frame is longer than ``MOST_FRAME_BYTES``.
            msgspec.DecodeError: a frame is malformed; the other process is another version.
        """
        self._held += data
        frames: list[Any] = []
        start = 0
        while len(self._held) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._held, start)
            if size > MOST_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            stop = start + _LENGTH.size + size
            if len(self._held) < stop:
                break
            frames.append(self._decoder.decode(memoryview(self._held)[start + _LENGTH.size : stop]))
            start = stop
        del self._held[:start]
        return frames


_ENCODER = msgspec.msgpack.Encoder()


def framed(frame: ToWorker | FromWorker) -> bytes:
    """One frame, its length included."""
    data = _ENCODER.encode(frame)
    return _LENGTH.pack(len(data)) + data
