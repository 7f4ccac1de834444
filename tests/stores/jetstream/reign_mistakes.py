"""Mistakes to put into a reigning owner, one at a time, so that tests can show that they would be noticed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from windlass._stores.jetstream.commits import LogCommits
from windlass._stores.jetstream.entry import Base, pack
from windlass._stores.jetstream.owned_store import OwnedStore
from windlass._stores.jetstream.reign import Reign
from windlass._stores.sqlite.connection.commits import Group
from windlass._stores.sqlite.connection.wal import checkpoint


def answers_at_once(patch: pytest.MonkeyPatch) -> None:
    """A commit is answered when it is appended, not when it stands."""

    def ship(self: LogCommits, pages: dict[int, bytes], _: object, size: int, group: Group) -> None:
        if pages:
            self._appender.commit(pack(pages), size)
        self._answer(group)

    patch.setattr(LogCommits, "_ship", ship)


def reads_without_entry(patch: pytest.MonkeyPatch) -> None:
    async def at_once(self: OwnedStore) -> None: ...

    patch.setattr(OwnedStore, "confirm", at_once)


def refusals_without_entry(patch: pytest.MonkeyPatch) -> None:
    """A group that changed nothing is answered at once."""
    original = LogCommits._ship

    def ship(self: LogCommits, pages: dict[int, bytes], parts: Any, size: int, group: Group) -> None:
        if pages:
            original(self, pages, parts, size, group)
        else:
            self._answer(group)

    patch.setattr(LogCommits, "_ship", ship)


def snapshot_in_flight(patch: pytest.MonkeyPatch) -> None:
    """A snapshot is made while commits are in flight, and named by the place that the last should get."""

    def freeze(self: LogCommits, token: str) -> None:
        self._wanted = None
        if checkpoint(self._connection):
            self.is_frozen = True
            epoch, n = self._appender.epoch, self._appender.n - 1
            self.frozen = Base(f"{epoch + n}-{token}", epoch + n, epoch, n)

    patch.setattr(LogCommits, "_freeze", freeze)


def deletion_first(patch: pytest.MonkeyPatch) -> None:
    """The log is deleted before the entry about the snapshot stands."""

    async def snapshot(self: Reign) -> None:
        base = await self._store.freeze("x")
        assert base is not None
        await self._snapshots.upload(self._follower.file, base)
        await self._log.delete_through(base.place)
        await asyncio.shield(self.appender.snapshot(base))

    patch.setattr(Reign, "_snapshot", snapshot)


REIGN_MISTAKES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a commit is answered before it stands": answers_at_once,
    "a read is answered without an entry": reads_without_entry,
    "a refusal is answered without an entry": refusals_without_entry,
    "a snapshot of what is in flight": snapshot_in_flight,
    "the log is deleted before the snapshot counts": deletion_first,
}
