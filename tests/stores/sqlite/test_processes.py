"""Several processes on one file: no task twice, wakes across, and FIFOs of the dead swept up."""
# ruff: noqa: ASYNC240 - the loop has nothing better to do than wait for the test's small files

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from datetime import timedelta
from pathlib import Path

import pytest

from windlass._store.protocol import Wake
from windlass._stores.sqlite import SQLiteStore, notify
from windlass.testing.conformance.steps import a_task, enqueue_one, some_tasks, worker_on

from .conftest import DEADLINE, line_of

pytestmark = pytest.mark.system

CLAIM = """
import asyncio, sys
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.conformance.steps import complete, worker_on
async def main():
    store = SQLiteStore(sys.argv[1])
    worker = await worker_on(store)
    print("here", flush=True)
    sys.stdin.readline()
    claimed = await worker.claim(7)
    while claimed:
        for task in claimed:
            print(task.task.id, flush=False)
        claimed = (await store.settle([complete(c) for c in claimed], worker.next_claim(7))).claimed
    print("done", flush=True)
    await store.close()
asyncio.run(main())
"""

LISTEN = """
import asyncio, sys
from windlass._stores.sqlite import SQLiteStore, notify
notify.POLL_SECONDS = 3600
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    print("here", flush=True)
    async for wake in store.wakes(["default"]):
        print(wake, flush=True)
asyncio.run(main())
"""

ENQUEUE = """
import asyncio, sys
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.conformance.steps import enqueue_one
async def main():
    store = SQLiteStore(sys.argv[1])
    print(await enqueue_one(store), flush=True)
    await store.close()
asyncio.run(main())
"""


async def test_two_processes_never_claim_the_same_task(path: Path, python) -> None:
    store = SQLiteStore(path)
    batch = some_tasks(300)
    await store.enqueue(batch)
    processes = [python(CLAIM, path) for _ in range(2)]
    for process in processes:
        assert await line_of(process) == "here"

    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    claimed: list[str] = []
    for process in processes:
        while (line := await line_of(process)) != "done":
            claimed.append(line)

    assert sorted(claimed) == sorted(new.id for new in batch)
    await store.close()


def fifos(path: Path) -> list[Path]:
    """The FIFOs that have their name, and so a reader."""
    folder = path.with_name("windlass.db-wakes")
    return [fifo for fifo in folder.iterdir() if not fifo.name.startswith(".")] if folder.exists() else []


async def first_wake(store: SQLiteStore, started: asyncio.Event) -> Wake:
    listening: AsyncIterator[Wake] = store.wakes(["default"])
    async with aclosing(listening), asyncio.timeout(DEADLINE):
        started.set()
        return await anext(listening)


async def test_a_task_enqueued_by_another_process_wakes_this_one_at_once(
    path: Path, python, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "POLL_SECONDS", 3600)  # So that only the hint can do it.
    store = SQLiteStore(path)
    await store.open()
    started = asyncio.Event()
    waking = asyncio.ensure_future(first_wake(store, started))
    await started.wait()
    await until(lambda: fifos(path))

    process = python(ENQUEUE, path)
    await line_of(process)

    assert await waking is Wake.READY
    assert not fifos(path)
    await store.close()


async def test_a_scheduled_task_wakes_another_process(store: SQLiteStore, path: Path, python) -> None:
    process = python(LISTEN, path)
    assert await line_of(process) == "here"
    await until(lambda: fifos(path))

    await enqueue_one(store, delay=timedelta(hours=1))

    assert await line_of(process) == "scheduled"


async def test_the_fifo_of_a_process_that_died_is_swept_up(store: SQLiteStore, path: Path, python) -> None:
    process = python(LISTEN, path)
    assert await line_of(process) == "here"
    await until(lambda: fifos(path))
    process.kill()
    process.wait(DEADLINE)
    assert fifos(path)

    await enqueue_one(store)
    await until(lambda: not fifos(path))


async def test_a_commit_of_the_callers_own_is_noticed(store: SQLiteStore, path: Path) -> None:
    started = asyncio.Event()
    waking = asyncio.ensure_future(first_wake(store, started))
    await started.wait()

    with closing(sqlite3.connect(path)) as connection:
        store.join(connection).enqueue([a_task()])
        connection.commit()

    assert await waking is Wake.READY


async def test_where_no_fifo_can_be_made_looking_does(store: SQLiteStore, path: Path) -> None:
    path.with_name("windlass.db-wakes").write_text("in the way")
    other = store.another()
    started = asyncio.Event()
    waking = asyncio.ensure_future(first_wake(other, started))
    await started.wait()

    await enqueue_one(store)

    assert await waking is Wake.READY
    await other.close()


async def test_a_listener_whose_fifo_was_deleted_makes_another(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "POLL_SECONDS", 0.01)
    waking = asyncio.ensure_future(first_wake(store, asyncio.Event()))
    await until(lambda: fifos(path))

    for fifo in fifos(path):
        fifo.unlink()

    await until(lambda: fifos(path))
    await enqueue_one(store)
    assert await waking is Wake.READY


async def test_side_files_have_the_permissions_of_the_database(path: Path) -> None:
    sqlite3.connect(path).close()
    path.touch()
    path.chmod(0o660)
    store = SQLiteStore(path)
    await store.open()
    waking = asyncio.ensure_future(first_wake(store, asyncio.Event()))
    await until(lambda: fifos(path))

    assert path.with_name("windlass.db-lock").stat().st_mode & 0o777 == 0o660
    assert path.with_name("windlass.db-turn").stat().st_mode & 0o777 == 0o660
    folder = path.with_name("windlass.db-wakes")
    assert folder.stat().st_mode & 0o777 == 0o770
    waking.cancel()
    await asyncio.gather(waking, return_exceptions=True)
    await store.close()


async def until(happened) -> None:
    """Wait for something outside of this process's control, with a deadline."""
    async with asyncio.timeout(DEADLINE):
        while not happened():  # noqa: ASYNC110 - no event tells of another process's files
            await asyncio.sleep(0)


async def test_two_workers_of_two_handles_share_a_queue(store: SQLiteStore) -> None:
    other = store.another()
    await store.enqueue(some_tasks(10))
    first, second = await worker_on(store), await worker_on(other)

    claimed = await asyncio.gather(*[worker.claim(3) for worker in (first, second, first, second)])

    ids = [task.task.id for part in claimed for task in part]
    assert len(set(ids)) == len(ids) == 10
    await other.close()
