"""The queues, limits and alerts that a program declares, and how they are published to the store.

What the store holds applies. A declaration is stored when it is new or has changed since it was last stored;
until then an operator's changes stay. So restarting a worker undoes nothing, and deploying a new number does.
"""

import logging
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import asdict

from .._handler.spec import HandlerSpec
from .._model.alert import Alert
from .._model.limit import Limit
from .._model.queue import QueueSettings
from .._model.record import Declaration, Record
from .._policy.input.options import checked_name
from .._policy.order.limit_options import LimitOptions, check_field, new_limit
from .._policy.order.queue_options import QueueChanges, changed_queue
from .._policy.order.window_options import format_window
from .._store.protocol import Capability, Store
from ..errors import InvalidOption
from .records import change_record, list_records

logger = logging.getLogger("windlass.app")


class Declarations:
    """The queues, limits and alerts that a program declares."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueChanges] = {}
        self._limits: dict[str, Limit] = {}
        self._alerts: dict[str, Alert] = {}

    def queue(self, name: str, options: QueueChanges) -> None:
        """Declare settings of a queue; what is not given, or None, is as an operator has set it."""
        given: Any = {key: value for key, value in options.items() if value is not None}
        settings = changed_queue(QueueSettings(name=checked_name(name, "queue")), given)
        self._queues[name] = exact(settings, given)

    def limit(self, name: str, options: LimitOptions, types: Mapping[str, HandlerSpec]) -> None:
        """Declare a limit; raises InvalidOption if it is invalid or the name is taken by another."""
        limit = new_limit(name, options)
        if self._limits.get(name, limit) != limit:
            raise InvalidOption(f"the limit {name!r} is already declared on this app; choose another name")
        check_limit(limit, types)
        self._limits[name] = limit

    def alert(self, alert: Alert) -> None:
        """Declare an alert; raises InvalidOption if the name is taken by another."""
        if self._alerts.setdefault(alert.name, alert) != alert:
            raise InvalidOption(
                f"the alert {alert.name!r} is already declared on this app; choose another name"
            )

    async def publish(self, store: Store, types: Mapping[str, HandlerSpec]) -> None:
        """Store what is new or has changed."""
        for limit in self._limits.values():
            check_limit(limit, types)  # its type may have been declared after it
        if self._queues or self._limits or self._alerts:
            published = {one.name: one.body for one in await list_records(store, Declaration)}
            for name, options in self._queues.items():
                key, body = f"queue/{name}", _body(options)
                if published.get(key) != body:
                    change = partial(_redeclared, name, options, published.get(key))
                    await change_record(store, QueueSettings, name, change)
                    await store.put(Declaration(name=key, body=body))
            striped = [name for name, options in self._queues.items() if (options.get("stripes") or 1) > 1]
            if striped and Capability.STRIPE not in store.capabilities:
                logger.warning(
                    "stripes of queue %s have no effect on this store; they are for Postgres",
                    ", ".join(striped),
                )
            declared: dict[str, tuple[Record, str]] = {}
            for limit in self._limits.values():
                given = {option: value for option, value in asdict(limit).items() if value is not None}
                declared[f"limit/{limit.name}"] = limit, _body(given)
            for alert in self._alerts.values():
                declared[f"alert/{alert.name}"] = alert, digest_of(alert)
            for key, (record, body) in declared.items():
                if published.get(key) != body:
                    await store.put(record)
                    await store.put(Declaration(name=key, body=body))


def exact(settings: QueueSettings, options: QueueChanges) -> QueueChanges:
    """Return these options as the settings hold them: "60s" and timedelta(minutes=1) are then the same."""
    whole = QueueChanges(
        fairness=settings.fairness,
        weights={**settings.weights},
        shares=dict(settings.ordering.shares.items()),
        ageing=settings.ordering.ageing,
        retention=settings.retention,
        stripes=settings.stripes,
        windows=[format_window(window) for window in settings.windows],
    )
    given: Any = {key: value for key, value in whole.items() if key in options}
    chosen: QueueChanges = given
    return chosen


def _redeclared(
    name: str, options: QueueChanges, before: str | None, stored: QueueSettings | None
) -> QueueSettings:
    return merged(stored or QueueSettings(name=name), options, before)


def merged(settings: QueueSettings, options: QueueChanges, before: str | None) -> QueueSettings:
    """Apply what is declared now to stored settings; reset what was declared `before` and is no longer."""
    former: dict[str, Any] = {} if before is None else msgspec.json.decode(before)
    reset: Any = {key: None for key in QueueChanges.__annotations__ if key in former or key in options}
    try:
        return changed_queue(changed_queue(settings, reset), options)
    except InvalidOption:
        # It contradicts what an operator has set: the declaration is newer.
        return changed_queue(QueueSettings(name=settings.name, paused=settings.paused), options)


def digest_of(record: Record | Mapping[str, Any]) -> str:
    """Return what to store of a declared record: it may hold a secret, such as the URL of a webhook."""
    return sha256(msgspec.json.encode(record)).hexdigest()


def _body(options: Mapping[str, Any]) -> str:
    return msgspec.json.encode(options, order="sorted").decode()


def check_limit(limit: Limit, types: Mapping[str, HandlerSpec]) -> None:
    """Raise InvalidOption for a limit by a payload field that its type lacks, or that a type keeps secret."""
    for spec in types.values():
        if limit.type == spec.name:
            check_field(limit, spec.signature.fields, spec.defaults.secret)
        elif limit.type is None:
            check_field(limit, None, spec.defaults.secret)
