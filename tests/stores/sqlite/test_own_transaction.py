"""A transaction on a connection of the store's own: whose it is, who waits for it, and for how long. (D15)"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from windlass._model.state import State
from windlass._store.protocol import Wake
from windlass._stores.sqlite import SQLiteStore, notify
from windlass._stores.sqlite import own_transaction as transacting
from windlass._stores.sqlite.connection.file_lock import FileLock
from windlass.errors import InvalidOption, StoreError, StoreUnavailable, UsageError
from windlass.testing.conformance.steps import (
    a_task,
    complete,
    enqueue_and_claim,
    enqueue_one,
    state_of,
    worker_on,
)

from .conftest import DEADLINE, line_of

Peek = Callable[..., list[tuple[object, ...]]]

OPEN = """
import sys
from windlass._stores.sqlite import SQLiteStore
with SQLiteStore(sys.argv[1]).transaction() as connection:
    connection.execute("INSERT INTO orders VALUES (7)")
    print("open", flush=True)
    sys.stdin.readline()
print("left", flush=True)
"""


@pytest.fixture
async def orders(store: SQLiteStore) -> None:
    async with store.transaction() as connection:
        connection.execute("CREATE TABLE orders (number INTEGER)")


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transacting, "MAX_OPEN_SECONDS", 0.2)


async def test_the_holders_rows_stand_with_the_completion(
    store: SQLiteStore, orders: None, peek: Peek
) -> None:
    held = await enqueue_and_claim(store, await worker_on(store))

    async with store.transaction() as connection:
        connection.execute("INSERT INTO orders VALUES (?)", (1,))
        store.join(connection).settle([complete(held)])
        before = peek("SELECT count(*) FROM orders")

    assert before == [(0,)]
    assert peek("SELECT number FROM orders") == [(1,)]
    assert await state_of(store, held.task.id) is State.COMPLETED


@pytest.mark.parametrize(
    "way",
    [
        lambda connection: connection.commit(),
        lambda connection: connection.rollback(),
        lambda connection: connection.close(),
        lambda connection: connection.__enter__(),
    ],
    ids=["commit", "rollback", "close", "with"],
)
async def test_its_holder_cannot_end_it(
    store: SQLiteStore, orders: None, peek: Peek, way: Callable[[sqlite3.Connection], object]
) -> None:
    async with store.transaction() as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(UsageError, match="leaving the block commits"):
            way(connection)
        assert peek("SELECT count(*) FROM orders") == [(0,)]

    assert peek("SELECT count(*) FROM orders") == [(1,)]


@pytest.mark.parametrize(
    "statement", ["COMMIT", "END", "ROLLBACK", "BEGIN", "RELEASE windlass_own", "ROLLBACK TO windlass_own"]
)
async def test_nor_by_a_statement(store: SQLiteStore, orders: None, peek: Peek, statement: str) -> None:
    async with store.transaction() as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            connection.execute(statement)
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            connection.executescript("INSERT INTO orders VALUES (2);")
        connection.execute("SAVEPOINT mine")
        connection.execute("INSERT INTO orders VALUES (3)")
        connection.execute("ROLLBACK TO mine")

    assert peek("SELECT number FROM orders") == [(1,)]


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("blocking", [False, True])
async def test_one_that_stays_open_too_long_is_rolled_back_and_others_go_on(
    store: SQLiteStore, orders: None, peek: Peek, blocking: bool
) -> None:
    held = await enqueue_and_claim(store, await worker_on(store))
    opened, let_go = threading.Event(), threading.Event()
    tried: list[str] = []

    def linger(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO orders VALUES (1)")
        opened.set()
        assert let_go.wait(DEADLINE)
        for statement in (
            "INSERT INTO orders VALUES (2)",
            "WITH new AS (SELECT 3) INSERT INTO orders SELECT * FROM new",
            "CREATE TABLE other (a)",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                connection.execute(statement)
            tried.append(statement)
        with pytest.raises(StoreUnavailable, match="already been rolled back"):
            store.join(connection)

    def here() -> None:
        with store.transaction() as connection:
            linger(connection)

    async def in_the_loop() -> None:
        async with store.transaction() as connection:
            await asyncio.to_thread(linger, connection)

    lingering = asyncio.ensure_future(asyncio.to_thread(here) if blocking else in_the_loop())
    async with asyncio.timeout(DEADLINE):
        await asyncio.to_thread(opened.wait, DEADLINE)
        other = await enqueue_one(store)  # waits until the time is up
    let_go.set()

    with pytest.raises(StoreUnavailable, match=r"more than 0\.2 s"):
        await lingering
    assert len(tried) == 3
    assert peek("SELECT count(*) FROM orders") == [(0,)]
    assert peek("SELECT count(*) FROM sqlite_master WHERE name = 'other'") == [(0,)]
    assert await state_of(store, other) is State.READY
    assert await state_of(store, held.task.id) is State.RUNNING


@pytest.mark.usefixtures("brief")
async def test_what_the_holder_raises_is_told_and_not_that_his_time_was_up(store: SQLiteStore) -> None:
    async def overstay() -> None:
        async with store.transaction():
            await enqueue_one(store)  # waits until the time is up
            raise KeyError

    with pytest.raises(KeyError):
        await overstay()


async def test_a_transaction_that_sqlite_gave_up_takes_nothing_with_it(
    store: SQLiteStore, orders: None, peek: Peek
) -> None:
    """A full disk rolls everything back; a holder that goes on regardless must not write by himself."""

    async def fill_the_disk() -> None:
        async with store.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(sqlite3.OperationalError, match="full"):
                connection.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
                    "INSERT INTO orders SELECT i FROM n"
                )
            assert not connection.in_transaction
            with pytest.raises(sqlite3.DatabaseError):
                connection.execute("INSERT INTO orders VALUES (2)")

    with pytest.raises(StoreUnavailable, match="already been rolled back"):
        await fill_the_disk()

    assert peek("SELECT count(*) FROM orders") == [(0,)]


async def test_writers_of_other_processes_wait_for_it_and_it_for_them(
    store: SQLiteStore, orders: None, path: Path, python, peek: Peek
) -> None:
    process = python(OPEN, path)
    assert await line_of(process) == "open"

    waiting = asyncio.ensure_future(enqueue_one(store))
    for_turn = asyncio.ensure_future(_insert(store, 8))
    done, _ = await asyncio.wait([waiting, for_turn], timeout=0.1)
    process.stdin.write("leave\n")
    process.stdin.flush()

    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(waiting, for_turn)
    assert not done
    assert peek("SELECT number FROM orders") == [(7,), (8,)]


async def test_it_waits_for_its_turn_among_those_who_know_the_turnstile(
    store: SQLiteStore, orders: None, path: Path, peek: Peek
) -> None:
    turn = FileLock()
    turn.open_beside(path)
    with turn:
        waiting = asyncio.ensure_future(_insert(store, 1))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
    turn.close()

    assert not done
    await waiting
    assert peek("SELECT number FROM orders") == [(1,)]


async def test_its_commit_is_told_at_once_and_not_found_by_looking(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = asyncio.Event(), notify.Listener._poll

    async def look_once(listener: notify.Listener, ask: Any) -> None:
        await look(listener, ask)
        looked.set()

    monkeypatch.setattr(notify, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(notify.Listener, "_poll", look_once)
    hints = store.wakes(["default"])
    hearing = asyncio.ensure_future(anext(hints))
    async with asyncio.timeout(DEADLINE):
        await looked.wait()
        async with store.transaction() as connection:
            store.join(connection).enqueue([a_task()])

        assert await hearing is Wake.READY
    await hints.aclose()


async def test_a_process_that_dies_in_it_leaves_nothing_and_lets_others_in(
    store: SQLiteStore, orders: None, path: Path, python, peek: Peek
) -> None:
    process = python(OPEN, path)
    assert await line_of(process) == "open"

    process.kill()

    async with asyncio.timeout(DEADLINE):
        await _insert(store, 8)
    assert peek("SELECT number FROM orders") == [(8,)]


@pytest.mark.parametrize("blocking", [False, True])
async def test_one_that_does_not_get_its_turn_says_so_and_is_never_begun(
    store: SQLiteStore, orders: None, peek: Peek, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    async with store.transaction() as connection:
        monkeypatch.setattr(transacting, "DEADLINE_SECONDS", 0.05)
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            await (asyncio.to_thread(_insert_here, store) if blocking else _insert(store, 2))
        monkeypatch.undo()
        connection.execute("INSERT INTO orders VALUES (1)")

    await _insert(store, 3)
    assert peek("SELECT number FROM orders") == [(1,), (3,)]


async def test_whoever_stops_waiting_for_his_turn_keeps_nobody_from_theirs(
    store: SQLiteStore, orders: None, peek: Peek
) -> None:
    async with store.transaction():
        waiting = [asyncio.ensure_future(_insert(store, n)) for n in range(3)]
        await asyncio.sleep(0)
        for one in waiting[:2]:
            one.cancel()
        await asyncio.wait(waiting[:2])

    async with asyncio.timeout(DEADLINE):
        await waiting[2]
    assert peek("SELECT number FROM orders") == [(2,)]


async def test_it_leaves_neither_threads_nor_open_files(store: SQLiteStore, orders: None) -> None:
    def files() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    before = files()
    for n in range(5):
        await _insert(store, n)
        with pytest.raises(ValueError, match="undone"):
            async with store.transaction():
                raise ValueError("undone")

    for thread in threading.enumerate():
        if thread.name == "windlass-transaction":
            thread.join(DEADLINE)
    assert files() <= before


async def test_a_forked_child_leaves_it_to_its_parent(store: SQLiteStore, orders: None, peek: Peek) -> None:
    async with store.transaction() as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        child = os.fork()
        if child == 0:
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        connection.execute("INSERT INTO orders VALUES (2)")

    assert peek("SELECT number FROM orders") == [(1,), (2,)]


async def test_settling_on_a_connection_without_a_transaction_is_refused(
    store: SQLiteStore, path: Path
) -> None:
    held = await enqueue_and_claim(store, await worker_on(store))
    connection = sqlite3.connect(path)

    with pytest.raises(InvalidOption, match="BEGIN IMMEDIATE"):
        store.join(connection).settle([complete(held)])

    connection.close()
    assert await state_of(store, held.task.id) is State.RUNNING


async def test_a_closed_store_begins_none(store: SQLiteStore) -> None:
    await store.close()

    with pytest.raises(StoreError, match="open it again"):
        store.transaction()


async def test_a_file_that_is_not_there_yet_is_made(path: Path) -> None:
    store = SQLiteStore(path)

    async with store.transaction() as connection:
        store.join(connection).enqueue([new := a_task()])

    assert await state_of(store, new.id) is State.READY
    await store.close()


async def _insert(store: SQLiteStore, number: int) -> None:
    async with store.transaction() as connection:
        connection.execute("INSERT INTO orders VALUES (?)", (number,))


def _insert_here(store: SQLiteStore) -> None:
    with store.transaction() as connection:
        connection.execute("INSERT INTO orders VALUES (9)")


async def test_a_connection_that_cannot_be_set_up_gives_the_reason(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._stores.sqlite.connection.open.BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        with pytest.raises(StoreUnavailable, match="locked"):
            async with store.transaction():
                pass
