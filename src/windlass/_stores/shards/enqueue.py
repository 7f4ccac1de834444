"""Enqueue on the shard of the queue; refuse what would span shards, and look where a queue has moved from."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from msgspec import Struct

from ..._model.filter import MAX_PAGE, Filter, Page
from ..._model.record import Routes
from ..._model.state import State
from ..._model.task import DEFAULT_QUEUE, Enqueued, NewTask, Task
from ..._policy.secrets.encrypted import MARKER
from ...errors import NotFound
from ..rules.refusals import duplicate, key_taken, within_period
from . import refusals
from .connection.handle import OnShards
from .connection.shard import Shard
from .routes import former_places, place

_OPEN = (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING)


class _Step(Struct):
    """Where a step of a chain goes; see _policy/input/chain.py."""

    queue: str = DEFAULT_QUEUE
    tenant: str = ""  # "": that of its predecessor
    next: tuple["_Step", ...] = ()


_steps = msgspec.json.Decoder(tuple[_Step, ...])


class ShardEnqueue(OnShards):
    """The verbs of programs over all shards."""

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Enqueue a batch whose tasks all go to one shard. Raises NotSupported for any other."""
        await self._shards.ready()
        name = await self._known_place(batch)
        existing: dict[int, Enqueued] = {}
        while self._shards.map.former:
            existing = await self._enqueued_before(batch, name)
            before, name = name, await self._known_place(batch)  # again: asking other shards may take long
            if name == before:
                break
        shard = self._shards[name]
        new = [one for number, one in enumerate(batch) if number not in existing]
        try:
            stored = iter(await shard.call(shard.store.enqueue, new) if new or not batch else ())
        except NotFound as error:
            await self._explain(new, name, error)
            raise
        results = [existing[number] if number in existing else next(stored) for number in range(len(batch))]
        self._shards.places.add(
            [one.id for number, one in enumerate(results) if number not in existing], name
        )
        return results

    async def _known_place(self, batch: Sequence[NewTask]) -> str:
        """Return the shard of the whole batch, if its map is known. Raises StoreUnavailable if not."""
        name = self._place(batch)
        if not self._shards.watch.is_known_of(name):
            await self._shards.refresh()
            name = self._place(batch)
            await self._shards[name].check()
            if not self._shards.watch.is_known_of(name):
                raise refusals.stale_map(name)
        return name

    def _place(self, batch: Sequence[NewTask]) -> str:
        """Return the shard of the whole batch, chains included."""
        routes = self._shards.routes
        if not batch:
            return self._shards.map.home
        names = {place(routes, queue, tenant) for queue, tenant in {(one.queue, one.tenant) for one in batch}}
        if len(names) > 1:
            raise refusals.batch_spans(names)
        (name,) = names
        for one in batch:
            if one.next is not None:
                _check_steps(routes, one, one.tenant, _steps_of(one.next), name)
        return name

    async def _explain(self, batch: Sequence[NewTask], name: str, error: NotFound) -> None:
        """Raise NotSupported if a predecessor that is missing is on another shard."""
        own = {one.id for one in batch}
        wanted = [id for one in batch for id in (*one.after, *one.before) if id not in own]
        for task_id, shard in (await self._shards.locate(wanted)).items():
            if shard is not None and shard != name:
                raise refusals.predecessor_elsewhere(task_id, shard, name) from error

    # -- a queue that moves --------------------------------------------------------------------------

    async def _enqueued_before(self, batch: Sequence[NewTask], name: str) -> dict[int, Enqueued]:
        """Return what was enqueued before on shards that its queue has moved from, by number in the batch.

        Nobody enqueues there any more, so that the answer stays true; see `MapWatch`.
        """
        moved: dict[str, list[int]] = {}
        for number, one in enumerate(batch):
            for former in former_places(self._shards.map, one.queue, one.tenant, name):
                moved.setdefault(former, []).append(number)
        existing: dict[int, Enqueued] = {}
        for former, numbers in moved.items():
            shard = self._shards[former]
            ids = tuple(batch[number].id for number in numbers)
            for start in range(0, len(ids), MAX_PAGE):
                where = Filter(ids=ids[start : start + MAX_PAGE])
                tasks = await shard.call_within(shard.store.find, where, Page(limit=MAX_PAGE))
                found = {task.id for task in tasks.items}
                existing |= {
                    number: Enqueued(id=batch[number].id, created=False)
                    for number in numbers
                    if batch[number].id in found
                }
            for number in numbers:
                if number not in existing and (before := await self._equal(former, batch[number])):
                    existing[number] = Enqueued(id=before.id, created=False)
        return existing

    async def _equal(self, former: str, new: NewTask) -> Task | None:
        """Return the task with the same idempotency key there. Raises as a store does for an equal one."""
        shard = self._shards[former]
        if new.idempotency_key is not None:
            where = Filter(idempotency_key=new.idempotency_key, tenants=(new.tenant,))
            newest = Page(limit=1, newest_first=True)
            for task in (await shard.call_within(shard.store.find, where, newest)).items:
                if await _is_within(shard, task, new.idempotency_for):
                    if not _is_same_request(task, new):
                        raise key_taken(new, task.id)
                    return task
        if new.fingerprint is not None:
            states = _OPEN if new.unique_for is None else None
            where = Filter(types=(new.type,), queues=(new.queue,), tenants=(new.tenant,), states=states)
            found = await shard.call_within(shard.store.find, where, Page(limit=MAX_PAGE, newest_first=True))
            for task in found.items:
                if task.fingerprint == new.fingerprint:
                    if task.state in _OPEN:
                        raise duplicate(new, task.id)
                    if await _is_within(shard, task, new.unique_for):
                        raise within_period(new, task.id)
            if found.cursor is not None:
                raise refusals.unique_in_move(new.queue, former, MAX_PAGE)
        return None


async def _is_within(shard: Shard, task: Task, period: timedelta | None) -> bool:
    """Whether a task was enqueued within this period; None: for as long as it is kept."""
    return period is None or await shard.call_within(shard.store.now) < task.created_at + period


def _is_same_request(task: Task, new: NewTask) -> bool:
    """Compare type and payload; what is encrypted differs each time."""
    is_comparable = MARKER not in task.payload and MARKER not in new.payload
    return task.type == new.type and (task.payload == new.payload or not is_comparable)


def _steps_of(following: bytes) -> tuple[_Step, ...]:
    """Return the steps of a chain; none if they cannot be read, as then they never become tasks."""
    try:
        return _steps.decode(following)
    except msgspec.DecodeError:
        return ()


def _check_steps(routes: Routes, first: NewTask, tenant: str, steps: Sequence[_Step], name: str) -> None:
    """Raise NotSupported if a step of a chain would go to another shard than its first task."""
    for step in steps:
        own = step.tenant or tenant
        shard = place(routes, step.queue, own)
        if shard != name:
            raise refusals.chain_spans(step.queue, shard, first.queue, name)
        _check_steps(routes, first, own, step.next, name)
