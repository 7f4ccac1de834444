"""One thread writes for everybody: groups that share a commit, refusals, closing and forking."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windlass._model.filter import Count, Filter, Page
from windlass._store.protocol import Capability, Durability
from windlass._stores import open_store
from windlass._stores.sqlite import SQLiteStore
from windlass._stores.sqlite.connection import threads as lines
from windlass._stores.sqlite.connection.file_lock import FileLock
from windlass._stores.sqlite.read.find import Reader
from windlass._stores.sqlite.transaction import Transaction
from windlass.errors import DuplicateTask, InvalidOption, StoreError, StoreUnavailable
from windlass.testing.conformance.steps import a_task, all_tasks, enqueue_one, exists, worker_on

from .conftest import DEADLINE, line_of

Peek = Callable[..., list[tuple[object, ...]]]


def held(store: SQLiteStore, gate: threading.Event) -> "asyncio.Future[None]":
    """Keep the writing thread busy until the gate opens, so that what follows becomes one group."""

    def wait(_: Transaction) -> None:
        assert gate.wait(DEADLINE)

    return asyncio.ensure_future(store._write(wait))


async def test_one_refused_request_does_not_spoil_its_group(store: SQLiteStore) -> None:
    await enqueue_one(store, fingerprint="f")
    gate = threading.Event()
    busy = held(store, gate)
    wishes = [[a_task()], [a_task(), a_task(fingerprint="f")], [a_task()]]
    requests = [asyncio.ensure_future(store.enqueue(batch)) for batch in wishes]
    await asyncio.sleep(0)

    gate.set()
    answers = await asyncio.gather(*requests, return_exceptions=True)
    await busy

    assert isinstance(answers[1], DuplicateTask)
    assert [await exists(store, new.id) for batch in wishes for new in batch] == [True, False, False, True]


async def test_a_request_given_up_before_its_turn_is_not_done(store: SQLiteStore) -> None:
    gate = threading.Event()
    busy = held(store, gate)
    new = a_task()
    request = asyncio.ensure_future(store.enqueue([new]))
    await asyncio.sleep(0)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)

    gate.set()
    await busy

    assert not await exists(store, new.id)


async def test_256_enqueues_at_once_all_stand(store: SQLiteStore, peek: Peek) -> None:
    answers = await asyncio.gather(*[store.enqueue([a_task()]) for _ in range(256)])

    assert all(answer.created for (answer,) in answers)
    assert len(await all_tasks(store)) == 256


async def test_closing_serves_what_has_been_asked_for(store: SQLiteStore, path: Path) -> None:
    gate = threading.Event()
    busy = held(store, gate)
    new = a_task()
    request = asyncio.ensure_future(store.enqueue([new]))
    await asyncio.sleep(0)
    closing_ = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)

    gate.set()
    await asyncio.gather(busy, request, closing_)

    assert [answer.created for answer in request.result()] == [True]
    with pytest.raises(StoreError, match="open it again"):
        await store.enqueue([a_task()])
    with pytest.raises(StoreError, match="open it again"):
        await store.find(Filter(), Page())


async def test_opening_and_closing_many_times_at_once_is_harmless(path: Path) -> None:
    store = SQLiteStore(path)

    await asyncio.gather(*[store.open() for _ in range(10)])
    new = await enqueue_one(store)
    await asyncio.gather(*[store.close() for _ in range(10)])
    await store.open()

    assert await exists(store, new)
    await store.close()


async def test_closing_leaves_no_threads(path: Path) -> None:
    before = set(threading.enumerate())
    store = SQLiteStore(path)
    await enqueue_one(store)
    await store.find(Filter(), Page())
    await store.count(Filter(), ())

    await store.close()

    assert set(threading.enumerate()) <= before


async def test_nobody_waits_for_a_count(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """To count millions takes seconds, and polls for ready tasks use the reader."""
    new, gate, count = await enqueue_one(store), threading.Event(), Reader.count

    def slow(reader: Reader, *args: Any, **named: Any) -> list[Count]:
        assert gate.wait(DEADLINE)
        return count(reader, *args, **named)

    monkeypatch.setattr(Reader, "count", slow)
    counting = asyncio.create_task(store.count(Filter(), ()))
    assert await exists(store, new)
    assert not counting.done()
    gate.set()
    assert [one.number for one in await counting] == [1]


async def test_one_handle_serves_several_threads_and_loops(store: SQLiteStore) -> None:
    ids: list[str] = []

    def elsewhere() -> None:
        ids.extend([asyncio.run(enqueue_one(store)) for _ in range(5)])

    threads = [threading.Thread(target=elsewhere) for _ in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join(DEADLINE) for thread in threads])

    assert {task.id for task in await all_tasks(store)} == set(ids)
    assert len(ids) == 20


async def test_another_handle_goes_on_while_this_ones_queue_waits(store: SQLiteStore) -> None:
    other = store.another()
    await other.open()
    gate = threading.Event()

    def wait(_: object) -> None:
        assert gate.wait(DEADLINE)

    reading = asyncio.ensure_future(store._read(wait))
    await worker_on(other)

    gate.set()
    await reading
    await other.close()


async def test_a_request_that_takes_too_long_is_unavailable(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    busy = held(store, gate)
    await asyncio.sleep(0)
    monkeypatch.setattr(lines, "DEADLINE_SECONDS", 0.01)

    with pytest.raises(StoreUnavailable, match=r"windlass\.db-lock"):
        await store.enqueue([a_task()])

    gate.set()
    await busy


async def test_whoever_holds_the_turn_is_waited_for(store: SQLiteStore, path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with path.with_name("windlass.db-lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        request = asyncio.ensure_future(store.enqueue([a_task()]))
        await asyncio.sleep(0)
        await store.find(Filter(), Page())  # Readers need no turn.
        assert not request.done()

        fcntl.flock(lock, fcntl.LOCK_UN)
        await request


async def test_an_unexpected_error_reaches_the_caller_and_the_line_goes_on(store: SQLiteStore) -> None:
    def fail(_: Transaction) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store._write(fail)
    with pytest.raises(ZeroDivisionError):
        await store._read(fail)

    assert await enqueue_one(store)


def test_a_forked_child_opens_connections_of_its_own(path: Path) -> None:
    store = SQLiteStore(path)

    async def before() -> str:
        await store.open()
        await store.find(Filter(), Page())
        return await enqueue_one(store)

    first = asyncio.run(before())
    answer, child = os.pipe()
    pid = os.fork()
    if pid == 0:
        second = asyncio.run(enqueue_one(store))
        seen = asyncio.run(exists(store, first))
        os.write(child, f"{second} {seen}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    second, seen = os.read(answer, 1000).decode().split()
    os.close(answer)
    os.close(child)

    async def after() -> bool:
        both = await exists(store, second) and await exists(store, await enqueue_one(store))
        await store.close()
        return both

    assert seen == "True"
    assert asyncio.run(after())


FORK_WITHIN_A_TRANSACTION = """
import asyncio, os, sys, threading
from windlass._stores.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
gate, inside = threading.Event(), threading.Event()
def insert_slowly(tx):
    for n in range(2000):
        tx.run("put_queue", {"name": f"q{n}", "paused": 0, "settings": "{}"})
    tx._cursor.execute("PRAGMA cache_spill = 1")
    inside.set()
    gate.wait()
