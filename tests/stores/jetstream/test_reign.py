"""One owner, from its TAKE on: its beats, requests that are sent again, a disk that is full."""

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from tests.loops.workers import eventually, pause
from tests.stores.jetstream.stand_in import MemoryLog, MemorySnapshots, Nobody, new_task, reigning
from windlass._store.messages import EnqueueRequest
from windlass._stores.jetstream.entry import Kind, decode
from windlass._stores.jetstream.wire import encode_request, encode_requests
from windlass._stores.sqlite import schema
from windlass.errors import StoreUnavailable


async def test_an_owner_that_migrates_for_long_shows_that_it_lives(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a standby takes the store over, begins with the migration, and loses the store, too."""
    log, goes_on = MemoryLog(), threading.Event()
    ensure = schema.ensure

    def slow(*arguments: Any, **options: Any) -> None:
        assert goes_on.wait(30)
        ensure(*arguments, **options)

    monkeypatch.setattr(schema, "ensure", slow)
    async with AsyncExitStack() as stack:
        reign = reigning(folder, log, MemorySnapshots(), beat=0.05)
        taking = asyncio.create_task(stack.enter_async_context(reign))
        try:
            await eventually(
                lambda: [decode(one).kind for one in log.stored].count(Kind.NOTHING) >= 2, within=20
            )
            assert not taking.done()
        finally:
            goes_on.set()
            await taking


async def test_an_owner_does_not_pile_up_beats_that_nobody_stores(folder: Path) -> None:
    log = MemoryLog()
    async with reigning(folder, log, MemorySnapshots(), beat=0.02) as reign:
        log.hold(Kind.NOTHING)
        await eventually(lambda: len(log.held) == 10, within=20)
        await pause(reign._settings.beat * 5)  # for what must not happen

        assert len(log.held) == 10


async def test_a_request_that_is_sent_again_meanwhile_is_carried_out_once(folder: Path) -> None:
    log, client = MemoryLog(), Nobody()
    async with reigning(folder, log, MemorySnapshots(), client) as reign:
        log.hold(Kind.PAGES)
        data = encode_requests([encode_request(EnqueueRequest((new_task(),)))])
        asked = Msg(_client=client, subject="windlass.ask.enqueue", reply="_INBOX.a", data=data)  # type: ignore[arg-type]
        for _ in range(3):
            await reign._hear(asked)
        await eventually(lambda: log.held)
        log.let_go()
        await eventually(lambda: client.published)
        await reign._hear(asked)  # Its answer was lost, perhaps.
        await eventually(lambda: len(client.published) == 2)

        assert [subject for subject, _ in client.published] == ["_INBOX.a", "_INBOX.a"]


@pytest.mark.parametrize("has_standby", [True, False])
async def test_an_owner_whose_disk_is_full_leaves_the_store_to_a_standby(
    folder: Path, has_standby: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one it goes on: it can still read, and says why it cannot write."""

    async def presence(*_: object) -> dict[str, str]:
        return {"one": "owner", "two": "standby"} if has_standby else {"one": "owner"}

    monkeypatch.setattr("windlass._stores.jetstream.reign.presence", presence)
    log = MemoryLog()
    async with reigning(folder, log, MemorySnapshots()) as reign:
        serving = asyncio.create_task(reign.serve(asyncio.Event()))
        await fill_disk(reign._store)

        answer = await reign._carry_out(EnqueueRequest(tuple(new_task() for _ in range(100))))

        if has_standby:
            assert answer is None
            assert await serving == "it was handed over"
            assert isinstance(reign.unfit.result(), StoreUnavailable)
            assert decode(log.stored[-1]).kind == Kind.LEAVE
        else:
            assert answer is not None
            assert answer.failure is not None
            assert "is full" in answer.failure.detail
            assert not serving.done()
            serving.cancel()


async def fill_disk(store: Any) -> None:
    """Let SQLite find no more room for its file."""

    def fill(tx: Any) -> None:
        (pages,) = tx._cursor.execute("PRAGMA page_count").fetchone()
        tx._cursor.execute(f"PRAGMA max_page_count = {pages}")

    await store._write(fill)
