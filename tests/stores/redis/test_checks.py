"""What a server promises, which servers are refused, and what `check` reports."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.servers.redis import DURABLE, EVERY_SECOND, VOLATILE, Redis
from tests.servers.redis_cluster import command
from windlass._model.filter import Filter, Page
from windlass._model.task import Enqueued, NewTask
from windlass._store.protocol import Durability, Severity
from windlass._stores.redis import RedisStore
from windlass._stores.redis.checks import Server, refuse
from windlass._stores.redis.connection import client
from windlass.errors import StoreError, StoreUnavailable
from windlass.testing.conformance.steps import a_task

GOOD = {"name": "Redis", "version": "7.2.4", "role": "master", "eviction": "noeviction"}


@pytest.mark.parametrize(
    ("settings", "durability"),
    [
        (VOLATILE, Durability.VOLATILE),
        (EVERY_SECOND, Durability.RELAXED),
        (DURABLE, Durability.DURABLE),
    ],
    ids=lambda one: str(one) if isinstance(one, Durability) else "",
)
async def test_a_store_promises_what_the_server_is_set_up_for(
    tmp_path: Path, settings: Mapping[str, str], durability: Durability
) -> None:
    with Redis.start(tmp_path, settings=settings) as server:
        store = RedisStore.from_url(server.url)
        await store.open()
        found = {one.subject: one.severity for one in await store.check()}
        await store.close()

        assert store.promise.durability is durability
        assert found["durability"] is (Severity.OK if durability is Durability.DURABLE else Severity.WARNING)
        if durability is not Durability.DURABLE:
            strict = RedisStore.from_url(f"{server.url}?durability=durable")
            with pytest.raises(StoreError, match="appendfsync always"):
                await strict.open()
            await strict.close()


async def test_a_server_that_evicts_keys_is_refused(tmp_path: Path) -> None:
    with Redis.start(tmp_path, settings={"maxmemory-policy": "allkeys-lru"}) as server:
        store = RedisStore.from_url(server.url)
        with pytest.raises(StoreError, match="maxmemory-policy noeviction"):
            await store.open()
        found = {one.subject: one.severity for one in await store.check()}
        await store.close()

    assert found["eviction"] is Severity.ERROR


async def test_a_replica_is_refused(tmp_path: Path) -> None:
    with Redis.start(tmp_path) as primary:
        settings = {"replicaof": f"127.0.0.1 {primary.port}"}
        with Redis.start(tmp_path, settings=settings) as replica:
            store = RedisStore.from_url(replica.url)
            with pytest.raises(StoreError, match="is a replica"):
                await store.open()
            await store.close()


def test_an_old_server_is_refused() -> None:
    old = Server(**GOOD | {"version": "6.2.14"}, appendonly="yes", appendfsync="always")

    with pytest.raises(StoreError, match=r"version 6\.2\.14"):
        refuse(old, None, "cache:6379")
    assert [one.subject for one in old.findings() if one.severity is Severity.ERROR] == ["version"]


def test_a_server_that_hides_its_configuration_promises_less() -> None:
    hidden = Server(**GOOD | {"eviction": None}, appendonly="yes", appendfsync=None)

    refuse(hidden, None, "cache:6379")
    assert hidden.promise.durability is Durability.RELAXED
    assert "does not show" in hidden.promise.why
    with pytest.raises(StoreError, match="durability=durable"):
        refuse(hidden, Durability.DURABLE, "cache:6379")


@pytest.mark.parametrize(
    ("settings", "durability"),
    [(VOLATILE, Durability.VOLATILE), (DURABLE, Durability.RELAXED)],
    ids=["without AOF", "with AOF"],
)
async def test_a_server_without_config_still_shows_whether_it_has_an_append_only_file(
    tmp_path: Path, settings: Mapping[str, str], durability: Durability
) -> None:
    with Redis.start(tmp_path, settings=settings) as server:
        command(server, "ACL SETUSER", "default", "-config")
        store = RedisStore.from_url(server.url)
        await store.open()
        await store.close()

        assert store.promise.durability is durability


def test_a_server_that_never_syncs_by_itself_says_what_may_be_lost() -> None:
    promise = Server(**GOOD, appendonly="yes", appendfsync="no").promise

    assert promise.durability is Durability.RELAXED
    assert "half a minute" in promise.why


async def test_a_server_that_does_not_sync_during_rewrites_is_not_durable(tmp_path: Path) -> None:
    with Redis.start(tmp_path, settings={**DURABLE, "no-appendfsync-on-rewrite": "yes"}) as server:
        store = RedisStore.from_url(f"{server.url}?durability=durable")
        with pytest.raises(StoreError, match="no-appendfsync-on-rewrite yes"):
            await store.open()
        await store.close()


async def test_a_write_waits_for_as_many_replicas_as_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REPLICA_MILLISECONDS", 2_000)
    with Redis.start(tmp_path, settings={"repl-diskless-sync-delay": "0"}) as primary:
        settings = {"replicaof": f"127.0.0.1 {primary.port}"}
        with Redis.start(tmp_path, settings=settings):
            enough, too_few = (RedisStore.from_url(f"{primary.url}?replicas={number}") for number in (1, 2))
            task = a_task()
            await enqueued_within_deadline(enough, task)
            with pytest.raises(StoreUnavailable, match="only 1 of 2 replicas"):
                await too_few.enqueue([a_task()])
            assert await enough.enqueue([task]) == [Enqueued(id=task.id, created=False)]
            await enough.close()
            await too_few.close()


async def test_reading_waits_for_no_replica(tmp_path: Path) -> None:
    with Redis.start(tmp_path) as primary:
        store, alone = RedisStore.from_url(primary.url), RedisStore.from_url(f"{primary.url}?replicas=1")
        task = a_task()
        await store.enqueue([task])

        found = await alone.find(Filter(), Page(limit=10))

        assert [one.id for one in found.items] == [task.id]
        await store.close()
        await alone.close()


async def test_a_repeated_enqueue_is_acknowledged_only_when_the_replica_has_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on another connection, for whose own writes there is nothing to wait."""
    monkeypatch.setattr(client, "REPLICA_MILLISECONDS", 500)
    with Redis.start(tmp_path, settings={"repl-diskless-sync-delay": "0"}) as primary:
        settings = {"replicaof": f"127.0.0.1 {primary.port}"}
        with Redis.start(tmp_path, settings=settings) as replica:
            first, second = (RedisStore.from_url(f"{primary.url}?replicas=1") for _ in range(2))
            await enqueued_within_deadline(first, a_task())
            task = a_task()
            os.kill(replica.pid, signal.SIGSTOP)
            for store in (first, second):
                with pytest.raises(StoreUnavailable, match="only 0 of 1 replicas"):
                    await store.enqueue([task])
            os.kill(replica.pid, signal.SIGCONT)
            await enqueued_within_deadline(second, task)
            await first.close()
            await second.close()


async def enqueued_within_deadline(store: RedisStore, task: NewTask) -> None:
    """Enqueue, again and again until the replica has synced for the first time."""
    async with asyncio.timeout(20):
        while True:
            with suppress(StoreUnavailable):
                await store.enqueue([task])
                return


async def test_a_server_that_cannot_be_reached_is_named_with_the_reason(tmp_path: Path) -> None:
    with Redis.start(tmp_path) as server:
        single = server.url.removesuffix("/0").replace("redis://", "redis+cluster://")
        for url, reason in (("redis://127.0.0.1:1/0", "Error 111"), (single, "cluster support disabled")):
            store = RedisStore.from_url(url)
            with pytest.raises(StoreUnavailable, match=f"cannot connect to Redis at .*{reason}"):
                await store.open()
            await store.close()
