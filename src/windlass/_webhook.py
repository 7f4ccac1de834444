"""Sending an alert's message to its webhook: one POST, signed, bounded in time, following nothing."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from msgspec import Struct

from ._model.alert import Alert, AlertNotice, Turn
from .alerts import ID_HEADER, TIME_HEADER, sign
from .errors import InvalidOption

DEADLINE = 5.0  # seconds for all of it: finding the host, connecting, sending, the answer's first line


class Message(Struct, frozen=True):
    """What is sent: its id, the same in every try, and its body."""

    id: str
    body: bytes


class Answer(Struct, frozen=True, kw_only=True):
    """What came of it: the status, or why there is none. Nothing of the URL or of what the other wrote."""

    status: int | None = None
    reason: str

    @property
    def taken(self) -> bool:
        """Whether the message has arrived. A redirect has not taken it."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """Whether the other side says that it wants no more."""
        return self.status == HTTPStatus.GONE


def message(alert: Alert, news: AlertNotice) -> Message:
    """The message. It names dead letters and the types of their errors; never payloads, never error texts."""
    cleared = news.turn is Turn.CLEARED
    return _encoded(
        alert,
        news.id,
        "cleared" if cleared else "raised",
        news.at,
        {
            "reminder": news.turn is Turn.REMINDED,
            "number": news.number,
            "raised_at": _iso(news.raised_at),
            "dead_letters": [
                {"id": one.id, "type": one.type, "queue": one.queue, "error_type": one.error}
                for one in news.letters
            ],
        },
    )


def trial(alert: Alert, news_id: str, number: int, at: datetime) -> Message:
    """A message that says it is none: for trying a webhook out."""
    about: dict[str, object] = {
        "reminder": False,
        "number": number,
        "raised_at": None,
        "dead_letters": [],
    }
    return _encoded(alert, news_id, "test", at, about)


async def deliver(url: str, sent: Message, secret: str | None) -> Answer:
    """Send it, from a thread of its own, so that nothing waits for who is slow. It never raises."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Answer] = loop.create_future()
    posting = _Posting(url, sent, secret)

    def work() -> None:
        answer = posting.run()
        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(_give, answered, answer)

    # Not one of the loop's own threads: those are waited for when the program ends.
    threading.Thread(target=work, name="windlass-webhook", daemon=True).start()
    try:
        async with asyncio.timeout(DEADLINE):
            return await answered
    except TimeoutError:
        return Answer(reason=_silence())
    finally:
        posting.give_up()


class _Posting:
    """One POST. Standard library, so neither proxies nor redirects nor cookies come into it."""

    def __init__(self, url: str, sent: Message, secret: str | None) -> None:
        self._parts = urlsplit(url)
        self._sent = sent
        self._secret = secret
        self._connection: HTTPConnection | None = None
        self._given_up = False

    def run(self) -> Answer:
        """Blocks until there is an answer, or none is to be had."""
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        target = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        try:
            self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=DEADLINE)
            self._connection.connect()
            if self._given_up:
                return Answer(reason="given up")
            self._connection.request("POST", target, self._sent.body, self._headers())
            status = self._connection.getresponse().status  # what else it says is not read
        except (OSError, HTTPException, ValueError, InvalidOption) as error:
            return Answer(reason=_reason(error))
        finally:
            if self._connection is not None:
                self._connection.close()
        return Answer(status=status, reason=_meaning(status))

    def give_up(self) -> None:
        """Nobody waits any more: wake the thread if it still does. Giving up what has ended is harmless."""
        self._given_up = True
        connected = None if self._connection is None else self._connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _headers(self) -> dict[str, str]:
        """Those of Standard Webhooks, as of this try, and what else a POST needs."""
        at = int(time.time())
        named = {ID_HEADER: self._sent.id, TIME_HEADER: str(at)}
        if self._secret is not None:
            named = sign(self._secret, self._sent.body, message_id=self._sent.id, at=at)
        return {**named, "Content-Type": "application/json", "User-Agent": "windlass", "Connection": "close"}


def _encoded(alert: Alert, news_id: str, state: str, at: datetime, about: Mapping[str, object]) -> Message:
    data = {
        "id": news_id,
        "alert": alert.name,
        "state": state,
        "type": alert.type,
        "queue": alert.queue,
        "count": alert.count,
        "window": None if alert.window is None else alert.window.total_seconds(),
        **about,
    }
    whole = {"type": f"windlass.alert.{state}", "timestamp": _iso(at), "data": data}
    return Message(news_id, json.dumps(whole).encode())


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _give(answered: asyncio.Future[Answer], answer: Answer) -> None:
    if not answered.done():
        answered.set_result(answer)


def _reason(error: Exception) -> str:
    """What the system says; never what the other side wrote, which may be anything."""
    if isinstance(error, TimeoutError):
        return _silence()
    said = error.strerror if isinstance(error, OSError) else None
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _silence() -> str:
    return f"no answer within {DEADLINE:g} s"


def _meaning(status: int) -> str:
    if 300 <= status < 400:
        return f"{status}: redirects are not followed; give the webhook its final URL"
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
