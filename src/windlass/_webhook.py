"""Deliver an alert's message to its webhook: one signed POST with a deadline; redirects are not followed."""

import asyncio
import json
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from msgspec import Struct

from ._model.alert import Alert, AlertNotice, Turn
from .alerts import ID_HEADER, TIME_HEADER, sign
from .errors import InvalidOption

DEADLINE = 5.0  # seconds for all of it: resolving, connecting, sending and the status line


class Message(Struct, frozen=True):
    """A message: its id, the same each time it is sent, and its body."""

    id: str
    body: bytes


class WebhookResponse(Struct, frozen=True, kw_only=True):
    """The HTTP status of a delivery, or why there is none; nothing of the URL or body: they may be secret."""

    status: int | None = None
    reason: str

    @property
    def taken(self) -> bool:
        """Whether the receiver accepted the message (2xx). A redirect is not followed, and does not count."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """Whether the receiver wants no more messages (410)."""
        return self.status == HTTPStatus.GONE


def alert_message(alert: Alert, notice: AlertNotice, *, is_trial: bool = False) -> Message:
    """Build the message of a notice, or a trial in state "test". It has the types of errors, no texts."""
    state = "test" if is_trial else "cleared" if notice.turn is Turn.CLEARED else "raised"
    data = {
        "id": notice.id,
        "alert": alert.name,
        "state": state,
        "type": alert.type,
        "queue": alert.queue,
        "count": alert.count,
        "window": None if alert.window is None else alert.window.total_seconds(),
        "reminder": notice.turn is Turn.REMINDED,
        "number": notice.number,
        "raised_at": None if is_trial else _iso(notice.raised_at),
        "dead_letters": [
            {"id": one.id, "type": one.type, "queue": one.queue, "error_type": one.error}
            for one in notice.letters
        ],
    }
    whole = {"type": f"windlass.alert.{state}", "timestamp": _iso(notice.at), "data": data}
    return Message(notice.id, json.dumps(whole).encode())


async def deliver(url: str, sent: Message, secret: str | None) -> WebhookResponse:
    """Send a message from a thread of its own, within DEADLINE. Never raises."""
    loop = asyncio.get_running_loop()
    response: asyncio.Future[WebhookResponse] = loop.create_future()
    post = _Post(url, sent, secret)

    def work() -> None:
        result = post.run()
        with suppress(RuntimeError):  # the loop was closed: no caller waits any more
            loop.call_soon_threadsafe(_resolve, response, result)

    # Not in the loop's executor: its threads are joined when the program ends.
    threading.Thread(target=work, name="windlass-webhook", daemon=True).start()
    try:
        async with asyncio.timeout(DEADLINE):
            return await response
    except TimeoutError:
        return WebhookResponse(reason=_timed_out())
    finally:
        post.abort()


class _Post:
    """One POST by the standard library: no proxies, redirects or cookies."""

    def __init__(self, url: str, sent: Message, secret: str | None) -> None:
        self._parts = urlsplit(url)
        self._sent = sent
        self._secret = secret
        self._connection: HTTPConnection | None = None
        self._aborted = False

    def run(self) -> WebhookResponse:
        """Send and return the outcome; blocks."""
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        target = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        try:
            self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=DEADLINE)
            self._connection.connect()
            if self._aborted:
                return WebhookResponse(reason="aborted")
            self._connection.request("POST", target, self._sent.body, self._headers())
            status = self._connection.getresponse().status  # the rest is not read
        except (OSError, HTTPException, ValueError, InvalidOption) as error:
            return WebhookResponse(reason=_reason(error))
        finally:
            if self._connection is not None:
                self._connection.close()
        return WebhookResponse(status=status, reason=_described(status))

    def abort(self) -> None:
        """End the thread's wait, if it still waits."""
        self._aborted = True
        connected = None if self._connection is None else self._connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _headers(self) -> dict[str, str]:
        """Return the headers of Standard Webhooks, with the current time, and those of any POST."""
        at = int(time.time())
        named = {ID_HEADER: self._sent.id, TIME_HEADER: str(at)}
        if self._secret is not None:
            named = sign(self._secret, self._sent.body, message_id=self._sent.id, at=at)
        return {**named, "Content-Type": "application/json", "User-Agent": "windlass", "Connection": "close"}


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _resolve(response: asyncio.Future[WebhookResponse], result: WebhookResponse) -> None:
    if not response.done():
        response.set_result(result)


def _reason(error: Exception) -> str:
    """Describe an error by its type and the system's message; never by what the receiver sent."""
    if isinstance(error, TimeoutError):
        return _timed_out()
    detail = error.strerror if isinstance(error, OSError) else None
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__


def _timed_out() -> str:
    return f"no response within {DEADLINE:g} s"


def _described(status: int) -> str:
    if 300 <= status < 400:
        return f"{status}: redirects are not followed; give the webhook its final URL"
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
