"""Sentinel: the store finds the primary, and the next one when that dies."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.servers.redis import DURABLE, Redis
from tests.servers.redis_cluster import command, until
from tests.servers.redis_sentinel import SERVICE, Sentinel
from windlass._store.protocol import Durability
from windlass._stores.redis import RedisStore
from windlass.errors import InvalidOption, StoreUnavailable
from windlass.testing.conformance.steps import all_tasks, complete, settle, some_tasks, worker_on

DEADLINE = 60.0
pytestmark = pytest.mark.timeout(120)


async def test_a_replica_takes_over_with_all_that_it_confirmed(tmp_path: Path) -> None:
    with Redis.start(tmp_path, settings=DURABLE) as primary:
        following = {"replicaof": f"127.0.0.1 {primary.port}", "repl-diskless-sync-delay": "0", **DURABLE}
        with Redis.start(tmp_path, settings=following) as replica:
            until(lambda: command(replica, "ROLE")[3] == b"connected", "the replica has synced")
            with Sentinel.start(tmp_path, primary) as sentinel:
                until(
                    lambda: len(command(sentinel, "SENTINEL REPLICAS", SERVICE)) == 1,
                    "Sentinel knows the replica",
                )
                await survives(sentinel.url, primary)


async def survives(url: str, primary: Redis) -> None:
    store, alone = RedisStore.from_url(f"{url}?replicas=1"), RedisStore.from_url(url)
    await store.open()
    assert store.promise.durability is Durability.DURABLE
    await alone.open()
    assert alone.promise.durability is Durability.RELAXED
    worker = await worker_on(store)
    await store.enqueue(some_tasks(10))
    held = await worker.claim(4)

    primary.stop(signal.SIGKILL)
    async with asyncio.timeout(DEADLINE):
        receipts = None
        while receipts is None:
            with suppress(StoreUnavailable):
                receipts = await settle(alone, *map(complete, held))
            await asyncio.sleep(0)

    assert len(await all_tasks(alone)) == 10
    for one in (store, alone):
        await one.close()


async def test_a_sentinel_can_have_a_password_of_its_own(tmp_path: Path) -> None:
    with Redis.start(tmp_path) as primary, Sentinel.start(tmp_path, primary, password="s/cret") as sentinel:
        denied = RedisStore.from_url(sentinel.url)
        with pytest.raises(StoreUnavailable, match="no server knows the primary of 'shop'"):
            await denied.open()
        await denied.close()

        store = RedisStore.from_url(f"{sentinel.url}?sentinel_password=s%2Fcret")
        await store.open()
        await store.enqueue(some_tasks(2))
        assert len(await all_tasks(store)) == 2
        await store.close()
        assert "s/cret" not in store.address.display


async def test_without_a_sentinel_the_store_is_unavailable() -> None:
    store = RedisStore.from_url(f"redis+sentinel://127.0.0.1:1/{SERVICE}")

    with pytest.raises(StoreUnavailable, match="no server knows the primary of 'shop'"):
        await store.open()
    await store.close()


def test_a_password_for_sentinels_is_refused_without_sentinels() -> None:
    with pytest.raises(InvalidOption, match="unknown option 'sentinel_password'"):
        RedisStore.from_url("redis://127.0.0.1:6379?sentinel_password=x")


def test_a_url_must_name_the_primary() -> None:
    with pytest.raises(InvalidOption, match="names no primary"):
        RedisStore.from_url("redis+sentinel://127.0.0.1:26379")
