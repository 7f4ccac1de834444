"""A server that syncs every second and is killed: what is lost was acknowledged in the last two seconds."""

import signal
from pathlib import Path
from time import monotonic

import pytest

from tests.servers.redis import EVERY_SECOND, Redis
from windlass._store.protocol import Durability
from windlass._stores.redis import RedisStore
from windlass.testing.conformance.steps import all_tasks, complete, settle_now, some_tasks, worker_on

WINDOW = 2.0  # seconds, as docs/redis.md says
SECONDS = 3.5
pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]


async def test_a_relaxed_store_loses_at_most_the_last_two_seconds(tmp_path: Path) -> None:
    with Redis.start(tmp_path, settings=EVERY_SECOND) as server:
        store = RedisStore.from_url(server.url)
        await store.open()
        assert store.promise.durability is Durability.RELAXED
        worker = await worker_on(store)
        enqueued: dict[str, float] = {}
        completed: dict[str, float] = {}
        until = monotonic() + SECONDS
        while monotonic() < until:
            batch = some_tasks(10)
            await store.enqueue(batch)
            enqueued |= {new.id: monotonic() for new in batch}
            claimed = await worker.claim(5)
            await settle_now(store, *map(complete, claimed))
            completed |= {one.task.id: monotonic() for one in claimed}

        killed_at = monotonic()
        server.stop(signal.SIGKILL)
        await store.close()
        server.start_again()
        again = RedisStore.from_url(server.url)
        await again.open()
        left = {task.id: task for task in await all_tasks(again)}
        await again.close()

    lost = [at for task_id, at in enqueued.items() if task_id not in left]
    undone = [at for task_id, at in completed.items() if task_id in left and not left[task_id].finished_at]
    assert len(enqueued) > 100
    assert not [at for at in lost + undone if at < killed_at - WINDOW]
