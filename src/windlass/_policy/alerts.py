"""When an alert is raised, reminded of and cleared, and how long its webhook is tried. (L4)"""

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
_MAX_URL = 2_000


class AlertOptions(TypedDict, total=False):
    """What an alert is made of, beside its name."""

    type: str | None
    queue: str | None
    count: int
    window: timedelta | float | str | None
    hold: timedelta | float | str | None
    webhook: str | None


def new_alert(name: str, **options: Unpack[AlertOptions]) -> Alert:
    """An alert from what a person wrote; InvalidOption says what of it is not acceptable."""
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
    """Which tasks an alert counts."""
    return Filter(
        states=(State.DEAD,),
        types=None if alert.type is None else (alert.type,),
        queues=None if alert.queue is None else (alert.queue,),
        finished_after=None if alert.window is None else now - alert.window,
    )


def evaluate(
    alert: Alert, alarm: AlertState, number: int, now: datetime
) -> tuple[AlertState, AlertNotice | None]:
    """What becomes of an alarm now that there are so many dead letters, and what is to be told of it."""
    if alert.webhook is None and alarm.unsent:
        alarm = replace(alarm, unsent=())
    if number >= alert.count:
        alarm = replace(alarm, below_since=None)
        if alarm.raised_at is None:
            return _told(replace(alarm, raised_at=now), Turn.RAISED, number, now)
        if alarm.told_at is not None and now - alarm.told_at >= REMIND_EVERY:
            return _told(alarm, Turn.REMINDED, number, now)
        return alarm, None
    if alarm.raised_at is None:
        return alarm, None
    since = min(alarm.below_since or now, now)  # the clock may have been set back
    if now - since < alert.hold:
        return replace(alarm, below_since=since), None
    told, news = _told(alarm, Turn.CLEARED, number, now)
    return replace(told, raised_at=None, below_since=None), news


def _told(alarm: AlertState, turn: Turn, number: int, now: datetime) -> tuple[AlertState, AlertNotice]:
    raised_at = alarm.raised_at or now
    news = AlertNotice(
        # It goes into a header, where the name's letters may not: hence a digest of it.
        id=f"{turn}-{now:%Y%m%dT%H%M%S%fZ}-{sha256(alarm.name.encode()).hexdigest()[:16]}",
        turn=turn,
        number=number,
        at=now,
        raised_at=raised_at,
    )
    return replace(alarm, told_at=now, number=number, last=news.id), news


def add_notice(alarm: AlertState, news: AlertNotice) -> AlertState:
    """The alarm with one more message for its webhook. When too many wait, the oldest goes."""
    return replace(alarm, unsent=(*alarm.unsent, news)[-MAX_UNSENT:])


def next_notice(alarm: AlertState, now: datetime) -> AlertNotice | None:
    """The message whose time has come: in order, so that nobody hears of the end before the beginning."""
    if not alarm.unsent:
        return None
    first = alarm.unsent[0]
    if first.due_at is not None and now < first.due_at <= now + _LONGEST_DELAY:
        return None  # what is due later than any delay was set by a clock that has been set back
    return first


def mark_sent(alarm: AlertState, news_id: str) -> AlertState:
    """The alarm once its webhook has taken this message, or wants none."""
    return replace(alarm, unsent=tuple(news for news in alarm.unsent if news.id != news_id))


def mark_failed(alarm: AlertState, news_id: str, now: datetime, draw: float) -> AlertState:
    """The alarm once its webhook has not: tried again later, or after a day no more."""
    kept: list[AlertNotice] = []
    for news in alarm.unsent:
        if news.id != news_id:
            kept.append(news)
        elif now - news.at < GIVE_UP_AFTER:
            tries = news.tries + 1
            kept.append(replace(news, tries=tries, due_at=now + _BACKOFF(tries, draw)))
    return replace(alarm, unsent=tuple(kept))


def webhook_url(url: str) -> str:
    """A URL that messages can be sent to. A complaint does not repeat it: it may hold a secret."""
    if not isinstance(url, str) or not 0 < len(url) <= _MAX_URL:
        raise InvalidOption(f"a webhook is a URL of at most {_MAX_URL:,} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidOption("a webhook's URL is plain ASCII without spaces; percent-encode the rest")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidOption("the webhook is not a URL: its host or port cannot be read") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise InvalidOption("a webhook is an http:// or https:// URL with a host")
    if "@" in parts.netloc:
        raise InvalidOption(
            "a webhook's URL holds no user name or password; messages are signed instead: docs/alerts.md"
        )
    if parts.fragment:
        raise InvalidOption("a webhook's URL has no #fragment: it would not be sent")
    return url


def webhook_origin(url: str) -> str:
    """A webhook as it may be shown: where it is, not what its path or query holds."""
    parts = urlsplit(url)
    more = parts.path not in {"", "/"} or bool(parts.query)
    return f"{parts.scheme}://{parts.netloc}{'/…' if more else ''}"
