"""How a server knows what tenants have stored: counts at intervals, and what it added since."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from windlass._client.quotas import Quotas
from windlass._http.bounds.quotas import COUNT_EVERY, READ_EVERY, QuotaStore, StoredUse
from windlass._http.web.problems import Problem
from windlass._model.filter import By, Count, Discard, Filter
from windlass._model.limit import Use
from windlass._model.state import State
from windlass._model.task import Enqueued, NewTask
from windlass._store.forward import ForwardingStore
from windlass._stores.memory import MemoryStore
from windlass.errors import StoreUnavailable
from windlass.testing.conformance.steps import a_task, act, bury, worker_on


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class WatchedStore(ForwardingStore):
    """Counts take as long as a test wants, and every call lets others have a turn."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.counts = 0
        self.takes = 0.0
        self.fails = False
        self.may_count = asyncio.Event()
        self.may_count.set()
        self.clock = Clock()

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        await asyncio.sleep(0)
        return await self.inner.enqueue(batch)

    async def count(self, *args: Any, **options: Any) -> Sequence[Count]:
        self.counts += 1
        found = await self.inner.count(*args, **options)
        self.clock.now += self.takes
        await self.may_count.wait()
        if self.fails:
            raise StoreUnavailable("the disk is full")
        return found

    def another(self) -> "WatchedStore":
        raise NotImplementedError


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def watched(memory: MemoryStore) -> WatchedStore:
    return WatchedStore(memory)


def served(watched: WatchedStore) -> QuotaStore:
    """A server on the store, with the clock of the test."""
    server = QuotaStore(watched)
    server.use = StoredUse(watched, watched.clock)
    return server


async def admitted(server: QuotaStore, number: int, tenant: str = "acme") -> int:
    """How many of so many tasks, one by one, it lets in."""
    for done in range(number):
        try:
            await server.enqueue([a_task(tenant=tenant)])
        except Problem:
            return done
    return number


async def stored(memory: MemoryStore) -> int:
    return sum(count.number for count in await memory.count(Filter(), ()))


async def test_without_quotas_nothing_is_counted_and_they_are_read_at_intervals(
    memory: MemoryStore, watched: WatchedStore
) -> None:
    server = served(watched)
    assert await admitted(server, 50) == 50
    assert watched.counts == 0
    await Quotas(memory).set("acme", tasks=50)
    watched.clock.now += READ_EVERY
    assert await admitted(server, 1) == 0
    assert watched.counts == 1


async def test_requests_at_the_same_time_share_the_room(memory: MemoryStore, watched: WatchedStore) -> None:
    await Quotas(memory).set("acme", tasks=10)
    server = served(watched)

    results = await asyncio.gather(
        *(server.enqueue([a_task(tenant="acme")]) for _ in range(50)), return_exceptions=True
    )

    assert sum(isinstance(one, Problem) for one in results) == 40
    assert await stored(memory) == 10
    assert watched.counts == 1


@pytest.mark.parametrize("takes", [0.0, 0.1, 2.0])
async def test_counting_takes_at_most_a_twentieth_of_the_time(
    takes: float, memory: MemoryStore, watched: WatchedStore
) -> None:
    await Quotas(memory).set("acme", tasks=10**6)
    server, watched.takes = served(watched), takes
    for _ in range(1_000):
        await admitted(server, 1)
        watched.clock.now += 0.5
    elapsed = watched.clock.now
    assert watched.counts >= 5
    assert watched.counts * takes <= elapsed / 20 + takes
    assert watched.counts <= elapsed / COUNT_EVERY + 1


async def test_what_is_added_during_a_count_is_not_forgotten(
    memory: MemoryStore, watched: WatchedStore
) -> None:
    await Quotas(memory).set("acme", tasks=10)
    server = served(watched)
    assert await admitted(server, 2) == 2
    watched.may_count.clear()
    watched.clock.now += COUNT_EVERY  # due: counted meanwhile
    assert await admitted(server, 5) == 5
    assert watched.counts == 2
    watched.may_count.set()
    await server.use.recount()
    assert server.use.of("acme").tasks == 7
    assert await admitted(server, 9) == 3
    assert await stored(memory) == 10


