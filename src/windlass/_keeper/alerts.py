"""The chore of raising and clearing dead-letter alerts, and of sending them to webhooks.

An alert's state is stored before anyone is notified, and holds each notice until the webhook has accepted it.
If the leader dies in between, its successor sends the notice, perhaps a second time under the same id.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from .._model.alert import Alert, AlertNotice, AlertState, DeadLetter, Turn
from .._model.brief import Brief
from .._model.filter import Filter, Page
from .._observe.logs import log_alert
from .._policy import alerts as policy
from .._policy.addresses import Network
from .._store.outage import ShardUnavailable
from .._store.protocol import Store, all_records
from .._webhook import WebhookResponse, alert_message, deliver, new_fetcher
from ..alerts import AlertEvent

logger = logging.getLogger("windlass.alerts")

MAX_EXAMPLES = 5  # dead letters named in a notice
MAX_DELIVERIES = 8  # webhooks at once


class AlertNotifier:
    """The receivers of alerts: the log, the program's listeners, and webhooks signed with a secret."""

    def __init__(self, secret: str | None = None, allowed: Sequence[Network] = ()) -> None:
        self.secret = secret
        self.fetcher = new_fetcher(allowed)
        self.listeners: list[Callable[[AlertEvent], None]] = []

    def notify(self, event: AlertEvent) -> None:
        """Log the event and call every listener, even if one raises."""
        for listener in (log_alert, *self.listeners):
            try:
                listener(event)
            except Exception:
                logger.exception("alert %s: a listener raised", event.alert)


class _Delivery(Brief, Struct, frozen=True):
    """A notice on its way to a webhook."""

    notice: AlertNotice
    url: str
    task: asyncio.Task[WebhookResponse]


class AlertWatch:
    """Evaluates every alert while its keeper leads.

    Only `evaluate_all` writes states. The end of a delivery calls `wake`, which must have it called again.
    """

    def __init__(self, store: Store, notifier: AlertNotifier, wake: Callable[[], None]) -> None:
        self._store = store
        self._notifier = notifier
        self._wake = wake
        self._deliveries: dict[str, _Delivery] = {}  # by alert
        self._unannounced: dict[str, AlertNotice] = {}  # by alert, until the store is known to have it
        self._warned_unsigned = False

    async def evaluate_all(self) -> None:
        """Count the dead letters of every alert, store and announce what changed, start deliveries."""
        alerts = await all_records(self._store, Alert)
        states = {state.name: state for state in await all_records(self._store, AlertState)}
        now = await self._store.now()
        problem: ShardUnavailable | None = None
        for alert in alerts:
            try:
                await self._evaluate(alert, states.pop(alert.name, AlertState(name=alert.name)), now)
            except ShardUnavailable as error:  # the other alerts are evaluated
                problem = problem or error
        for name in states:  # whose alert was removed
            await self._store.remove(AlertState, name)
            await self._cancel(name)
        if problem is not None:
            raise problem

    async def close(self) -> None:
        """Cancel deliveries. The next leader sends what was not accepted."""
        for name in [*self._deliveries]:
            await self._cancel(name)

    async def _evaluate(self, alert: Alert, stored: AlertState, now: datetime) -> None:
        self._announce(alert, stored)
        dead = policy.dead_letter_filter(alert, now)
        number = sum(count.number for count in await self._store.count(dead, ()))
        state, notice = policy.evaluate(alert, self._after_delivery(alert, stored, now), number, now)
        if notice is not None:
            if notice.turn is not Turn.CLEARED:
                notice = replace(notice, letters=await self._examples(dead))
            self._unannounced[alert.name] = notice
            if alert.webhook is not None:
                if (kept := len(state.unsent)) == policy.MAX_UNSENT:
                    logger.error("alert %s: dropping the oldest of %d undelivered notices", alert.name, kept)
                state = policy.add_notice(state, notice)
        if state != stored:
            await self._store.put(state)
        self._announce(alert, state)
        self._start_delivery(alert, state, now)

    def _announce(self, alert: Alert, stored: AlertState) -> None:
        """Notify once the store has the notice: a lost reply must neither silence nor repeat it."""
        notice = self._unannounced.get(alert.name)
        if notice is None or notice.id != stored.last:
            return
        del self._unannounced[alert.name]
        self._notifier.notify(
            AlertEvent(
                turn=notice.turn,
                alert=alert.name,
                number=notice.number,
                count=alert.count,
                window=alert.window,
                type=alert.type,
                queue=alert.queue,
                raised_at=notice.raised_at,
                at=notice.at,
            )
        )

    async def _examples(self, dead: Filter) -> tuple[DeadLetter, ...]:
        """Return a few dead letters, newest first, without anything that may be secret."""
        found = await self._store.find(dead, Page(limit=MAX_EXAMPLES, newest_first=True))
        return tuple(
            DeadLetter(id=one.id, type=one.type, queue=one.queue, error=one.error.type if one.error else "")
            for one in found.items
        )

    # -- the webhook ---------------------------------------------------------------------------------

    def _start_delivery(self, alert: Alert, state: AlertState, now: datetime) -> None:
        """Start to send the next notice, unless one of this alert is on its way."""
        notice = policy.next_notice(state, now)
        if notice is None or alert.webhook is None or alert.name in self._deliveries:
            return
        if len(self._deliveries) >= MAX_DELIVERIES:
            return  # the first one to end wakes the keeper
        if self._notifier.secret is None and not self._warned_unsigned:
            self._warned_unsigned = True
            logger.warning("webhooks are sent unsigned: set WINDLASS_WEBHOOK_SECRET or App(webhook_secret=…)")
        message, notifier = alert_message(alert, notice), self._notifier
        task = asyncio.create_task(deliver(alert.webhook, message, notifier.secret, notifier.fetcher))
        task.add_done_callback(lambda _: self._wake())
        self._deliveries[alert.name] = _Delivery(notice, alert.webhook, task)

    def _after_delivery(self, alert: Alert, state: AlertState, now: datetime) -> AlertState:
        """Return the state with the result of a delivery that has ended, if there is one."""
        delivery = self._deliveries.get(alert.name)
        if delivery is None or not delivery.task.done():
            return state
        del self._deliveries[alert.name]
        notice, answer = delivery.notice, delivery.task.result()
        origin = policy.webhook_origin(delivery.url)
        if answer.taken:
            logger.info("alert %s: %s accepted the notice that it is %s", alert.name, origin, notice.turn)
            return policy.mark_sent(state, notice.id)
        failure = (
            f"alert {alert.name}: {origin} rejected the notice that it is {notice.turn} ({answer.reason})"
        )
        if answer.gone and delivery.url == alert.webhook:  # else there is a new URL to try
            logger.error("%s; not retrying: give the alert another webhook, or none", failure)
            return policy.mark_sent(state, notice.id)
        after = policy.mark_failed(state, notice.id, now, random.random())
        retry = next((one for one in after.unsent if one.id == notice.id), None)
        if retry is None or retry.due_at is None:
            logger.error("%s; giving up after %d tries", failure, notice.tries + 1)
        else:
            logger.warning("%s; retrying in %.0f s", failure, (retry.due_at - now).total_seconds())
        return after

    async def _cancel(self, name: str) -> None:
        delivery = self._deliveries.pop(name, None)
        if delivery is not None:
            delivery.task.cancel()
            await asyncio.wait({delivery.task})
