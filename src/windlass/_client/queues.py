"""Settings of queues: change them, and remove those of a queue that is not used any more."""

from collections.abc import Iterable

from msgspec.structs import replace

from .._model.filter import By, Filter
from .._model.queue import QueueSettings
from .._model.state import PENDING, State
from .._observe.overview import read_overview
from .._policy.input.options import checked_name
from .._policy.input.quote import counted, quoted, suggestion
from .._policy.order.queue_options import QueueChanges, changed_queue
from .._store.protocol import Store
from ..errors import NotFound, Refused
from .published_types import KnownTypes
from .records import HOW_TO_CREATE, change_record, list_records


class QueueEditor:
    """Changes the settings of queues, for an operator."""

    def __init__(self, store: Store, by: By, types: KnownTypes) -> None:
        self._store = store
        self._by = by
        self._types = types

    async def change(
        self, queue: str, changes: QueueChanges, *, paused: bool | None, create: bool
    ) -> QueueSettings:
        """Change settings of a queue; raises NotFound for one that nothing names, unless `create`."""
        checked_name(queue, "queue")
        known = create or queue in {one.name for one in await list_records(self._store, QueueSettings)}
        if not known:
            own = {spec.defaults.queue for spec in self._types.declared.values()}
            await require_queues(self._store, {queue} - own, new=True)

        def change(stored: QueueSettings | None) -> QueueSettings:
            settings = changed_queue(stored or QueueSettings(name=queue), changes)
            return settings if paused is None else replace(settings, paused=paused)

        return await change_record(self._store, QueueSettings, queue, change, self._by)

    async def remove(self, queue: str, serving: Iterable[str]) -> None:
        """Remove the settings of a queue; `serving` are the queues that live workers serve."""
        standing = (*PENDING, State.RUNNING, State.DEAD)
        counts = await self._store.count(Filter(queues=(queue,), states=standing), ())
        if number := sum(count.number for count in counts):
            raise Refused(
                f"queue {quoted(queue)} has {counted(number, 'task')} that have not ended or are dead; let "
                f"them end, cancel or discard them first"
            )
        if queue in serving:
            raise Refused(f"a live worker serves queue {quoted(queue)}; stop it first")
        if not await self._store.remove(QueueSettings, queue, self._by):
            raise NotFound(f"queue {quoted(queue)} has no settings to remove")


async def require_queues(store: Store, names: Iterable[str], *, new: bool = False) -> None:
    """Raise NotFound for a queue that no task, setting, worker or task type names; suggests what was meant.

    `new`: the caller can set up new ones.
    """
    wanted = [checked_name(name, "queue") for name in names]
    known = (await read_overview(store)).queues if wanted else ()
    for name in wanted:
        if name not in known:
            hint = suggestion(name, known, "`windlass queues list` shows all queues")
            how = f"; {HOW_TO_CREATE}" if new else ""
            raise NotFound(f"there is no queue {quoted(name)}{how}{hint}")
