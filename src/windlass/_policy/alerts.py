"""When an alert is raised, repeated and cleared, and how long delivery to its webhook is retried."""

from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypedDict, Unpack
from urllib.parse import urlsplit

from msgspec.structs import replace

from .._model.alert import HOLD, Alert, AlertNotice, AlertState, Turn
from .._model.filter import Filter
from .._model.state import State
from ..errors import InvalidOption
from .backoff import Backoff
from .input.options import checked_name, parse_duration

REMIND_EVERY = timedelta(hours=24)
GIVE_UP_AFTER = timedelta(hours=24)
MAX_UNSENT = 20
_BACKOFF = Backoff(base=5, factor=2, cap=300, jitter=0.25)
_LONGEST_DELAY = timedelta(seconds=2 * _BACKOFF.cap)
MAX_URL = 2_000


class AlertOptions(TypedDict, total=False):
    """The options of an alert, as callers write them."""

    type: str | None
    queue: str | None
    count: int
    window: timedelta | float | str | None
    hold: timedelta | float | str | None
    webhook: str | None


def new_alert(name: str, **options: Unpack[AlertOptions]) -> Alert:
    """Return a validated alert. Raises InvalidOption."""
    type_name, queue, webhook = options.get("type"), options.get("queue"), options.get("webhook")
    window, hold = options.get("window"), options.get("hold")
    return Alert(
        name=checked_name(name, "alert"),
        type=None if type_name is None else checked_name(type_name, "type"),
        queue=None if queue is None else checked_name(queue, "queue"),
        count=options.get("count", 1),
        window=None if window is None else parse_duration(window, "window"),
        hold=HOLD if hold is None else parse_duration(hold, "hold"),
        webhook=None if webhook is None else webhook_url(webhook),
    )


def dead_letter_filter(alert: Alert, now: datetime) -> Filter:
    """Return the filter for the dead letters that an alert counts."""
    return Filter(
        states=(State.DEAD,),
        types=None if alert.type is None else (alert.type,),
        queues=None if alert.queue is None else (alert.queue,),
        finished_after=None if alert.window is None else now - alert.window,
    )


def evaluate(
    alert: Alert, state: AlertState, number: int, now: datetime
) -> tuple[AlertState, AlertNotice | None]:
    """Return the state of an alert given the present number of dead letters, and a notice if one is due."""
    if alert.webhook is None and state.unsent:
        state = replace(state, unsent=())
    if number >= alert.count:
        state = replace(state, below_since=None)
        if state.raised_at is None:
            return _notify(replace(state, raised_at=now), Turn.RAISED, number, now)
        if state.told_at is not None and now - state.told_at >= REMIND_EVERY:
            return _notify(state, Turn.REMINDED, number, now)
        return state, None
    if state.raised_at is None:
        return state, None
    since = min(state.below_since or now, now)  # the clock may have been set back
    if now - since < alert.hold:
        return replace(state, below_since=since), None
    notified, notice = _notify(state, Turn.CLEARED, number, now)
    return replace(notified, raised_at=None, below_since=None), notice


def _notify(state: AlertState, turn: Turn, number: int, now: datetime) -> tuple[AlertState, AlertNotice]:
    raised_at = state.raised_at or now
    notice = AlertNotice(
        # The id goes into an HTTP header, where the alert's name may not be valid: hence a digest.
        id=f"{turn}-{now:%Y%m%dT%H%M%S%fZ}-{sha256(state.name.encode()).hexdigest()[:16]}",
        turn=turn,
        number=number,
        at=now,
        raised_at=raised_at,
    )
    return replace(state, told_at=now, number=number, last=notice.id), notice


def add_notice(state: AlertState, notice: AlertNotice) -> AlertState:
    """Append a notice to those unsent. Beyond `MAX_UNSENT` the oldest is dropped."""
    return replace(state, unsent=(*state.unsent, notice)[-MAX_UNSENT:])


def next_notice(state: AlertState, now: datetime) -> AlertNotice | None:
    """Return the oldest unsent notice if it is due. Notices go out in order: cleared never before raised."""
    if not state.unsent:
        return None
    first = state.unsent[0]
    if first.due_at is not None and now < first.due_at <= now + _LONGEST_DELAY:
        return None  # A later due_at than any backoff gives is from before the clock was set back: ignored.
    return first


def mark_sent(state: AlertState, notice_id: str) -> AlertState:
    """Remove a notice that was delivered, or is not wanted."""
    return replace(state, unsent=tuple(notice for notice in state.unsent if notice.id != notice_id))


def mark_failed(state: AlertState, notice_id: str, now: datetime, draw: float) -> AlertState:
    """Schedule another attempt to send a notice, or drop it after `GIVE_UP_AFTER`."""
    kept: list[AlertNotice] = []
    for notice in state.unsent:
        if notice.id != notice_id:
            kept.append(notice)
        elif now - notice.at < GIVE_UP_AFTER:
            tries = notice.tries + 1
            kept.append(replace(notice, tries=tries, due_at=now + _BACKOFF(tries, draw)))
    return replace(state, unsent=tuple(kept))


def webhook_url(url: str) -> str:
    """Check a webhook's URL. Errors do not quote it, as it may hold a secret."""
    if not isinstance(url, str) or not 0 < len(url) <= MAX_URL:
        raise InvalidOption(f"webhook must be a URL of at most {MAX_URL:,} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidOption("webhook must be ASCII without spaces; percent-encode other characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidOption("webhook is not a valid URL: invalid host or port") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise InvalidOption("webhook must be an http:// or https:// URL with a host")
    if "@" in parts.netloc:
        raise InvalidOption(
            "webhook must not contain a user name or password; messages are signed instead (docs/alerts.md)"
        )
    if parts.fragment:
        raise InvalidOption("webhook must not contain a #fragment: it would not be sent")
    return url


def webhook_origin(url: str) -> str:
    """Return scheme and host of a webhook, which may be shown; path and query may hold secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:  # stored by a former version, which did not check it
        return "an invalid URL"
    more = parts.path not in {"", "/"} or bool(parts.query)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{'/…' if more else ''}"
