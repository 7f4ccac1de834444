"""A shard that does not answer at all, as a frozen machine or a cut network: nobody waits for it for long."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic

import pytest

from tests.loops.workers import eventually
from tests.stores.shards.conftest import MAP, NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass._ids import new_id
from windlass._model.filter import Filter, Page
from windlass._model.queue import Retention
from windlass._model.record import Session
from windlass._stores.shards.connection import shard
from windlass.errors import StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import all_records, cancel, enqueue_one, worker_on
from windlass.testing.faults import Fault, FaultyStore, Hold

QUEUES = tuple(f"on-{name}" for name in NAMES)
NEVER = 3600.0


@pytest.fixture(autouse=True)
def no_refresh(store: PreparedShards, shards: Shards) -> Iterator[None]:
    """The map is known; no call happens to read it again, which would notice the silent shard."""
    store.shards.watch.due = monotonic() + NEVER
    yield
    shards.let_go()


async def _notice(store: PreparedShards, shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make c silent, and let this process notice; from now on nothing is given up by itself."""
    shards.silent["c"] = Hold()
    monkeypatch.setattr(shard, "ANSWER_WITHIN", 0.05)
    with pytest.raises(StoreUnavailable, match="shard c: it did not answer within"):
        await store.shards["c"].call_within(store.shards["c"].store.find, Filter(), Page())
    monkeypatch.setattr(shard, "ANSWER_WITHIN", NEVER)
    health = store.shards["c"].health
    await eventually(lambda: monotonic() > health._ask_again_at)  # it is time to ask it again


async def test_claims_go_on_with_the_others_and_come_back(store, shards: Shards, monkeypatch) -> None:
    worker = await worker_on(store)
    for queue in QUEUES:
        await enqueue_one(store, queue=queue)
    await _notice(store, shards, monkeypatch)

    async with asyncio.timeout(20):
        claimed = [one.task.queue for one in await worker.claim(3, *QUEUES)]
    shards.let_go()

    async def is_claimed() -> bool:
        return bool(await worker.claim(1, *QUEUES))

    assert sorted(claimed) == ["on-a", "on-b"]
    assert await eventually(is_claimed)


async def test_a_session_is_renewed_on_the_others_within_its_lease(store, shards, monkeypatch) -> None:
    worker = await worker_on(store)
    shards.silent["c"] = Hold()
    monkeypatch.setattr(shard, "ANSWER_WITHIN", NEVER)

    async with asyncio.timeout(20):
        reply = await worker.beat(lease_for=timedelta(seconds=1))

    assert reply.alive


async def test_another_handle_opens_what_answers(store, shards: Shards, monkeypatch) -> None:
    await _notice(store, shards, monkeypatch)
    store.shards.watch.due = 0.0
    other = store.another()

    async with asyncio.timeout(20):
        await other.open()
        await other.find(Filter(queues=("on-a",)), Page())
    await other.close()


async def test_the_chores_of_the_others_are_done(
    store, shards: Shards, clock: ManualClock, monkeypatch
) -> None:
    worker = await worker_on(store)
    await enqueue_one(store, queue="on-b", delay=timedelta(seconds=5))
    clock.advance(10)
    shards.silent["c"] = Hold()
    monkeypatch.setattr(shard, "ANSWER_WITHIN", 0.05)

    async with asyncio.timeout(20):
        promoted = await store.promote(10)
        await store.rescue(worker.session, 10)
        await store.prune(Retention(), 10)

    assert promoted.number == 1


async def test_listings_name_it_at_once_and_workers_are_listed(store, shards: Shards, monkeypatch) -> None:
    worker = await worker_on(store)
    await _notice(store, shards, monkeypatch)

    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable, match="shard c"):
            await store.find(Filter(), Page())
        with pytest.raises(StoreUnavailable, match="shard c"):
            await store.count(Filter(), ())
        sessions = await all_records(store, Session)

    assert [one.id for one in sessions] == [worker.session]


async def test_what_ended_on_the_others_is_told(store, shards: Shards, monkeypatch) -> None:
    on_a, _, on_c = ids = [await enqueue_one(store, queue=queue) for queue in QUEUES]
    unknown = new_id()
    await cancel(store, on_a, on_c)
    await _notice(store, shards, monkeypatch)

    async with asyncio.timeout(20):
        assert await store.ended([*ids, unknown]) == [on_a]
        with pytest.raises(StoreUnavailable, match="shard c"):
            await store.ended([on_c])
    shards.let_go()

    async def is_complete() -> bool:
        try:
            return await store.ended([*ids, unknown]) == [on_a, on_c, unknown]
        except StoreUnavailable:
            return False

    assert await eventually(is_complete)


async def test_a_shard_that_answers_reads_only_is_one_line_in_the_log(
    shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    """As one whose disk is full: each look finds that it answers, and each claim fails."""
    refused: list[str] = []

    def plan(verb: str) -> Fault | None:
        if verb == "claim":
            refused.append(verb)
            return Fault.BEFORE
        return None

    store = PreparedShards({**shards.faulty(), "b": FaultyStore(shards.stores["b"], plan)}, MAP)
    await store.open()
    worker = await worker_on(store)

    async def is_asked_again() -> bool:
        await worker.claim(1, *QUEUES)
        return len(refused) >= 4

    await eventually(is_asked_again, within=30)
    await store.close()

    assert caplog.text.count("shard b is not available") == 1
    assert "shard b is back" not in caplog.text


async def test_it_is_asked_by_one_caller_at_a_time(store, shards: Shards, monkeypatch) -> None:
    await _notice(store, shards, monkeypatch)
    calls: list[str] = []
    monkeypatch.setattr(shards.silent["c"], "wait", lambda hold=shards.silent["c"]: _noted(calls, hold))

    async with asyncio.timeout(20):
        errors = await asyncio.gather(
            *(store.find(Filter(), Page()) for _ in range(20)), return_exceptions=True
        )

    assert all(isinstance(error, StoreUnavailable) for error in errors)
    assert len(calls) == 1


async def _noted(calls: list[str], hold: Hold) -> None:
    calls.append("asked")
    await Hold.wait(hold)
