"""The number of a store's schema: written when the store is created, checked before it is used."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.servers.redis import Redis
from tests.stores.redis.conftest import Peek
from windlass._model.filter import Filter
from windlass._model.limit import Limit
from windlass._store.protocol import Severity
from windlass._stores.redis import RedisStore
from windlass._stores.redis.schema import SCHEMA
from windlass.errors import NotSupported, SchemaMismatch
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task, worker_on

Use = Callable[[RedisStore], Awaitable[object]]
USES: dict[str, Use] = {
    "open": lambda store: store.open(),
    "enqueue": lambda store: store.enqueue([a_task()]),
    "migrations": lambda store: store.migrations(),
    "migrate": lambda store: store.migrate(),
}


async def test_a_new_store_is_numbered(store: RedisStore, peek: Peek) -> None:
    assert int(peek("HGET", f"{{{store.address.name}}}:meta", "schema")) == SCHEMA
    assert {one.subject: one.severity for one in await store.check()}["schema"] is Severity.OK
    assert await store.migrations() == ()
    with pytest.raises(NotSupported, match="no schema"):
        await store.migrate()


async def test_programs_that_start_at_once_on_a_new_store_agree(
    store: RedisStore, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program creates the store, a limit and a task, right after this one has found it empty."""
    for name in ("meta", "ids"):
        peek("DEL", f"{{{store.address.name}}}:{name}")
    slow, quick = store.another(), store.another()
    read = slow._database.client.call_all

    async def read_then_pause(commands: Any) -> Any:
        monkeypatch.undo()
        found = await read(commands)
        await quick.put(Limit(name="one", running=1))
        await quick.enqueue([a_task(), a_task()])
        return found

    monkeypatch.setattr(slow._database.client, "call_all", read_then_pause)
    worker = await worker_on(slow)
    claimed = await worker.claim(2)
    for one in (slow, quick):
        await one.close()

    assert len(claimed) == 1


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    ("number", "remedy"),
    [(None, "finish its tasks with the version that wrote them"), (SCHEMA + 1, "upgrade windlass")],
    ids=["older", "newer"],
)
async def test_a_store_of_another_schema_is_refused(
    store: RedisStore, peek: Peek, use: Use, number: int | None, remedy: str
) -> None:
    meta = f"{{{store.address.name}}}:meta"
    await store.enqueue([a_task()])
    if number is None:
        peek("HDEL", meta, "schema")
    else:
        peek("HSET", meta, "schema", number)
    other = store.another()

    with pytest.raises(SchemaMismatch, match=remedy):
        await use(other)
    found = {one.subject: one for one in await other.check()}
    await other.close()

    assert found["schema"].severity is Severity.ERROR
    assert remedy in found["schema"].message
    assert sum(count.number for count in await store.count(Filter(), ())) == 1


async def test_a_store_that_was_deleted_is_numbered_again(
    valkey: Redis, clock: ManualClock, peek: Peek
) -> None:
    store = RedisStore.from_url(valkey.new_url(), clock=clock)
    prefix = f"{{{store.address.name}}}:"
    await store.enqueue([a_task()])
    peek("DEL", *peek("KEYS", f"{prefix}*"))

    await store.enqueue([a_task()])
    await store.close()

    assert int(peek("HGET", f"{prefix}meta", "schema")) == SCHEMA
