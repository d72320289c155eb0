"""One output of a request to llama-server's endpoints, as its events come."""

from __future__ import annotations

from slipstream.server.line_limits import LineLimits
from slipstream.server.order import Timing
from slipstream.server.replies import require_no_error
from slipstream.server.timings import observe
from slipstream.server.wire import WireEvent, WireToken


class LlamaOutput:
    """
    Args:
        index: of the output in the reply.
        prompt: of the prompt that it continues.
        timing: with the length of its prompt.
        limits: where it is cut.
        silent: nobody wants its text: the prompt was to be computed alone.

    Attributes:
        texts, tokens: shown so far; an end-of-generation token is among the tokens.
        finish_reason: why the engine ended it; None while it runs.
        stop: the stop string that ended it, if one did.
    """

    def __init__(
        self, index: int, prompt: int, timing: Timing, limits: LineLimits, *, silent: bool = False
    ) -> None:
        self.index = index
        self.prompt = prompt
        self.timing = timing
        self.silent = silent
        self.texts: list[str] = []
        self.tokens: list[WireToken] = []
        self.finish_reason: str | None = None
        self.stop: str | None = None
        self._limits = limits
        self._new_texts = 0
        self._new_tokens = 0

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def cut(self) -> bool:
        """Whether a line limit ended it, before the engine did."""
        return self._limits.ended

    @property
    def over(self) -> bool:
        return self.cut or self.finish_reason is not None

    @property
    def has_news(self) -> bool:
        """Whether ``news`` has anything."""
        return len(self.tokens) > self._new_tokens or any(self.texts[self._new_texts :])

    def take(self, event: WireEvent, now_s: float) -> None:
        """
        Args:
            now_s: clock reading.

        Raises:
            SlipstreamError: the event's; a cancellation that a limit did not ask for is one.
        """
        was_cut = self.cut
        if not was_cut or event.finish_reason != "cancelled":
            require_no_error(event)
        observe(self.timing, event, now_s)
        self.finish_reason, self.stop = event.finish_reason, event.stop
        if was_cut or self.silent:
            return
        text = self._limits.push(event.text, now_s)
        if event.finish_reason is not None:
            text += self._limits.flush()
        self.texts.append(text)
        self.tokens += event.tokens

    def news(self) -> tuple[str, list[WireToken]]:
        """Text and tokens since the call before."""
        text, tokens = "".join(self.texts[self._new_texts :]), self.tokens[self._new_tokens :]
        self._new_texts, self._new_tokens = len(self.texts), len(self.tokens)
        return text, tokens
