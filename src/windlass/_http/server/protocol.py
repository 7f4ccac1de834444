"""A connection that nobody can hold without using it: uvicorn's, with deadlines and bounds of its own.

uvicorn waits for the head of a request for ever, however long it grows. Whoever trickles bytes into many
connections would keep everybody else out.
"""

from asyncio import TimerHandle, Transport
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from starlette.types import Receive, Send
from starlette.types import Scope as Connection
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..web.problems import SAFE_HEADERS, Problem, answer
from .cork import Corked

HEAD_SECONDS = 5.0
"""From a head's first byte to its last. An idle connection has uvicorn's own, longer time."""

LINGER_SECONDS = 5.0
"""For the rest of a body that was answered before it was all there: the sender is to see the answer."""

STALL_SECONDS = 30.0
"""For who asks and then takes nothing of the answer."""

MAX_HEAD = 16 * 1024

_BUSY = Problem(503, "busy", "too many connections; try again")
_MALFORMED = Problem(400, "malformed", "this is not HTTP as this server understands it")
_HEAD_TOO_LARGE = Problem(431, "head-too-large", f"the head of a request has at most {MAX_HEAD:,} bytes")


class GuardedProtocol(HttpToolsProtocol):
    """One connection, from its first byte to its last."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._most = self.limit_concurrency
        self.limit_concurrency = None  # Ours to heed: uvicorn's refusal is not a problem document.
        self._deadline: TimerHandle | None = None
        self._stall: TimerHandle | None = None
        self._in_head = False
        self._in_body = False
        self._unread = 0  # bytes of a head that is not all there yet
        self._head = 0  # bytes of its parts that are

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin; who never says a word is let go as an idle one is."""
        super().connection_made(cast("Transport", Corked(transport, self.loop)))
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over: nothing is waited for any more."""
        self._disarm()
        self.resume_writing()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes, of a head or of a body."""
        if self.transport.is_closing():
            return
        if not self._in_body:
            self._unread += len(data)
        super().data_received(data)
        if not (self._unread or self._in_head) or self.transport.is_closing():
            return  # Most heads come whole, and no clock need run.
        self._arm(HEAD_SECONDS, self._head_is_late)
        if self._unread > MAX_HEAD:
            self._refuse(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        self._head = 0
        self._in_head = True
        self._in_body = False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or what trails behind a body."""
        self._grow(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there: now the request begins, unless there are too many."""
        self._disarm()
        self._in_head = False
        self._in_body = True
        self._unread = 0
        app = self.app
        if self._most is not None and max(len(self.connections), len(self.tasks)) >= self._most:
            self.app = _busy
        try:
            super().on_headers_complete()
        finally:
            self.app = app

    def on_message_complete(self) -> None:
        """The body is there as well."""
        self._disarm()
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is out; what is still to come of the body is not waited for long."""
        super().on_response_complete()
        if self._in_body and not self.pipeline:
            self._arm(LINGER_SECONDS, self.transport.close)

    def pause_writing(self) -> None:
        """The other side takes nothing of what is sent."""
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It goes on taking."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's own words are not a problem document
        """Refuse what is no HTTP, or too much of it."""
        self._refuse(_HEAD_TOO_LARGE if self._head > MAX_HEAD else _MALFORMED)

    def _refuse(self, problem: Problem) -> None:
        self._disarm()
        cycle = self.cycle
        if (
            cycle is None or cycle.response_complete or not cycle.response_started
        ):  # In the midst of another answer this one would be read as a part of it.
            self.transport.write(_as_bytes(problem, self.server_state.default_headers))
        self.transport.close()

    def _grow(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            raise _HEAD_TOO_LARGE  # The parser stops, and says that it could not go on.

    def _head_is_late(self) -> None:
        self._deadline = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._arm(HEAD_SECONDS, self._head_is_late)  # Our turn, not theirs: perhaps we do not even read.
        else:
            self.transport.close()

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


async def _busy(connection: Connection, receive: Receive, send: Send) -> None:
    await answer(_BUSY, {**SAFE_HEADERS, "connection": "close"})(connection, receive, send)


def _as_bytes(problem: Problem, more: list[tuple[bytes, bytes]]) -> bytes:
    response = answer(problem, {**SAFE_HEADERS, "connection": "close"})
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in [*more, *response.raw_headers]]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
