"""HTTP/1.1 on a connection: uvicorn's, with limits on the head of a request and on its body."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from slipstream.errors import RequestError, SlipstreamError
from slipstream.server.error_shapes import openai_error
from slipstream.server.http_messages import whole_reply
from slipstream.server.refusals import HeadTooLargeError

HEAD_S: Final = 10.0
"""For the head of a request to arrive: of the first one since the connection was made."""
MOST_HEAD_BYTES: Final = 1 << 16
LINGER_S: Final = 1.0
"""For a client that is still sending to read why it is refused."""
BODY_GRACE_S: Final = 10.0
"""Beyond the time that a body has, in which the application answers that it is late."""


class TimedProtocol(HttpToolsProtocol):
    """Ends connections whose head or body of a request does not arrive, or does not end.

    Attributes:
        body_s: for the body of a request, from the end of its head.
    """

    body_s: ClassVar[float] = 60.0

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._in_body = False
        self._head_bytes = 0
        self._deaf = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if not self._in_body and not self._in_head:
            self._await_head()  # also where it begins with empty lines, which begin no message
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES:
            self._refuse(
                HeadTooLargeError(
                    f"a head of at most {MOST_HEAD_BYTES} bytes", "more", "Shorten its headers."
                )
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # behind another in one packet
            self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._start_timer(self.body_s + BODY_GRACE_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn answers where the parser is at a loss."""
        del msg
        self._refuse(RequestError("a request in HTTP/1.1", "something else", "Mend the client."))

    def _refuse(self, error: SlipstreamError) -> None:
        """Answer, once, and read no more; a reply that runs is not broken into."""
        if self._deaf:
            return
        self._stop_timer()
        self._deaf = True
        if self.transport.is_closing():
            return
        if self.pipeline or (self._in_body and self.cycle.response_started):
            self.transport.close()
            return
        if self._is_answering and not self._in_body:
            self.cycle.keep_alive = False
            return
        if self._is_answering:  # the handler that awaits the body
            self.cycle.waiting_for_100_continue = False  # nothing may be written behind the end
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(whole_reply(error.http_status, openai_error(error)))
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._start_timer(HEAD_S)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._too_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self._in_head and self._is_answering:
            self._start_timer(HEAD_S)  # of the next request, which is not read meanwhile
        elif not self.transport.is_closing():
            self.transport.close()


def protocol_for(body_s: float) -> type[TimedProtocol]:
    """The protocol of a server whose bodies have that long."""
    return type("TimedProtocol", (TimedProtocol,), {"body_s": body_s})
