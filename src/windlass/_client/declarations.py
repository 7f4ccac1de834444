"""What a program declares of queues and limits, and how the store is told.

The store holds the truth. A declaration is put when it is new or has changed since it was last put; what an
operator sets stands until then. So restarting a worker undoes nothing, and deploying a new number does.
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
        """Declare what is given of a queue; the rest is as an operator has it."""
        settings = changed_queue(QueueSettings(name=checked_name(name, "queue")), options)
        self._queues[name] = exact(settings, options)
        self.orderings[name] = settings.ordering

    def limit(self, name: str, options: LimitOptions, types: Mapping[str, HandlerSpec]) -> None:
        """Declare a limit."""
        limit = new_limit(name, options)
        if name in self._limits and self._limits[name] != limit:
            raise InvalidOption(f"the limit {name!r} is declared twice; give one of them another name")
        check_limit(limit, types)
        self._limits[name] = limit

    async def publish(self, store: Store, types: Mapping[str, HandlerSpec]) -> None:
        """Put what is new or has changed."""
        for limit in self._limits.values():
            check_limit(limit, types)  # its type may have been declared after it
        standing = {settings.name: settings for settings in await every(store, QueueSettings)}
        if self._queues or self._limits:
            told = {one.name: one.body for one in await every(store, Declaration)}
            for name, options in self._queues.items():
                settings = standing.get(name) or QueueSettings(name=name)
                said = _body(options)
                if told.get(f"queue/{name}") != said:
                    settings = merged(settings, options, told.get(f"queue/{name}"))
                    await store.put(settings)
                    await store.put(Declaration(name=f"queue/{name}", body=said))
                standing[name] = settings
            for limit in self._limits.values():
                said = _body({key: value for key, value in asdict(limit).items() if value is not None})
                if told.get(f"limit/{limit.name}") != said:
                    await store.put(limit)
                    await store.put(Declaration(name=f"limit/{limit.name}", body=said))
        self.orderings |= {name: settings.ordering for name, settings in standing.items()}


def exact(settings: QueueSettings, options: QueueChanges) -> QueueChanges:
    """These options as the settings have them, so that "60s" and timedelta(minutes=1) are the same."""
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


def merged(standing: QueueSettings, options: QueueChanges, before: str | None) -> QueueSettings:
    """The standing settings with what is declared now, without what was declared before and is no longer."""
    former: dict[str, Any] = {} if before is None else msgspec.json.decode(before)
    nothing: Any = {key: None for key in QueueChanges.__annotations__ if key in former or key in options}
    try:
        return changed_queue(changed_queue(standing, nothing), options)
    except InvalidOption:
        # It contradicts what an operator has set: the declaration is newer.
        return changed_queue(QueueSettings(name=standing.name, paused=standing.paused), options)


async def every(store: Store, kind: type[R]) -> Sequence[R]:
    """All records of a kind, by name."""
    await store.open()
    return await all_records(store, kind)


def _body(options: Mapping[str, Any]) -> str:
    return msgspec.json.encode(options, order="sorted").decode()


def check_limit(limit: Limit, types: Mapping[str, HandlerSpec]) -> None:
    """Refuse a limit by a field that its type has not, or that a type which it is for keeps secret."""
    for declared in types.values():
        if limit.type == declared.name:
            check_field(limit, declared.signature.fields, declared.defaults.secret)
        elif limit.type is None:
            check_field(limit, None, declared.defaults.secret)
