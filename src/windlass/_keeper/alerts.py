"""The chore of noticing that too many tasks have died, and of telling whoever should know. (L4)

An alarm is written before it is told, and a message stays in it until the webhook has taken it. So a
leader that dies on the way costs no message; its successor may send one again, under the same id.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from .._model.alert import Alert, AlertNotice, AlertState, DeadLetter, Turn
from .._model.filter import Filter, Page
from .._observe.logs import log_alert
from .._policy.alerts import (
    MAX_UNSENT,
    add_notice,
    dead_letter_filter,
    evaluate,
    mark_failed,
    mark_sent,
    next_notice,
    webhook_origin,
)
from .._store.protocol import Store, all_records
from .._webhook import Answer, deliver, message
from ..alerts import AlertEvent

logger = logging.getLogger("windlass.alerts")

MAX_LETTERS = 5
MAX_SENDING = 8  # webhooks at once
R = TypeVar("R", Alert, AlertState)


class Alerting:
    """How alerts are told: signed with this secret, and to these listeners beside the log."""

    def __init__(self, secret: str | None = None) -> None:
        self.secret = secret
        self.listeners: list[Callable[[AlertEvent], None]] = []

    def tell(self, event: AlertEvent) -> None:
        """Log it, and call the listeners; one that raises keeps nobody else from hearing."""
        for listener in (log_alert, *self.listeners):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener to alerts failed at alert %s", event.alert)


class Sending(Struct, frozen=True):
    """A message on its way."""

    news: AlertNotice
    url: str
    task: asyncio.Task[Answer]


class AlertWatch:
    """Looks at every alert while its keeper leads. Only a look writes alarms: what is sent meanwhile is noted
    by the next one, for which `wake` asks."""

    def __init__(self, store: Store, alerting: Alerting, wake: Callable[[], None]) -> None:
        self._store = store
        self._alerting = alerting
        self._wake = wake
        self._sending: dict[str, Sending] = {}
        self._unheard: dict[str, AlertNotice] = {}  # told once the store is known to have it
        self._warned = False

    async def look(self) -> None:
        """Judge every alert by the dead letters there are, and send on what is to be sent."""
        alerts = await all_records(self._store, Alert)
        alarms = {alarm.name: alarm for alarm in await all_records(self._store, AlertState)}
        now = await self._store.now()
        for alert in alerts:
            await self._judge(alert, alarms.pop(alert.name, AlertState(name=alert.name)), now)
        for name in alarms:  # whose alert was removed
            await self._store.remove(AlertState, name)
            await self._drop(name)

    async def close(self) -> None:
        """Send no more. What was not taken is sent by the next leader."""
        for name in [*self._sending]:
            await self._drop(name)

    async def _judge(self, alert: Alert, standing: AlertState, now: datetime) -> None:
        self._hear(alert, standing)
        dead = dead_letter_filter(alert, now)
        number = sum(count.number for count in await self._store.count(dead, ()))
        alarm, news = evaluate(alert, self._noted(alert, standing, now), number, now)
        if news is not None:
            if news.turn is not Turn.CLEARED:
                news = replace(news, letters=await self._some(dead))
            self._unheard[alert.name] = news
            if alert.webhook is not None:
                if len(alarm.unsent) == MAX_UNSENT:
                    logger.error("alert %s: too many messages wait; the oldest is dropped", alert.name)
                alarm = add_notice(alarm, news)
        if alarm != standing:
            await self._store.put(alarm)
        self._hear(alert, alarm)
        self._send(alert, alarm, now)

    def _hear(self, alert: Alert, kept: AlertState) -> None:
        """Tell what the store has. A reply that was lost must neither silence an alert nor tell it twice."""
        news = self._unheard.get(alert.name)
        if news is None or news.id != kept.last:
            return
        del self._unheard[alert.name]
        self._alerting.tell(
            AlertEvent(
                turn=news.turn,
                alert=alert.name,
                number=news.number,
                count=alert.count,
                window=alert.window,
                type=alert.type,
                queue=alert.queue,
                raised_at=news.raised_at,
                at=news.at,
            )
        )

    async def _some(self, dead: Filter) -> tuple[DeadLetter, ...]:
        """A few of them, the last enqueued first, without anything that may be secret."""
        found = await self._store.find(dead, Page(limit=MAX_LETTERS, newest_first=True))
        return tuple(
            DeadLetter(
                id=task.id,
                type=task.type,
                queue=task.queue,
                error="" if task.error is None else task.error.type,
            )
            for task in found.items
        )

    # -- the webhook ---------------------------------------------------------------------------------

    def _send(self, alert: Alert, alarm: AlertState, now: datetime) -> None:
        """Begin to send what is next, unless something is on its way."""
        news = next_notice(alarm, now)
        if news is None or alert.webhook is None or alert.name in self._sending:
            return
        if len(self._sending) >= MAX_SENDING:
            return  # the next look, which whoever comes home asks for
        if self._alerting.secret is None and not self._warned:
            self._warned = True
            logger.warning("alerts are sent unsigned: set WINDLASS_WEBHOOK_SECRET, or App(webhook_secret=…)")
        sending = deliver(alert.webhook, message(alert, news), self._alerting.secret)
        task = asyncio.create_task(sending)
        task.add_done_callback(lambda _: self._wake())
        self._sending[alert.name] = Sending(news, alert.webhook, task)

    def _noted(self, alert: Alert, alarm: AlertState, now: datetime) -> AlertState:
        """The alarm after what has come of sending its message."""
        sending = self._sending.get(alert.name)
        if sending is None or not sending.task.done():
            return alarm
        del self._sending[alert.name]
        news, answer = sending.news, sending.task.result()
        where = webhook_origin(sending.url)
        if answer.taken:
            logger.info("alert %s: %s was told that it is %s", alert.name, where, news.turn)
            return mark_sent(alarm, news.id)
        told = f"alert {alert.name}: {where} was not told that it is {news.turn} ({answer.reason})"
        if answer.gone and sending.url == alert.webhook:  # else there is a new place to try
            logger.error("%s; not tried again: give the alert another webhook, or none", told)
            return mark_sent(alarm, news.id)
        after = mark_failed(alarm, news.id, now, random.random())
        again = next((one for one in after.unsent if one.id == news.id), None)
        if again is None or again.due_at is None:
            logger.error("%s; given up after %d tries", told, news.tries + 1)
        else:
            logger.warning("%s; tried again in %.0f s", told, (again.due_at - now).total_seconds())
        return after

    async def _drop(self, name: str) -> None:
        sending = self._sending.pop(name, None)
        if sending is not None:
            sending.task.cancel()
            await asyncio.wait({sending.task})
