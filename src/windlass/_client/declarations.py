"""The queues and limits that a program declares, and how they are published to the store.

What the store holds applies. A declaration is stored when it is new or has changed since it was last stored;
until then an operator's changes stay. So restarting a worker undoes nothing, and deploying a new number does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict

from .._handler.spec import HandlerSpec
from .._model.limit import Limit
from .._model.queue import Ordering, QueueSettings
from .._model.record import Declaration, Record
from .._policy.input.options import checked_name
from .._policy.order.limit_options import LimitOptions, check_field, new_limit
from .._policy.order.queue_options import QueueChanges, changed_queue
from .._store.protocol import Store, all_records
from ..errors import InvalidOption

R = TypeVar("R", bound=Record)


class Declarations:
    """The queues and limits that a program declares."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueChanges] = {}
        self._limits: dict[str, Limit] = {}
        self.orderings: dict[str, Ordering] = {}  # as declared, then as the store has them

    def queue(self, name: str, options: QueueChanges) -> None:
        """Declare settings of a queue; what is not given is as an operator has set it."""
        settings = changed_queue(QueueSettings(name=checked_name(name, "queue")), options)
        self._queues[name] = exact(settings, options)
        self.orderings[name] = settings.ordering

    def limit(self, name: str, options: LimitOptions, types: Mapping[str, HandlerSpec]) -> None:
        """Declare a limit; raises InvalidOption if it is invalid or the name is taken by another."""
        limit = new_limit(name, options)
        if name in self._limits and self._limits[name] != limit:
            raise InvalidOption(f"the limit {name!r} is already declared on this app; choose another name")
        check_limit(limit, types)
        self._limits[name] = limit

    async def publish(self, store: Store, types: Mapping[str, HandlerSpec]) -> None:
        """Store what is new or has changed, and learn how the store orders its queues."""
        for limit in self._limits.values():
            check_limit(limit, types)  # its type may have been declared after it
        queues = {settings.name: settings for settings in await list_records(store, QueueSettings)}
        if self._queues or self._limits:
            published = await published_declarations(store)
            for name, options in self._queues.items():
                settings = queues.get(name) or QueueSettings(name=name)
                key, body = f"queue/{name}", _body(options)
                if published.get(key) != body:
                    settings = merged(settings, options, published.get(key))
                    await store.put(settings)
                    await store.put(Declaration(name=key, body=body))
                queues[name] = settings
            for limit in self._limits.values():
                key = f"limit/{limit.name}"
                body = _body({option: value for option, value in asdict(limit).items() if value is not None})
                if published.get(key) != body:
                    await store.put(limit)
                    await store.put(Declaration(name=key, body=body))
        self.orderings |= {name: settings.ordering for name, settings in queues.items()}


def exact(settings: QueueSettings, options: QueueChanges) -> QueueChanges:
    """Return these options as the settings hold them: "60s" and timedelta(minutes=1) are then the same."""
    whole = QueueChanges(
        fairness=settings.fairness,
        weights={**settings.weights},
        shares=dict(settings.ordering.shares.items()),
        ageing=settings.ordering.ageing,
        retention=settings.retention,
        stripes=settings.stripes,
    )
    given: Any = {key: value for key, value in whole.items() if key in options}
    chosen: QueueChanges = given
    return chosen


def merged(settings: QueueSettings, options: QueueChanges, before: str | None) -> QueueSettings:
    """Apply what is declared now to stored settings; reset what was declared `before` and is no longer."""
    former: dict[str, Any] = {} if before is None else msgspec.json.decode(before)
    reset: Any = {key: None for key in QueueChanges.__annotations__ if key in former or key in options}
    try:
        return changed_queue(changed_queue(settings, reset), options)
    except InvalidOption:
        # It contradicts what an operator has set: the declaration is newer.
        return changed_queue(QueueSettings(name=settings.name, paused=settings.paused), options)


async def published_declarations(store: Store) -> dict[str, str]:
    """Return what was last stored of each declaration, by its kind and name."""
    return {one.name: one.body for one in await list_records(store, Declaration)}


async def list_records(store: Store, kind: type[R]) -> Sequence[R]:
    """Open the store and return all records of a kind, by name."""
    await store.open()
    return await all_records(store, kind)


def _body(options: Mapping[str, Any]) -> str:
    return msgspec.json.encode(options, order="sorted").decode()


def check_limit(limit: Limit, types: Mapping[str, HandlerSpec]) -> None:
    """Raise InvalidOption for a limit by a payload field that its type lacks, or that a type keeps secret."""
    for spec in types.values():
        if limit.type == spec.name:
            check_field(limit, spec.signature.fields, spec.defaults.secret)
        elif limit.type is None:
            check_field(limit, None, spec.defaults.secret)
