"""uvicorn's HTTP protocol with deadlines and bounds: no client can hold a connection without using it.

uvicorn itself waits for the head of a request for ever, however long it grows.
"""

import re
from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, NoReturn, cast

from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ..web.problems import SAFE_HEADERS, Problem, problem_response
from .connections import Connections, Place

HEAD_SECONDS = 5.0
"""Time for the first byte of a connection, and for the rest of a request head after its first byte.

A connection that has had a response may be idle for uvicorn's longer keep-alive timeout."""

LINGER_SECONDS = 5.0
"""Time for the rest of a body after the response, so that the client can read the response."""

STALL_SECONDS = 30.0
"""Time without progress in sending a response before the connection is aborted."""

MAX_HEAD = 16 * 1024

_MALFORMED = Problem("malformed", "not a valid HTTP/1.1 request")
_HEAD_TOO_LARGE = Problem("head-too-large", f"the request head is larger than {MAX_HEAD:,} bytes")


class GuardedProtocol(HttpToolsProtocol):
    """One connection, among the others of its server."""

    def __init__(self, *args: Any, among: Connections, **named: Any) -> None:
        super().__init__(*args, **named)
        self.address = ""
        self.place: Place | None = None
        self._among = among
        self._deadline: TimerHandle | None = None
        self._stall: TimerHandle | None = None
        self._in_head = False
        self._in_body = False
        self._unread = 0  # bytes received of an incomplete head
        self._head = 0  # bytes of URL and headers parsed so far
        self._problem = _MALFORMED
        self._running: RequestResponseCycle | None = None  # uvicorn's `cycle` is the last of a pipeline

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Wait for the first byte, but not for long: a client may never send anything."""
        super().connection_made(cast("Transport", HeadDelayTransport(transport, self.loop)))
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)
        self.address = self.client[0] if self.client else ""
        self._among.add(self)

    def evict(self) -> None:
        """Close the connection, to make room for another."""
        if self._stall is None:
            self.transport.close()
        else:
            self.transport.abort()  # its client does not read: a close would wait for it

    def connection_lost(self, exc: Exception | None) -> None:
        """End the running request and forget all of them: they refer to this connection.

        The collector of a server seldom runs, and thousands of requests may wait in a pipeline.
        """
        self._among.remove(self)
        self._stop_deadline()
        self.resume_writing()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        self._running = None
        self.cycle = None  # type: ignore[assignment]  # as before the first request

    def data_received(self, data: bytes) -> None:
        """Start the deadline for the head unless it has arrived whole; refuse one that is too large."""
        if self.transport.is_closing():
            return
        if not self._in_body:
            self._unread += len(data)
        super().data_received(data)
        if not (self._unread or self._in_head) or self.transport.is_closing():
            return
        self._start_deadline(HEAD_SECONDS, self._head_timed_out)
        if self._unread > MAX_HEAD:
            self._refuse(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._head = 0
        self._in_head = True
        self._in_body = False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Drop trailers: uvicorn would add them to the headers of the running request."""
        self._grow(len(name) + len(value))
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Run the request after those before it, or respond 503 or 429 if there are too many connections."""
        flaw = flaw_in_head(self.parser.get_http_version(), self.url, self.headers)
        if flaw is not None:
            self._stop_parser(Problem("malformed", flaw))
        self._stop_deadline()
        self._in_head = False
        self._in_body = True
        self._unread = 0
        refusal = self._among.refusal(self, self.url.partition(b"?")[0])
        self._among.move(self, Place.BUSY)
        app = self.app
        if refusal is not None:
            self.app = _closing_app(refusal)
        try:
            super().on_headers_complete()
        finally:
            self.app = app
        if not self.pipeline:
            self._running = self.cycle

    def on_message_complete(self) -> None:
        """Stop the deadline: the body has arrived."""
        self._stop_deadline()
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait only briefly for the rest of the body."""
        pipelined = bool(self.pipeline)
        if pipelined:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if pipelined:
            return
        if self._stall is None:
            self._among.move(self, Place.IDLE)
        if self._in_body:
            self._start_deadline(LINGER_SECONDS, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(STALL_SECONDS, self.transport.abort)
            self._among.hold_unread(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
            is_done = self.cycle is None or self.cycle.response_complete
            self._among.move(self, Place.IDLE if is_done else Place.BUSY)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's text is not a problem document
        self._refuse(self._problem)

    def _refuse(self, problem: Problem) -> None:
        self._stop_deadline()
        cycle = self.cycle
        # within another response it would be read as part of that
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_as_bytes(problem, self.server_state.default_headers))
        self.transport.close()

    def _grow(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            self._stop_parser(_HEAD_TOO_LARGE)

    def _stop_parser(self, problem: Problem) -> NoReturn:
        """Raise within a callback of the parser, which then calls send_400_response."""
        self._problem = problem
        raise problem

    def _head_timed_out(self) -> None:
        self._deadline = None
        if self.cycle is not None and not self.cycle.response_complete:
            # our response is due first; reading may be paused
            self._start_deadline(HEAD_SECONDS, self._head_timed_out)
        else:
            self.transport.close()

    def _start_deadline(self, seconds: float, then: Callable[[], None]) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(seconds, then)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HeadDelayTransport:
    """Delays the response head so that head and body leave in one write; at most until the next loop turn."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write data after a delayed head; delay data that is a head."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Write a delayed head, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            data, self._head = self._head, b""
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _closing_app(problem: Problem) -> ASGIApp:
    """Return an app that responds with a problem and closes the connection."""
    return problem_response(problem, {**SAFE_HEADERS, "connection": "close"})


def _as_bytes(problem: Problem, more: list[tuple[bytes, bytes]]) -> bytes:
    response = problem_response(problem, {**SAFE_HEADERS, "connection": "close"})
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in [*more, *response.raw_headers]]
    return b"\r\n".join([*lines, b"", bytes(response.body)])


# -- request heads that have one meaning only ----------------------------------------------------------


_VERSIONS = ("1.1", "1.0")
_HOST = re.compile(rb"([a-z0-9._~%!$&'()*+;=-]+|\[[0-9a-f:.]+\])(:[0-9]{0,5})?", re.IGNORECASE)
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)


def flaw_in_head(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return what is wrong with a request head, or None.

    With two hosts, or another one in the target than in Host, a proxy and this server could take different
    ones for the host that is meant; with several transfer codings, different ends for the end of the body.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if version not in _VERSIONS:
        return "the version of HTTP must be 1.1 or 1.0"
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        return "a request needs exactly one Host header, with a host name"
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and (version == "1.0" or len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
        return "the only transfer coding is chunked, given once, in HTTP/1.1"
    if not target.startswith(b"/") and target != b"*":
        absolute = _ABSOLUTE.match(target)
        if absolute is None or absolute[1].lower() != hosts[0].lower():
            return "the target must be a path, or a URL whose host is the one in Host"
    return None
