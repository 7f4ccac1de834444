"""Connections of an event loop."""

import asyncio
import os

from windlass._stores.redis import RedisStore
from windlass.testing.conformance.steps import a_task


async def test_a_forked_child_leaves_its_parent_s_connections_alone(store: RedisStore) -> None:
    """They share an epoll instance: what the child removes from it, the parent hears nothing of."""

    async def enqueue_at_once() -> None:
        await asyncio.gather(*(store.enqueue([a_task()]) for _ in range(4)))

    await enqueue_at_once()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child's coverage is not collected
        os._exit(0)
    os.waitpid(pid, 0)  # noqa: ASYNC222  The child ends at once.

    async with asyncio.timeout(15):
        await enqueue_at_once()
