"""Archiving on every store: each day is on disk before any of it is pruned, whatever fails."""

import asyncio
import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from windlass import Retention
from windlass._archive import Archiver
from windlass._model.record import Archive
from windlass._store.protocol import Store, all_records
from windlass.errors import InvalidOption
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import ManualWorker, complete, enqueue_and_settle, worker_on

AT_ONCE = Retention(completed=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))
DAY = timedelta(days=1)


@pytest.fixture
async def worker(store: Store) -> ManualWorker:
    return await worker_on(store, lease_for=timedelta(days=900))


@pytest.fixture
def folder_of_days(tmp_path: Path) -> Path:
    return tmp_path / "history"


@pytest.fixture
async def archiver(store: Store, folder_of_days: Path) -> Archiver:
    archiver = Archiver(folder_of_days)
    await archiver.turn_on(store)
    return archiver


async def ended(store: Store, worker: ManualWorker, number: int = 1) -> list[str]:
    return [(await enqueue_and_settle(store, worker, complete)).task.id for _ in range(number)]


async def pruned(store: Store) -> int:
    return (await store.prune(AT_ONCE, 1000)).number


def files(folder: Path) -> dict[str, list[str]]:
    """The ids in each file. Parts of files would be among them."""
    return {
        path.name: [json.loads(line)["id"] for line in path.read_text().splitlines()]
        for path in sorted(folder.iterdir())
    }


def in_the_way(folder: Path) -> None:
    folder.write_text("a file where the directory should be")


def out_of_the_way(folder: Path) -> None:
    folder.unlink()


def has_file(folder: Path, name: str) -> None:
    folder.mkdir()
    (folder / name).write_text('{"id":"pruned since"}\n')


async def test_each_day_is_a_file_before_it_is_pruned(
    store: Store, worker: ManualWorker, clock: ManualClock, archiver: Archiver, folder_of_days: Path
) -> None:
    first, day = await ended(store, worker, 3), clock.now().date()
    clock.advance(2 * DAY)
    second = await ended(store, worker, 2)
    assert await pruned(store) == 0

    await archiver.write_due(store)

    assert files(folder_of_days) == {f"{day}.ndjson": first}
    assert await pruned(store) == 3
    clock.advance(DAY + timedelta(minutes=6))
    await archiver.write_due(store)
    assert files(folder_of_days) == {f"{day}.ndjson": first, f"{day + 2 * DAY}.ndjson": second}
    assert await pruned(store) == 2
    (record,) = await all_records(store, Archive)
    assert record.directory == str(folder_of_days)


async def test_a_day_is_not_written_before_its_last_ends_are_committed(
    store: Store, worker: ManualWorker, clock: ManualClock, archiver: Archiver, folder_of_days: Path
) -> None:
    await ended(store, worker)
    midnight = (clock.now() + DAY).replace(hour=0, minute=0, second=0, microsecond=0)
    clock.advance(midnight - clock.now() + timedelta(minutes=4))

    await archiver.write_due(store)
    assert (await all_records(store, Archive))[0].until < midnight
    assert await pruned(store) == 0

    clock.advance(timedelta(minutes=2))
    await archiver.write_due(store)
    assert len(files(folder_of_days)) == 1
    assert await pruned(store) == 1


async def test_a_failure_to_write_is_logged_and_keeps_everything(
    store: Store,
    worker: ManualWorker,
    clock: ManualClock,
    archiver: Archiver,
    folder_of_days: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_the_way(folder_of_days)
    ids = await ended(store, worker)
    clock.advance(2 * DAY)

    await archiver.write_due(store)

    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "cannot write the archive" in line.getMessage()
    assert await pruned(store) == 0
    out_of_the_way(folder_of_days)
    await archiver.write_due(store)
    assert [*files(folder_of_days).values()] == [ids]
    assert await pruned(store) == 1


async def test_a_keeper_that_died_before_it_noted_the_day_leaves_one_file(
    store: Store, worker: ManualWorker, clock: ManualClock, archiver: Archiver, folder_of_days: Path
) -> None:
    ids = await ended(store, worker)
    clock.advance(2 * DAY)
    before = (await all_records(store, Archive))[0]
    await archiver.write_due(store)
    await store.put(before)  # as if its note had not been stored

    await Archiver(folder_of_days).write_due(store)

    assert [*files(folder_of_days).values()] == [ids]


async def test_a_file_that_has_more_is_not_replaced(
    store: Store, worker: ManualWorker, clock: ManualClock, archiver: Archiver, folder_of_days: Path
) -> None:
    day, ids = clock.now().date(), await ended(store, worker)
    has_file(folder_of_days, f"{day}.ndjson")
    clock.advance(2 * DAY)

    await archiver.write_due(store)

    assert files(folder_of_days) == {f"{day}.2.ndjson": ids, f"{day}.ndjson": ["pruned since"]}


async def test_keepers_that_archive_at_once_do_no_harm(
    store: Store, worker: ManualWorker, clock: ManualClock, archiver: Archiver, folder_of_days: Path
) -> None:
    ids = await ended(store, worker, 3)
    clock.advance(2 * DAY)

    await asyncio.gather(*(Archiver(folder_of_days).write_due(store) for _ in range(3)))
    await archiver.write_due(store)

    assert {tuple(found) for found in files(folder_of_days).values()} == {tuple(ids)}
    assert await pruned(store) == 3


async def test_the_directory_is_checked_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InvalidOption, match="cannot write to the archive"):
        Archiver(tmp_path / "file").check()
    Archiver(tmp_path / "new" / "folder").check()
    assert [*(tmp_path / "new" / "folder").iterdir()] == []