async def write():
    await store.open()
    await store._write(insert_slowly)
    await store.close()
thread = threading.Thread(target=lambda: asyncio.run(write()))
thread.start()
inside.wait()
pid = os.fork()
if pid == 0:
    sys.exit()  # Ends the interpreter, destructors and all.
os.waitpid(pid, 0)
gate.set()
thread.join()
print("done", flush=True)
"""


async def test_a_child_forked_within_a_transaction_leaves_it_to_its_parent(
    path: Path, python, peek: Peek
) -> None:
    assert await line_of(python(FORK_WITHIN_A_TRANSACTION, path)) == "done"

    assert peek("SELECT count(*) FROM windlass_queue") == [(2000,)]
    assert peek("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://:memory:", "sqlite:///:memory:"])
def test_no_file_is_no_store(url: str) -> None:
    with pytest.raises(InvalidOption, match="memory://"):
        open_store(url)


def test_urls_name_relative_and_absolute_files() -> None:
    assert open_store("sqlite:///windlass.db").path == Path.cwd() / "windlass.db"
    assert open_store("sqlite:////var/lib/app.db").path == Path("/var/lib/app.db")
    with pytest.raises(InvalidOption, match=r"sqlite:///windlass\.db"):
        open_store("sqlite://windlass.db")


def test_the_promise_is_durable_and_says_why(path: Path) -> None:
    store = SQLiteStore(path)

    assert store.promise.durability is Durability.DURABLE
    assert "EXTRA" in store.promise.why
    assert store.capabilities == Capability.JOIN | Capability.SHARE | Capability.MIGRATE


async def test_a_wake_that_fails_is_logged_once_and_costs_nobody_a_write(
    store: SQLiteStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(store._writer()._commits, "_wake", fail)
    async with asyncio.timeout(DEADLINE):
        ids = [await enqueue_one(store) for _ in range(3)]

    assert [task.id for task in await all_tasks(store)] == ids
    assert len([line for line in caplog.records if line.name == "windlass.store"]) == 1


@pytest.mark.parametrize("reads", [False, True])
async def test_a_line_whose_thread_dies_fails_what_waits_and_the_next_use_makes_another(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    await enqueue_one(store)
    line = await store._reader("read") if reads else store._writer()
    entered, gate = threading.Event(), threading.Event()

    def die(_: object) -> None:
        entered.set()
        assert gate.wait(DEADLINE)
        raise SystemExit

    monkeypatch.setattr(line, "_serve", die)
    requests = [asyncio.ensure_future(line.submit(lambda _: None)) for _ in range(3)]
    assert await asyncio.to_thread(entered.wait, DEADLINE)
    gate.set()
    async with asyncio.timeout(DEADLINE):
        answers = await asyncio.gather(*requests, return_exceptions=True)

    assert all(isinstance(answer, StoreUnavailable) for answer in answers), answers
    assert line.is_closed
    with pytest.raises(StoreUnavailable, match="retry"):
        await line.submit(lambda _: None)
    await enqueue_one(store)
    assert len(await all_tasks(store)) == 2


@pytest.mark.parametrize("error", [OSError(errno.ENOLCK, "No locks available"), MemoryError()])
async def test_what_the_system_refuses_is_unavailable_and_names_the_file(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(_: FileLock) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(FileLock, "__enter__", refuse)
        with pytest.raises(StoreUnavailable, match=r"windlass\.db.*retry"):
            await store.enqueue([a_task()])
        with pytest.raises(StoreUnavailable, match=r"windlass\.db.*retry"):
            await SQLiteStore(store.path.with_name("new-windlass.db")).open()

    assert await enqueue_one(store)


async def test_what_goes_wrong_after_the_commit_is_not_the_callers_to_hear(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FileLock) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "has_waiters", refuse)

    assert await exists(store, await enqueue_one(store))
