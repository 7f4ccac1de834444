"""Blocking enqueues: no thread in between, also when connections break, and on event loops."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.servers.redis import Redis
from tests.stores.redis.conftest import Peek
from windlass import App, TaskType
from windlass._stores.redis.connection import socket_link
from windlass.errors import StoreError, StoreUnavailable


@pytest.fixture
def app(valkey: Redis) -> Iterator[App]:
    app = App(f"{valkey.new_url()}&connections=2")
    yield app
    asyncio.run(app.close())


@pytest.fixture
def note(app: App) -> TaskType[[int], None, None]:
    @app.task
    def note(n: int) -> None: ...

    return note


def number_stored(app: App) -> int:
    return sum(count.number for count in app.sync_operator.count())


def test_it_needs_no_thread_of_its_own(
    app: App, note: TaskType[[int], None, None], caplog: pytest.LogCaptureFixture
) -> None:
    before = {*threading.enumerate()}

    assert note.enqueue(1).created

    assert {*threading.enumerate()} == before
    assert caplog.text.count("no live worker serves queue default") == 1  # which it has looked up
    assert number_stored(app) == 1


def test_many_threads_share_few_connections(app: App, note: TaskType[[int], None, None], peek: Peek) -> None:
    connected = len(peek("CLIENT", "LIST", "TYPE", "NORMAL").splitlines())

    with ThreadPoolExecutor(12) as threads:
        handles = [*threads.map(note.enqueue, range(300))]

    assert len(peek("CLIENT", "LIST", "TYPE", "NORMAL").splitlines()) <= connected + 2
    assert len({handle.id for handle in handles}) == number_stored(app) == 300


@pytest.mark.parametrize("checked", [True, False], ids=["idle", "in use"])
def test_a_connection_that_was_cut_is_replaced(
    app: App,
    note: TaskType[[int], None, None],
    peek: Peek,
    monkeypatch: pytest.MonkeyPatch,
    checked: bool,
) -> None:
    """An idle one is checked before its use; the request on any other is repeated."""
    monkeypatch.setattr(socket_link, "_CHECK_SECONDS", -1.0 if checked else 3600.0)
    note.enqueue(1)

    peek("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")

    assert note.enqueue(2).created
    assert number_stored(app) == 2


def test_a_server_that_does_not_answer_is_unavailable(
    app: App, note: TaskType[[int], None, None], peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_link, "REPLY_SECONDS", 0.2)
    note.enqueue(1)

    peek("CLIENT", "PAUSE", 30_000, "WRITE")
    try:
        with pytest.raises(StoreUnavailable, match="timed out"):
            note.enqueue(2)
    finally:
        peek("CLIENT", "UNPAUSE")


async def test_on_an_event_loop_another_thread_does_it(
    app: App, note: TaskType[[int], None, None], caplog: pytest.LogCaptureFixture
) -> None:
    assert note.enqueue(1).created

    assert "blocks the event loop" in caplog.text
    assert sum(count.number for count in await app.operator.count()) == 1
    await app.close()


async def test_a_closed_store_is_opened_again_by_its_next_use(
    app: App, note: TaskType[[int], None, None], peek: Peek
) -> None:
    await asyncio.to_thread(note.enqueue, 1)
    store: Any = app.store
    await store.close()

    with pytest.raises(StoreError, match="is closed"):
        await store.now()

    await asyncio.to_thread(note.enqueue, 2)
    assert sum(count.number for count in await app.operator.count()) == 2
    await app.close()
