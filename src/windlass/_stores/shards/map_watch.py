"""MapWatch: the map of shards as this process knows it, read again every few seconds from every shard.

A new map says when its routes take effect, some seconds after it was written to all shards. A process
enqueues on a shard only if it has read that shard's map a shorter time ago. So no two processes ever enqueue
by different routes, and keys stay unique while a queue moves.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from msgspec.structs import replace

from ..._ids import new_id
from ..._model.filter import By, Filter, Page
from ..._model.record import Routes, ShardMap
from ...errors import Conflict, StoreError, StoreUnavailable
from .connection.shard import Shard
from .routes import first_map

REFRESH_EVERY = 2.0
"""Seconds after which the map is read again."""

KNOWN_FOR = 5.0
"""Seconds for which what was read allows to enqueue on a shard."""

EFFECTIVE_AFTER = timedelta(seconds=10)
"""From writing a map until its routes take effect: every process has read it then, or does not enqueue."""


class MapWatch:
    """The newest map, shared by all handles of a process."""

    def __init__(self) -> None:
        self.map: ShardMap | None = None
        self.due = 0.0  # when to read it again, by `monotonic`
        self._read_at: dict[str, float] = {}
        self._effective = 0, 0.0  # the version of a map, and when its routes take effect by `monotonic`

    @property
    def routes(self) -> Routes:
        """The routes that new tasks follow now."""
        shard_map = self.map
        assert shard_map is not None
        if shard_map.former and self._seconds_until(shard_map) > 0:
            return shard_map.former[0]
        return shard_map.routes

    @property
    def seconds_until_effective(self) -> float:
        """How long new tasks still follow the former routes."""
        return 0.0 if self.map is None else self._seconds_until(self.map)

    def _seconds_until(self, shard_map: ShardMap) -> float:
        """How long until the routes of this map take effect. Another thread may be taking over a newer."""
        version, at = self._effective
        return max(at - monotonic(), 0.0) if version == shard_map.version else 0.0

    def is_known_of(self, shard: str) -> bool:
        """Whether the map was read from this shard a short time ago."""
        return monotonic() - self._read_at.get(shard, -KNOWN_FOR) < KNOWN_FOR

    async def refresh(self, shards: Sequence[Shard]) -> None:
        """Read the map from these shards, take over the newest, and write it where it is missing.

        Raises StoreUnavailable if no shard answers, or if there is no map yet and not all do.
        """
        began = monotonic()
        self.due = began + REFRESH_EVERY
        stored, error = await _read(shards)
        if error is not None and (not stored or not any(stored.values())):
            raise error
        found = max((one for one in stored.values() if one), key=lambda one: one.version, default=None)
        if found is None:
            found = await _create(shards)
            stored[found.home] = found
        newest = replace(found, on="")
        known = newest if self.map is None else self.map
        for name, one in stored.items():
            if one is not None:
                _check(one, name, known.id)
        if self.map is None or newest.version > self.map.version:
            await self._take_over(newest, shards)
        self._read_at |= dict.fromkeys(stored, began)  # only now: other callers must not go by the older map
        await self._copy_to_older(stored, shards)

    async def _copy_to_older(self, stored: Mapping[str, ShardMap | None], shards: Sequence[Shard]) -> None:
        """Write the newest map to shards without it; the one that has it may not answer any more."""
        newest = self.map
        assert newest is not None
        for shard in shards:
            before = stored.get(shard.name)
            if shard.name in stored and shard.name in newest.shards and _is_older(before, newest):
                with suppress(Conflict, StoreUnavailable):
                    await shard.call_within(shard.store.put, replace(newest, on=shard.name), None, before)

    async def _take_over(self, newest: ShardMap, shards: Sequence[Shard]) -> None:
        wait = 0.0
        if newest.effective_at is not None:
            for shard in sorted(shards, key=lambda one: one.name != newest.home):
                with suppress(StoreError):
                    wait = (newest.effective_at - await shard.call_within(shard.store.now)).total_seconds()
                    break
        if self.map is None or newest.version > self.map.version:  # no other call was faster
            # Never longer than after a change: the clock of another shard than the home shard may be slow.
            self._effective = newest.version, monotonic() + min(wait, EFFECTIVE_AFTER.total_seconds())
            self.map = newest


async def _read(shards: Sequence[Shard]) -> tuple[dict[str, ShardMap | None], StoreError | None]:
    """Return the maps of the shards that answer, and the last error."""
    stored: dict[str, ShardMap | None] = {}
    errors: list[StoreError] = []

    async def read(shard: Shard) -> None:
        try:
            found = await shard.call_for(KNOWN_FOR, shard.store.records, ShardMap, Page(limit=1))
        except StoreError as error:
            errors.append(error)
        else:
            stored[shard.name] = found.items[0] if found.items else None

    await asyncio.gather(*map(read, shards))
    return stored, errors[-1] if errors else None


async def _create(shards: Sequence[Shard]) -> ShardMap:
    """Write the first map, to the home shard; of several processes at the same time, one does."""
    used = [
        shard.name
        for shard in shards
        if any(one.number for one in await shard.call(shard.store.count, Filter(), ()))
    ]
    made = first_map(new_id(), tuple(shard.name for shard in shards), used)
    home = shards[0]
    with suppress(Conflict):
        await home.call(home.store.put, replace(made, on=home.name), None, None)
    found = await home.call(home.store.records, ShardMap, Page(limit=1))
    return found.items[0] if found.items else made


def _is_older(before: ShardMap | None, newest: ShardMap) -> bool:
    return before is None or before.version < newest.version


async def publish(changed: ShardMap, before: ShardMap, shards: Sequence[Shard], by: By | None) -> None:
    """Write a changed map to all its shards, and delete it from one that is removed.

    The home shard comes first: it decides between changes at the same time, and has the audit entry. Raises
    Conflict, StoreUnavailable.
    """
    (home,) = [shard for shard in shards if shard.name == changed.home]
    stored = await check_map_of(home, before.id)
    is_same = stored is not None and replace(stored, on="") == before
    await home.call(home.store.put, replace(changed, on=home.name), by, stored if is_same else before)
    problem: StoreUnavailable | None = None
    for shard in (one for one in shards if one is not home):
        try:
            if shard.name in changed.shards:
                await _copy(changed, shard)
            else:
                await shard.call(shard.store.remove, ShardMap, changed.name)
        except StoreUnavailable as error:
            problem = error
    if problem is not None:
        raise StoreUnavailable(
            f"{problem}; the change is stored on the others, and this shard gets it when it is back"
        )


async def _copy(newest: ShardMap, shard: Shard) -> None:
    """Write a map to a shard, unless another process has copied it already."""
    stored = await check_map_of(shard, newest.id)
    if _is_older(stored, newest):
        with suppress(Conflict):
            await shard.call(shard.store.put, replace(newest, on=shard.name), None, stored)


async def check_map_of(shard: Shard, map_id: str) -> ShardMap | None:
    """Return the map that a shard has. Raises StoreError if it is that of another store or shard."""
    found = await shard.call(shard.store.records, ShardMap, Page(limit=1))
    stored = found.items[0] if found.items else None
    if stored is not None:
        _check(stored, shard.name, map_id)
    return stored


def _check(stored: ShardMap, shard: str, map_id: str) -> None:
    """Raise StoreError if the map that was read from this shard is that of another store or shard."""
    if stored.id != map_id:
        raise StoreError(f"shard {shard} belongs to another store of several shards; check its URL")
    if stored.on not in ("", shard):
        raise StoreError(f"the URL of shard {shard} leads to shard {stored.on}; correct it in the file")
