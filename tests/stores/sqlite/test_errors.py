"""What goes wrong with files, and what the store says then."""
# ruff: noqa: ASYNC240 - the loop has nothing better to do than wait for the test's small files

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from windlass._model.filter import Dimension, Filter, Page
from windlass._store.protocol import Finding, Severity
from windlass._stores.sqlite import SQLiteStore
from windlass._stores.sqlite.connection.open import has_wal_fix
from windlass._stores.sqlite.transaction import Transaction
from windlass.errors import StoreError, StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    a_task,
    all_tasks,
    enqueue_and_claim,
    enqueue_one,
    exists,
    some_tasks,
    worker_on,
)

Peek = Callable[..., list[tuple[object, ...]]]


def limit_pages(pages: int) -> Callable[[Transaction], None]:
    """Let the file grow no further: SQLite then says what it says when the disk is full."""
    return lambda tx: tx._cursor.execute(f"PRAGMA max_page_count = {pages}") and None


async def test_a_full_disk_loses_nothing_and_it_goes_on_when_space_frees(store: SQLiteStore) -> None:
    kept = await enqueue_one(store)
    await store._write(limit_pages(1))
    batch = some_tasks(500, payload=b'{"a":"' + b"x" * 1000 + b'"}')

    with pytest.raises(StoreUnavailable, match=r"full.*nothing stored was lost"):
        await store.enqueue(batch)
    with pytest.raises(StoreUnavailable, match="full"):
        await store.enqueue(batch)
    assert [task.id for task in await all_tasks(store)] == [kept]

    await store._write(limit_pages(1_000_000))
    await store.enqueue(batch)
    assert len(await all_tasks(store)) == 501


async def test_a_full_disk_fails_a_whole_group_and_nothing_half(store: SQLiteStore) -> None:
    await store._write(limit_pages(1))
    big = b'{"a":"' + b"x" * 100_000 + b'"}'
    batches = [some_tasks(20, payload=big) for _ in range(8)]

    answers = await asyncio.gather(*[store.enqueue(batch) for batch in batches], return_exceptions=True)
    await store._write(limit_pages(1_000_000))

    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert await all_tasks(store) == []


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere does not exist: create it"):
        await SQLiteStore(tmp_path / "nowhere" / "windlass.db").open()


async def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory"):
        await SQLiteStore(tmp_path).open()


async def test_something_else_is_not_a_windlass_database(path: Path) -> None:
    path.write_text("these are my holiday notes, not a database, and they shall stay as they are" * 20)
    before = path.read_bytes()

    with pytest.raises(StoreError, match="not a SQLite database"):
        await SQLiteStore(path).open()

    assert path.read_bytes() == before


async def test_a_store_that_could_not_be_opened_can_be_tried_again(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "later" / "windlass.db")
    with pytest.raises(StoreError, match="does not exist"):
        await store.enqueue([a_task()])

    (tmp_path / "later").mkdir()

    assert await enqueue_one(store)
    await store.close()


def test_an_unreadable_file_says_what_this_user_needs(tmp_path: Path) -> None:
    folder = tmp_path / "shut"
    folder.mkdir()
    path = folder / "windlass.db"
    asyncio.run(SQLiteStore(path).migrate())
    path.chmod(0)
    answer, child = os.pipe()
    pid = os.fork()
    if pid == 0:  # As somebody else, for root may read everything.
        try:
            for parent in [folder, *folder.parents]:
                if os.geteuid() == 0 and parent != Path("/"):
                    parent.chmod(parent.stat().st_mode | 0o755)
            if os.geteuid() == 0:
                os.setuid(65534)
            asyncio.run(SQLiteStore(path).open())
        except StoreError as error:
            os.write(child, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(child)
    said = os.read(answer, 1000).decode()
    os.close(answer)

    assert "StoreError" in said
    assert "allow this user to read and write" in said


async def test_a_deleted_file_is_missed_at_the_next_write(store: SQLiteStore, path: Path) -> None:
    await enqueue_one(store)
    path.unlink()

    with pytest.raises(StoreError, match="moved or deleted"):
        await store.enqueue([a_task()])
    assert not path.exists()


async def _read(store: SQLiteStore) -> object:
    return await store.find(Filter(), Page())


async def _count(store: SQLiteStore) -> object:
    return await store.count(Filter(), (Dimension.STATE,))


async def _own_transaction(store: SQLiteStore) -> object:
    async with store.transaction() as connection:
        return connection


async def _check(store: SQLiteStore) -> object:
    return await store.check()


@pytest.mark.parametrize("use", [_read, _count, _own_transaction, _check])
async def test_a_deleted_file_is_not_made_anew_by_a_further_connection(
    store: SQLiteStore, path: Path, use: Callable[[SQLiteStore], Awaitable[object]]
) -> None:
    path.rename(path.with_name("away.db"))

    with pytest.raises(StoreError, match="moved or deleted"):
        await use(store)
    assert not path.exists()

    path.with_name("away.db").rename(path)
    await use(store)


async def test_a_file_put_back_goes_on(store: SQLiteStore, path: Path) -> None:
    path.rename(path.with_name("away.db"))
    with pytest.raises(StoreError, match="moved or deleted"):
        await store.enqueue([a_task()])

    path.with_name("away.db").rename(path)

    assert await enqueue_one(store)


async def test_a_foreign_transaction_that_stays_open_makes_the_store_unavailable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._stores.sqlite.connection.open.BUSY_SECONDS", 0.05)
    store = SQLiteStore(path)
    await store.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="stayed locked"):
            await store.enqueue([a_task()])
        other.execute("ROLLBACK")

        assert await enqueue_one(store)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM windlass_task").fetchall()
        new = a_task()
        with pytest.raises(StoreUnavailable, match="unfinished SELECT"):
            await store.enqueue([new])
        other.execute("ROLLBACK")

    assert not await exists(store, new.id)
    assert await enqueue_one(store)
    await store.close()


