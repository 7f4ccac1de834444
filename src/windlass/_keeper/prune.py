"""The chores of retention: archive what is past it, and delete it in slices."""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from .._model.queue import Retention
from .._model.record import Archive
from .._store.protocol import Store, all_records

logger = logging.getLogger("windlass.keeper")

PRUNE_BATCH = 500  # tasks that one call deletes at most
_LEAST_BATCH = 200
_SLICE_SECONDS = 0.1  # that one call should take: on SQLite it holds the write lock for as long
_REST_SECONDS = 0.1  # at most, between two calls
_TURN_SECONDS = 5.0
_AGAIN_AFTER = 0.5  # if there is more to prune than one turn deletes
_WARN_EVERY = 3600.0


class Archiver(Protocol):
    """Writes history to files before it is pruned."""

    async def turn_on(self, store: Store) -> None:
        """Note in the store that only archived tasks may be pruned."""

    async def write_due(self, store: Store) -> bool:
        """Write what is due; return whether there is more to prune now. Logs failures; may take long."""


class PruneChore:
    """Deletes what is past its retention, and what was archived if archiving is on."""

    def __init__(self, store: Store, archiver: Archiver | None) -> None:
        self._store = store
        self._archiver = archiver
        self._warned_at = float("-inf")  # that nothing is archived

    async def turn(self) -> float | None:
        """Prune for a few seconds; return the seconds until the next turn if there may be more."""
        if self._archiver is None:
            await self._warn_if_archiving()
        else:
            await self._archiver.turn_on(self._store)
        return _AGAIN_AFTER if await prune_expired(self._store) else None

    async def _warn_if_archiving(self) -> None:
        archives = await all_records(self._store, Archive)
        if archives and monotonic() >= self._warned_at + _WARN_EVERY:
            self._warned_at = monotonic()
            logger.warning(
                "archiving is on, but this keeper has no archive; what ended since %s is not pruned. "
                "Give every worker and keeper --archive, or turn it off with `windlass archive stop`",
                archives[0].until.isoformat(),
            )


class ArchiveChore:
    """Writes what may be pruned soon to files. The store prunes only what was archived."""

    def __init__(self, store: Store, archiver: Archiver, on_archived: Callable[[], None]) -> None:
        self._store = store
        self._archiver = archiver
        self._on_archived = on_archived

    async def turn(self) -> None:
        """Write every day that is due; then have it pruned at once."""
        await self._archiver.turn_on(self._store)
        if await self._archiver.write_due(self._store):
            self._on_archived()


async def prune_expired(store: Store) -> bool:
    """Delete ended tasks past their retention for a few seconds; return whether there may be more.

    In slices that hold no lock for long, with a rest after each: while a store deletes, it does little else.
    The retention is that of queues and types as the store has them, never the keeper's own program's.
    """
    until, size = monotonic() + _TURN_SECONDS, min(_LEAST_BATCH, PRUNE_BATCH)
    while True:
        began = monotonic()
        number = (await store.prune(Retention(), size)).number
        took = monotonic() - began
        if number < size:
            return False
        if began + took >= until:
            return True
        await asyncio.sleep(min(took, _REST_SECONDS))
        size = next_size(size, took)


def next_size(size: int, took: float) -> int:
    """Return the size of the next slice, after one of `size` tasks took so many seconds."""
    if took > 2 * _SLICE_SECONDS:
        return max(size // 2, min(_LEAST_BATCH, PRUNE_BATCH))
    return min(size * 2, PRUNE_BATCH) if took < _SLICE_SECONDS / 2 else size
