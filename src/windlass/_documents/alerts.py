"""Alerts on dead letters."""

from typing import Literal

from msgspec import Struct

from .._client.alerts import AlertStatus
from .._model.brief import Brief
from .._policy.alerts import webhook_origin
from .fields import Instant, build_document


class AlertDocument(Brief, Struct, kw_only=True):
    """An alert: `state`, the `number` of dead letters it counts now, and the `count` that raises it.

    `window` null: dead letters of any age. `webhook` shows only the host unless revealed; `unsent` messages
    wait to be delivered. `told_at` is when the last message was written. While it is raised, `below_since`
    is when the number fell below the count; after `hold` seconds it is cleared.
    """

    name: str
    state: Literal["raised", "quiet"]
    raised_at: Instant | None
    below_since: Instant | None
    told_at: Instant | None
    number: int
    exact: bool
    count: int
    window: float | None
    hold: float
    type: str | None
    queue: str | None
    webhook: str | None
    unsent: int


class AlertList(Struct, kw_only=True):
    """Every alert, by name."""

    items: list[AlertDocument]


def alert_document(status: AlertStatus, *, reveal: bool = False) -> AlertDocument:
    """Build an alert's document; the path of its webhook, often a secret, is left out unless `reveal`."""
    url = status.alert.webhook
    return build_document(
        AlertDocument,
        status,
        status.alert,
        status.alarm,
        state="raised" if status.raised else "quiet",
        webhook=url if url is None or reveal else webhook_origin(url),
        unsent=len(status.alarm.unsent),
    )