# -- WAL ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "fixed"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 54, 1), True),
    ],
)
def test_which_versions_of_sqlite_can_lose_commits_in_wal_mode(version: tuple[int, ...], fixed: bool) -> None:
    assert has_wal_fix(version) is fixed


@pytest.fixture
def unfixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SQLite that has the WAL-reset bug, whatever this one is."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    monkeypatch.setattr("windlass._stores.sqlite.connection.open.BUSY_SECONDS", 0.05)


async def test_a_file_in_wal_mode_is_converted(unfixed: None, path: Path, peek: Peek) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE mine (a)")

    store = SQLiteStore(path)
    await store.open()

    assert peek("PRAGMA journal_mode") == [("delete",)]
    await store.close()


async def test_a_file_that_others_keep_in_wal_mode_is_refused(unfixed: None, path: Path) -> None:
    store = SQLiteStore(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE mine (a)")
        connection.execute("SELECT count(*) FROM mine").fetchall()
        with pytest.raises(StoreError, match=r"WAL mode.*close every program"):
            await store.open()

    await store.open()
    await store.close()


async def test_a_switch_to_wal_under_an_open_store_is_undone(unfixed: None, path: Path, peek: Peek) -> None:
    store = SQLiteStore(path)
    await store.open()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)

    await enqueue_one(store)

    assert peek("PRAGMA journal_mode") == [("delete",)]
    await store.close()


async def test_a_switch_to_wal_that_cannot_be_undone_stops_writing(unfixed: None, path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("SELECT count(*) FROM windlass_task").fetchall()
        with pytest.raises(StoreError, match="WAL mode"):
            await store.enqueue([a_task()])

    assert await enqueue_one(store)
    await store.close()


async def test_with_the_fix_a_file_in_wal_mode_stays_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, peek: Peek
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 3))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    store = SQLiteStore(path)

    assert await enqueue_one(store)
    assert peek("PRAGMA journal_mode") == [("wal",)]
    assert any("WAL mode" in finding.message for finding in await store.check())
    await store.close()


# -- the health report -------------------------------------------------------------------------------


def of(findings: tuple[Finding, ...], subject: str) -> list[Finding]:
    return [finding for finding in findings if finding.subject == subject]


async def test_a_sound_store_reports_nothing_to_do(store: SQLiteStore) -> None:
    findings = await store.check()

    assert {finding.severity for finding in findings if finding.subject != "disk"} == {Severity.OK}
    assert {finding.subject for finding in findings} >= {
        "schema",
        "journal",
        "sqlite",
        "structure",
        "disk",
        "permissions",
        "clock",
        "tasks",
    }


async def test_expired_sessions_and_tasks_in_limbo_are_reported(
    store: SQLiteStore, clock: ManualClock, path: Path
) -> None:
    worker = await worker_on(store)
    await enqueue_and_claim(store, worker)
    clock.advance(3600)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE windlass_task SET session = NULL")
    await enqueue_one(store)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE windlass_task SET state = 'waiting' WHERE state = 'ready'")

    warnings = [
        f.message for f in await store.check() if f.severity is Severity.WARNING and f.subject == "tasks"
    ]

    assert [": 1; " in message for message in warnings] == [True, True, True]
    assert "keeper" in warnings[0]


async def test_a_clock_that_was_set_back_is_reported(store: SQLiteStore, clock: ManualClock) -> None:
    clock.advance(3600)
    await worker_on(store)
    clock.advance(-3600)

    (finding,) = of(tuple(await store.check()), "clock")

    assert finding.severity is Severity.WARNING
    assert "set back" in finding.message


async def test_a_file_that_everybody_may_write_is_reported(store: SQLiteStore, path: Path) -> None:
    path.chmod(0o666)

    (finding,) = of(tuple(await store.check()), "permissions")

    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(("mode", "who"), [(0o640, "its group"), (0o644, "every user")])
async def test_a_file_that_others_may_read_is_reported(
    store: SQLiteStore, path: Path, mode: int, who: str
) -> None:
    path.chmod(mode)

    (finding,) = of(tuple(await store.check()), "permissions")

    assert finding.severity is Severity.WARNING
    assert f"readable by {who}" in finding.message


async def test_a_new_file_is_for_its_user_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = SQLiteStore(tmp_path / "new.db")
        await store.open()
        await enqueue_one(store)
        await store.close()
    finally:
        os.umask(before)

    modes = {file.name: file.stat().st_mode & 0o077 for file in tmp_path.iterdir()}
    assert set(modes) >= {"new.db"}
    assert set(modes.values()) == {0}


async def test_a_newer_schema_is_reported_and_not_touched(store: SQLiteStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE windlass_schema SET number = 7")

    (finding,) = of(tuple(await SQLiteStore(path).check()), "schema")

    assert finding.severity is Severity.ERROR


async def test_a_damaged_file_is_reported(store: SQLiteStore, path: Path) -> None:
    await store.enqueue(some_tasks(2000))
    await store.close()
    data = bytearray(path.read_bytes())
    data[40960 : 40960 + 8192] = b"\x55" * 8192
    path.write_bytes(data)

    (finding,) = of(tuple(await SQLiteStore(path).check()), "structure")

    assert finding.severity is Severity.ERROR
    assert "damaged" in finding.message


async def test_a_page_can_be_read_while_the_disk_is_full(store: SQLiteStore) -> None:
    await enqueue_one(store)
    await store._write(limit_pages(1))

    assert len((await store.find(Filter(), Page())).items) == 1
