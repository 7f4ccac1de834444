"""ShardAdmin: add, drain, route and remove shards while the store is in use."""

from collections.abc import Callable, Sequence
from time import monotonic

from msgspec.structs import replace

from ..._model.filter import By, Dimension, Filter, Page
from ..._model.limit import Limit
from ..._model.record import QueueRoute, Routes, Session, ShardMap, ShardStatus
from ..._model.state import ENDED, State
from ..._store.protocol import all_records
from ...errors import Refused, StoreUnavailable
from .connection.shard import Shard
from .map_watch import EFFECTIVE_AFTER, KNOWN_FOR, check_map_of, publish
from .records import check_limit
from .routes import added, drained, is_draining, misplaced, removed, routed
from .status import read_status
from .store import ShardedStore

_MAX_WRITES = 3  # of a map that takes too long to write
_UNFINISHED = tuple(state for state in State if state not in ENDED)


class ShardAdmin:
    """What `windlass shards` does: a change is written to all shards, and takes effect some seconds later."""

    def __init__(self, store: ShardedStore) -> None:
        self._store = store
        self._shards = store.shards
        self.effective_after = EFFECTIVE_AFTER

    async def list(self) -> Sequence[ShardStatus]:
        """Return the state of every shard, the home shard first."""
        await self._shards.refresh()
        return await read_status(self._shards)

    async def is_draining(self, shard: str) -> bool:
        """Whether a shard takes no new tasks, or will take none when the last change takes effect."""
        await self._shards.refresh()
        return shard in self._shards.map.shards and is_draining(self._shards.map, shard)

    async def routes(self) -> Routes:
        """Return where new tasks go; changes that were made in the last seconds included."""
        await self._shards.refresh()
        return self._shards.map.routes

    @property
    def seconds_until_effective(self) -> float:
        """How long new tasks still follow the routes before the last change."""
        return self._shards.watch.seconds_until_effective

    async def add(self, shard: str, by: By | None = None) -> None:
        """Let a shard of the file take its share of the queues, a new one or one that was drained."""
        await self._change(lambda one: added(one, shard), by)

    async def drain(self, shard: str, by: By | None = None) -> None:
        """Let a shard take no new tasks; those that it has are run off."""
        await self._change(lambda one: drained(one, shard), by)

    async def route(
        self, queue: str, over: Sequence[str], by: By | None = None, *, by_tenant: bool = False
    ) -> None:
        """Route a queue to a shard, or to several by tenant; to none: as other queues."""
        route = QueueRoute(over=tuple(over), by_tenant=by_tenant) if over else None
        await self._change(lambda one: routed(one, queue, route), by)

    async def remove(self, shard: str, by: By | None = None) -> None:
        """Forget a shard that was drained and has no tasks left. Raises Refused if it has any."""
        await self._shards.refresh()
        removed(self._shards.map, shard)  # raises if it is not draining
        self._check_effective()  # until then tasks may be enqueued on it
        status = next(one for one in await read_status(self._shards) if one.name == shard)
        if status.error:
            raise StoreUnavailable(f"shard {shard}: {status.error}")
        if status.tasks or await _has_tasks(self._shards[shard]):  # counts may be estimates
            raise Refused(
                f"shard {shard} still has tasks: {status.tasks:,}, not ended: {status.unfinished:,}; "
                f"ended ones are pruned by the retention of their queues, or now with `windlass prune`"
            )
        await self._change(lambda one: removed(one, shard), by)

    # -- changes -------------------------------------------------------------------------------------

    async def _change(self, change: Callable[[ShardMap], ShardMap], by: By | None) -> None:
        """Change the map on all shards, which must all answer. Raises Conflict if someone else has."""
        await self._shards.refresh()
        before = self._shards.map
        self._check_effective()
        changed = change(await self._without_needless_routes(before))
        names = tuple(dict.fromkeys((*before.shards, *changed.shards)))
        await self._shards.every(names, lambda shard: check_map_of(shard, before.id))
        home = self._shards[before.home]
        for limit in await home.call(all_records, home.store, Limit):
            check_limit(limit, changed.routes)
        for name in changed.shards:
            if name not in before.shards:
                await _check_unused(self._shards[name])
                await self._store.copy_settings(name)
        await self._publish(changed, before, [self._shards[name] for name in names], by)
        await self._shards.refresh()

    def _check_effective(self) -> None:
        """Raise Refused while new tasks still follow the routes before the last change."""
        if (wait := self.seconds_until_effective) > 0:
            raise Refused(f"the last change takes effect in {wait:.0f} s; try again then")

    async def _publish(
        self, changed: ShardMap, before: ShardMap, shards: Sequence[Shard], by: By | None
    ) -> None:
        """Write a map; again, with a later effect, if writing took so long that a process may not know it.

        Without other routes it takes effect at once: until it did, new tasks would follow the former ones.
        """
        if changed.routes == before.routes:
            await publish(changed, before, shards, by)
            return
        home = self._shards[before.home]
        for _ in range(_MAX_WRITES):
            began = monotonic()
            now = await home.call(home.store.now)
            changed = replace(changed, effective_at=now + self.effective_after)
            await publish(changed, before, shards, by)
            if monotonic() - began < KNOWN_FOR / 2:
                return
            before, changed = changed, replace(changed, version=changed.version + 1)
        raise StoreUnavailable("writing the map of shards took too long; repeat the command")

    async def _without_needless_routes(self, shard_map: ShardMap) -> ShardMap:
        """Forget former routes if every task is where the present ones put it, and no chain goes on.

        The steps of a chain are enqueued on the shard of its first task.
        """
        if not shard_map.former:
            return shard_map
        by = (Dimension.QUEUE, Dimension.TENANT)

        async def is_needed(shard: Shard) -> bool:
            counts = await shard.call(shard.store.count, Filter(), by)
            placed = {(one.values[0], one.values[1]): one.number for one in counts}
            if misplaced(shard_map, shard.name, placed):
                return True
            with_steps = Filter(states=(*_UNFINISHED, State.DEAD), chained=True)
            return any(one.number for one in await shard.call(shard.store.count, with_steps, ()))

        needed = await self._shards.every(shard_map.shards, is_needed)
        return shard_map if any(needed.values()) else replace(shard_map, former=())


async def _has_tasks(shard: Shard) -> bool:
    return bool((await shard.call(shard.store.find, Filter(), Page(limit=1))).items)


async def _check_unused(shard: Shard) -> None:
    """Raise Refused for a store in use: no worker would claim its tasks, and it gets other settings."""
    sessions = await shard.call(shard.store.records, Session, Page(limit=1))
    if sessions.items or await _has_tasks(shard):
        raise Refused(
            f"shard {shard.name} has tasks or workers already, and only an empty store can be added; "
            f"check its URL in the file"
        )
