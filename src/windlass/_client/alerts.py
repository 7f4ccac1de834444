"""Alerts: what people and programs say about when dead letters are too many. (L4)"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Unpack

import msgspec
from msgspec import Struct

from .._ids import new_id
from .._model.alert import Alert, AlertState
from .._model.filter import By
from .._model.record import Declaration
from .._policy.alerts import AlertOptions, dead_letter_filter, new_alert
from .._policy.input.quoting import quoted
from .._store.protocol import Store
from .._webhook import Answer, deliver, trial
from ..alerts import checked_secret
from ..errors import InvalidOption, NotFound
from .declarations import every
from .loop import LoopThread


class AlertStatus(Struct, frozen=True, kw_only=True):
    """An alert, what it has come to, and how many dead letters there are for it now."""

    alert: Alert
    alarm: AlertState
    number: int
    exact: bool = True  # False: an estimate

    @property
    def raised(self) -> bool:
        """Whether it is raised. The keeper says so, a few seconds after the number does."""
        return self.alarm.raised_at is not None


class Alerts:
    """See alerts, add and remove them while everything runs."""

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # whom the audit log names; None: a program, which it does not tell of

    async def list(self) -> Sequence[AlertStatus]:
        """All of them, by name."""
        alarms = {alarm.name: alarm for alarm in await every(self._store, AlertState)}
        alerts = await every(self._store, Alert)
        return [await self._status(alert, alarms.get(alert.name)) for alert in alerts]

    async def get(self, name: str) -> AlertStatus:
        """One of them; NotFound if there is none."""
        for found in await self.list():
            if found.alert.name == name:
                return found
        raise NotFound(f"there is no alert {quoted(name)}; `windlass alerts list` shows those there are")

    async def add(self, name: str, **options: Unpack[AlertOptions]) -> Alert:
        """Add an alert, in place of the one of that name if there is one."""
        alert = new_alert(name, **options)
        await self._store.open()
        await self._store.put(alert, self._by)
        return alert

    async def remove(self, name: str) -> None:
        """Forget an alert, raised or not; nothing more is told of it. NotFound if there is none."""
        await self._store.open()
        if not await self._store.remove(Alert, name, self._by):
            raise NotFound(f"there is no alert {quoted(name)}; `windlass alerts list` shows those there are")
        await self._store.remove(AlertState, name)

    async def test(self, name: str, *, secret: str | None = None) -> Answer:
        """Send a message in state "test" to the alert's webhook, from here; answers with what came of it."""
        status = await self.get(name)
        if status.alert.webhook is None:
            raise InvalidOption(f"the alert {name!r} has no webhook to try: it is told to the log alone")
        key = None if secret is None else checked_secret(secret)
        sent = trial(status.alert, new_id(), status.number, await self._store.now())
        return await deliver(status.alert.webhook, sent, key)

    async def _status(self, alert: Alert, alarm: AlertState | None) -> AlertStatus:
        counts = await self._store.count(dead_letter_filter(alert, await self._store.now()), ())
        return AlertStatus(
            alert=alert,
            alarm=AlertState(name=alert.name) if alarm is None else alarm,
            number=sum(count.number for count in counts),
            exact=all(count.exact for count in counts),
        )


class SyncAlerts:
    """See alerts, add and remove them, blocking."""

    def __init__(self, alerts: Alerts, loop: LoopThread) -> None:
        self._alerts = alerts
        self._loop = loop

    def list(self) -> Sequence[AlertStatus]:
        """All of them, by name."""
        return self._loop.run(self._alerts.list())

    def get(self, name: str) -> AlertStatus:
        """One of them; NotFound if there is none."""
        return self._loop.run(self._alerts.get(name))

    def add(self, name: str, **options: Unpack[AlertOptions]) -> Alert:
        """Add an alert, in place of the one of that name if there is one."""
        return self._loop.run(self._alerts.add(name, **options))

    def remove(self, name: str) -> None:
        """Forget an alert; NotFound if there is none."""
        self._loop.run(self._alerts.remove(name))

    def test(self, name: str, *, secret: str | None = None) -> Answer:
        """Send a message in state "test" to the alert's webhook, from here."""
        return self._loop.run(self._alerts.test(name, secret=secret))


class DeclaredAlerts:
    """The alerts that a program declares. They are put when they are new or have changed since they were put:
    what an operator does to them stands until then."""

    def __init__(self) -> None:
        self._alerts: dict[str, Alert] = {}

    def add(self, alert: Alert) -> None:
        """Declare one."""
        if self._alerts.setdefault(alert.name, alert) != alert:
            raise InvalidOption(f"the alert {alert.name!r} is declared twice; give one of them another name")

    async def publish(self, store: Store) -> None:
        """Put what is new or has changed."""
        if not self._alerts:
            return
        told = {one.name: one.body for one in await every(store, Declaration)}
        for alert in self._alerts.values():
            # Its digest, for the webhook's sake: one place that holds it is enough.
            said = sha256(msgspec.json.encode(alert)).hexdigest()
            if told.get(f"alert/{alert.name}") != said:
                await store.put(alert)
                await store.put(Declaration(name=f"alert/{alert.name}", body=said))
