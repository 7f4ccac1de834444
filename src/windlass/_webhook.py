"""Deliver an alert's message to its webhook: one signed POST with a deadline; redirects are not followed."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

from msgspec import Struct

from ._fetch import Fetcher, FetchError
from ._model.alert import Alert, AlertNotice, Turn
from ._model.brief import Brief
from ._policy.addresses import Network
from .alerts import ID_HEADER, TIME_HEADER, sign
from .errors import InvalidOption

DEADLINE = 5.0  # seconds for all of it: resolving, connecting, sending and the status line


class Message(Brief, Struct, frozen=True):
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


async def deliver(url: str, sent: Message, secret: str | None, fetcher: Fetcher) -> WebhookResponse:
    """Send a message and return what the receiver answered. Never raises."""
    try:
        fetched = await fetcher.fetch(url, "POST", body=sent.body, headers=_headers(sent, secret))
    except (FetchError, InvalidOption) as error:
        return WebhookResponse(reason=str(error))
    return WebhookResponse(status=fetched.status, reason=_described(fetched.status))


def new_fetcher(allowed: Sequence[Network] = ()) -> Fetcher:
    """Return the fetcher that webhooks are sent with."""
    return Fetcher(allowed, deadline=DEADLINE)


def _headers(sent: Message, secret: str | None) -> dict[str, str]:
    """Return the headers of Standard Webhooks, with the current time."""
    at = int(time.time())
    named = {ID_HEADER: sent.id, TIME_HEADER: str(at)}
    if secret is not None:
        named = sign(secret, sent.body, message_id=sent.id, at=at)
    return {**named, "Content-Type": "application/json"}


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _described(status: int) -> str:
    if 300 <= status < 400:
        return f"{status}: redirects are not followed; give the webhook its final URL"
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
