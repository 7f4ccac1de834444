"""A standby gets the store from snapshots and the log, whatever happens to them meanwhile."""

import os
from pathlib import Path

import pytest

from tests.stores.jetstream.stand_in import MemoryLog, MemorySnapshots, new_task, reigning
from tests.system.jetstream.replay import difference, tables
from windlass._stores.jetstream import follower as followers
from windlass._stores.jetstream.follower import Follower
from windlass._stores.jetstream.snapshots import Manifest
from windlass.errors import StoreError


class FleetingSnapshots(MemorySnapshots):
    """The first downloads fail, as if a newer snapshot had replaced the one that is being read."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def download(self, manifest: Manifest, file: int) -> bool:
        self.failures -= 1
        return self.failures < 0 and await super().download(manifest, file)


async def follow(folder: Path, snapshots: MemorySnapshots) -> list[str]:
    """Follow a log whose beginning was deleted; returns how the copy differs from the owner's file."""
    log = MemoryLog()
    async with reigning(folder / "owner", log, snapshots) as reign:
        await reign._store.enqueue([new_task()])
        await reign._snapshot()
        await reign._store.enqueue([new_task()])
        assert log.first > 1
        standby = Follower(log, snapshots, folder / "standby")  # type: ignore[arg-type]
        try:
            await standby.follow(silence=-1.0)
            return difference(tables(reign._store.path), tables(standby.path))
        finally:
            standby.close()


async def test_a_standby_begins_with_a_snapshot(folder: Path) -> None:
    assert await follow(folder, MemorySnapshots()) == []


async def test_a_standby_looks_again_for_a_snapshot_that_cannot_be_read(folder: Path) -> None:
    assert await follow(folder, FleetingSnapshots(failures=3)) == []


async def test_a_standby_gives_up_if_no_snapshot_can_be_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "UNREADABLE_SECONDS", 0.1)

    with pytest.raises(StoreError, match="no snapshot of it can be read"):
        await follow(folder, FleetingSnapshots(failures=10**9))


def test_copies_that_killed_processes_left_are_deleted(folder: Path) -> None:
    log, snapshots = MemoryLog(), MemorySnapshots()
    killed = Follower(log, snapshots, folder)  # type: ignore[arg-type]
    living = Follower(log, snapshots, folder)  # type: ignore[arg-type]
    os.close(killed._lock)  # as the kernel does for a process that dies

    third = Follower(log, snapshots, folder)  # type: ignore[arg-type]

    assert not killed.path.exists()
    assert living.path.exists()
    assert third.path.exists()
    for one in (living, third):
        one.close()
    assert list(folder.iterdir()) == []


def test_folders_of_others_are_kept_although_they_have_a_file_named_lock(folder: Path) -> None:
    """As /var/lib has, if somebody chooses that."""
    (folder / "dpkg").mkdir()
    (folder / "dpkg" / "lock").touch()

    Follower(MemoryLog(), MemorySnapshots(), folder).close()  # type: ignore[arg-type]

    assert [path.name for path in folder.iterdir()] == ["dpkg"]
