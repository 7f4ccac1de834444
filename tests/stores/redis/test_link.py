"""Connections of an event loop: servers that are silent, and those that are slow."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.servers.redis import Redis
from tests.stores.redis.conftest import Peek
from windlass._stores import pool
from windlass._stores.redis import RedisStore
from windlass._stores.redis.connection import link
from windlass.errors import StoreUnavailable
from windlass.testing.conformance.steps import a_task


async def test_a_silent_server_is_given_up_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Redis.start(tmp_path) as server:
        store, task = RedisStore.from_url(server.url), a_task()
        await store.enqueue([a_task()])
        monkeypatch.setattr(link, "REPLY_SECONDS", 0.3)

        os.kill(server.pid, signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match=r"no reply within 0\.3 s"):
            await store.enqueue([task])
        os.kill(server.pid, signal.SIGCONT)
        monkeypatch.undo()

        assert len(await store.enqueue([task])) == 1
        await store.close()


async def test_a_request_that_gets_no_connection_says_so(
    valkey: Redis, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "ACQUIRE_SECONDS", 0.2)
    store = RedisStore.from_url(f"{valkey.new_url()}&connections=1")
    await store.open()
    peek("CLIENT", "PAUSE", 30_000, "WRITE")
    try:
        enqueues = {asyncio.create_task(store.enqueue([a_task()])) for _ in range(2)}
        (refused,), (paused,) = await asyncio.wait(enqueues, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(StoreUnavailable, match=r"no connection to Redis at .* is free: timed out after"):
            await refused
    finally:
        peek("CLIENT", "UNPAUSE")
    assert len(await paused) == 1
    await store.close()


class Sending(asyncio.WriteTransport):
    """A transport that has yet to send some bytes."""

    left = 0

    def get_write_buffer_size(self) -> int:
        return self.left


async def test_a_request_that_makes_progress_is_waited_for() -> None:
    """Progress is that some of the reply has arrived, or that some of the request was sent."""
    transport = Sending()
    replies = link._Replies(transport)
    transport.left = 100
    waiter = replies.expect(1)
    replies.start_timer()

    transport.left = 50
    replies._time_out()
    replies.data_received(b"+PO")
    replies._time_out()
    assert not waiter.done()

    replies._time_out()
    replies.stop_timer()
    with pytest.raises(TimeoutError, match="no reply within"):
        await waiter
