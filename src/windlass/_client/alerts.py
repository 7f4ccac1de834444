"""Alerts on dead letters: declare, list, add, remove and test them."""

from collections.abc import Iterable, Sequence
from typing import Unpack

from msgspec import Struct

from .._ids import new_id
from .._model.alert import Alert, AlertNotice, AlertState, Turn
from .._model.filter import By
from .._policy.addresses import parse_networks
from .._policy.alerts import AlertOptions, dead_letter_filter, new_alert
from .._policy.input.quote import quoted
from .._store.protocol import Store
from .._webhook import WebhookResponse, alert_message, deliver, new_fetcher
from ..alerts import checked_secret
from ..errors import InvalidOption, NotFound, Refused
from .records import audit_reveal, list_records


class AlertStatus(Struct, frozen=True, kw_only=True):
    """An alert, its state, and how many dead letters it counts now."""

    alert: Alert
    alarm: AlertState
    number: int
    exact: bool = True  # False: an estimate

    @property
    def raised(self) -> bool:
        """Whether it is raised. The keeper decides that, a few seconds after the number changes."""
        return self.alarm.raised_at is not None


class Alerts:
    """List, add, remove and test alerts: `app.operator.alerts`."""

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # for the audit log; None: a program, whose changes are not recorded

    async def list(self) -> Sequence[AlertStatus]:
        """List all alerts, by name."""
        alarms = {alarm.name: alarm for alarm in await list_records(self._store, AlertState)}
        alerts = await list_records(self._store, Alert)
        return [await self._status(alert, alarms.get(alert.name)) for alert in alerts]

    async def reveal(self) -> Sequence[AlertStatus]:
        """List all alerts to show their webhooks whole, and record that in the audit log."""
        found = await self.list()
        for alert in [one.alert for one in found if one.alert.webhook is not None]:
            await audit_reveal(self._store, self._by, f"alert {alert.name}")
        return found

    async def get(self, name: str) -> AlertStatus:
        """Return an alert; raises NotFound if there is none."""
        for found in await self.list():
            if found.alert.name == name:
                return found
        raise NotFound(f"there is no alert {quoted(name)}; `windlass alerts list` shows all alerts")

    async def add(self, name: str, **options: Unpack[AlertOptions]) -> Alert:
        """Add an alert, or replace the one of that name. Options: see `App.alert`. Raises InvalidOption."""
        alert = new_alert(name, **options)
        await self._store.open()
        await self._store.put(alert, self._by)
        return alert

    async def remove(self, name: str) -> None:
        """Remove an alert, raised or not; nothing more is sent. Raises NotFound if there is none."""
        await self._store.open()
        if not await self._store.remove(Alert, name, self._by):
            raise NotFound(f"there is no alert {quoted(name)}; `windlass alerts list` shows all alerts")
        await self._store.remove(AlertState, name)

    async def test(
        self, name: str, *, secret: str | None = None, allow_addresses: Iterable[str] = ()
    ) -> WebhookResponse:
        """Send a message in state "test" to the alert's webhook, from this process, and return the response.

        `secret` signs the message. `allow_addresses`: see `App`. Raises NotFound, InvalidOption if the alert
        has no webhook, or Refused if a server masks it.
        """
        status = await self.get(name)
        if status.alert.webhook is None:
            raise InvalidOption(f"the alert {name!r} has no webhook to test; it is only logged")
        if not status.alert.webhook.isascii():  # ends in an ellipsis, as servers show it
            raise Refused(
                f"the server masks the webhook of the alert {name!r}; to test it, use a key with the scope "
                f"work or reveal"
            )
        key = None if secret is None else checked_secret(secret)
        now = await self._store.now()
        notice = AlertNotice(id=new_id(), turn=Turn.RAISED, number=status.number, at=now, raised_at=now)
        sent = alert_message(status.alert, notice, is_trial=True)
        return await deliver(status.alert.webhook, sent, key, new_fetcher(parse_networks(allow_addresses)))

    async def _status(self, alert: Alert, alarm: AlertState | None) -> AlertStatus:
        counts = await self._store.count(dead_letter_filter(alert, await self._store.now()), ())
        return AlertStatus(
            alert=alert,
            alarm=alarm or AlertState(name=alert.name),
            number=sum(count.number for count in counts),
            exact=all(count.exact for count in counts),
        )