async def test_what_is_deleted_gives_room_at_the_next_count(
    memory: MemoryStore, watched: WatchedStore
) -> None:
    await Quotas(memory).set("acme", tasks=2)
    server = served(watched)
    assert await admitted(server, 3) == 2
    worker = await worker_on(memory)
    (claimed,) = await worker.claim()
    await memory.settle([bury(claimed)])
    await act(memory, Discard(by=By(who="ann", why="x")), claimed.task.id)
    assert await admitted(server, 1) == 0
    watched.clock.now += COUNT_EVERY
    assert await admitted(server, 3) == 1
    assert await stored(memory) == 2


async def test_a_server_that_was_idle_counts_before_it_stores(
    memory: MemoryStore, watched: WatchedStore
) -> None:
    """What others stored meanwhile is known before the first request is let in."""
    await Quotas(memory).set("acme", tasks=10)
    first, second = served(watched), served(watched)
    assert await admitted(first, 1) == 1
    watched.clock.now += 2 * COUNT_EVERY
    assert await admitted(second, 9) == 9
    watched.clock.now += 2 * COUNT_EVERY
    assert await admitted(first, 1) == 0


@pytest.mark.parametrize("servers", [1, 2, 5])
async def test_servers_together_exceed_a_quota_by_the_room_of_the_others(
    servers: int, memory: MemoryStore, watched: WatchedStore
) -> None:
    quota, before = 20, 12
    await Quotas(memory).set("acme", tasks=quota)
    await memory.enqueue([a_task(tenant="acme") for _ in range(before)])
    all_of_them = [served(watched) for _ in range(servers)]
    for one in all_of_them:
        await one.use.refresh()
    for one in all_of_them:  # the worst case: all fill the room they saw at once
        await admitted(one, 100)
    room = quota - before
    assert await stored(memory) == quota + (servers - 1) * room
    for _ in range(3):
        watched.clock.now += 2 * COUNT_EVERY
        assert [await admitted(one, 1) for one in all_of_them] == [0] * servers


async def test_a_count_that_fails_leaves_the_last_one(
    memory: MemoryStore, watched: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    await Quotas(memory).set("acme", tasks=3)
    server = served(watched)
    watched.fails = True
    with pytest.raises(StoreUnavailable):
        await server.enqueue([a_task(tenant="acme")])
    watched.fails = False
    assert await admitted(server, 2) == 2
    watched.fails = True
    watched.clock.now += 3 * COUNT_EVERY
    assert await admitted(server, 2) == 1
    assert "cannot count what tenants have stored" in caplog.text


async def test_a_call_that_may_have_stored_its_tasks_counts(memory: MemoryStore) -> None:
    class LostReplies(ForwardingStore):
        async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
            await self.inner.enqueue(batch)
            raise StoreUnavailable("no reply")

    await Quotas(memory).set("acme", tasks=2)
    server = QuotaStore(LostReplies(memory))
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await server.enqueue([a_task(tenant="acme")])
    with pytest.raises(Problem, match="2 of 2 tasks"):
        await server.enqueue([a_task(tenant="acme")])
    assert await stored(memory) == 2


async def test_what_steps_will_become_is_counted_before_and_after(
    memory: MemoryStore, watched: WatchedStore
) -> None:
    """A chain cannot get past a quota by waiting for the next count."""
    following = b'[{"id":"0199c3a2-7d10-7abc-8def-0123456789ab","type":"t","payload":{}}]'
    await Quotas(memory).set("acme", tasks=2)
    server = served(watched)
    await server.enqueue([a_task(tenant="acme", next=following)])
    assert server.use.of("acme").tasks == 2
    watched.clock.now += COUNT_EVERY
    assert await admitted(server, 1) == 0
    await server.use.recount()
    assert server.use.of("acme") == Use(2, server.use.of("acme").bytes)


async def test_the_uses_of_all_tenants(memory: MemoryStore, watched: WatchedStore) -> None:
    await Quotas(memory).set("*", tasks=10)
    await memory.enqueue([a_task(tenant="bob", payload=b"{}")])
    server = served(watched)
    await server.enqueue([a_task(tenant="acme", payload=b"{}")])
    assert server.use.all() == {"acme": Use(1, 2), "bob": Use(1, 2)}
    assert (await memory.count(Filter(states=(State.READY,)), ()))[0].number == 2
