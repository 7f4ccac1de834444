"""Faults of every kind, on a real server: what was asked for is done once, and the handle goes on by itself.

(D1, D6, D8, D17, D18 of the study)
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest

from tests.contents import contents
from tests.examples import sample
from tests.loops.workers import eventually, pause, working
from tests.servers.postgres import QUICK, USER, Mode, Postgres
from tests.servers.proxy import Proxy
from tests.stores.postgres.faulty import (
    TERMINATE,
    Moment,
    all_ended,
    arm,
    asked,
    assert_ended_once,
    despite_trouble,
    fresh,
    listening,
    opened,
    program,
    schema_in,
    stranger,
    tell,
    terminate,
)
from tests.stores.schemas import EMPTY
from windlass import App, Backoff, Filter, State, StoreError, StoreUnavailable
from windlass._model.attempt import is_recorded
from windlass._model.filter import CancelTasks, Discard, Replay
from windlass._model.lease import Claimed
from windlass._model.queue import QueueSettings
from windlass._model.record import Audit, Session
from windlass._model.transition import Applied
from windlass._model.verdict import Receipt
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.enqueue.copy import MIN_TASKS
from windlass._stores.postgres.rule_player import enqueue
from windlass._stores.postgres.script import play
from windlass._stores.postgres.settle import settle_and_claim as settle_statement
from windlass.testing.conformance.steps import (
    OPERATOR,
    a_task,
    all_records,
    all_tasks,
    bury,
    complete,
    enqueue_one,
    retry,
    some_tasks,
    worker_on,
)

Act = Callable[[], Awaitable[Any]]
Check = Callable[[Any], Awaitable[None]]
Case = Callable[[PostgresStore], Awaitable[tuple[Act, Check]]]
CRASHES = QUICK | {"synchronous_commit": "on"}  # without it, a server that crashes loses what it acknowledged
LINGERING = "SELECT FROM pg_stat_activity WHERE application_name = 'windlass' AND state <> 'idle'"
WAITING = "SELECT FROM pg_locks WHERE NOT granted"
SETTINGS = CRASHES | {"max_connections": "100", "deadlock_timeout": "2s"}


@pytest.fixture(scope="module")
def server(server_folder: Path) -> Iterator[Postgres]:
    """A server that may be restarted and reconfigured."""
    with Postgres.start(server_folder, settings=SETTINGS) as server:
        yield server


@pytest.fixture
def proxy(server: Postgres) -> Iterator[Proxy]:
    with Proxy.start(server.url) as proxy:
        yield proxy


@pytest.fixture
async def store(server: Postgres, proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A store by way of the proxy, with nothing in it."""
    tell(server, EMPTY.format(schema="lent"))  # made by the first test: making one takes long
    async with opened(f"{proxy.url}?schema=lent") as store:
        yield store


async def tasks_of(store: PostgresStore, batch: Sequence[Any]) -> list[Any]:
    """These tasks as they stand, in the order of their ids."""
    return await all_tasks(store, Filter(ids=tuple(new.id for new in batch)))


async def states(store: PostgresStore, batch: Sequence[Any]) -> list[State]:
    return [task.state for task in await tasks_of(store, batch)]


async def passed(store: PostgresStore, moment: Any) -> bool:
    return await store.now() > moment


# -- the connection is cut, before or right after a commit ---------------------------------------------


async def enqueue_plain(store: PostgresStore) -> tuple[Act, Check]:
    batch = some_tasks(3)

    async def check(answers: Sequence[Any]) -> None:
        assert [one.id for one in answers] == [new.id for new in batch]
        assert len({one.created for one in answers}) == 1
        assert await states(store, batch) == [State.READY] * 3

    return lambda: store.enqueue(batch), check


async def enqueue_keyed(store: PostgresStore) -> tuple[Act, Check]:
    """The repeat comes from a producer that was started anew: other ids, the same keys."""
    made: list[Any] = []
    tenant = a_task().id

    def act() -> Awaitable[Any]:
        made.append([a_task(tenant=tenant, idempotency_key=f"key {n}") for n in range(3)])
        return store.enqueue(made[-1])

    async def check(answers: Sequence[Any]) -> None:
        found = await all_tasks(store, Filter(tenants=(tenant,)))
        assert [one.id for one in answers] == [task.id for task in found]
        assert [one.id for one in answers] in [[new.id for new in batch] for batch in made]

    return act, check


async def enqueue_bulk(store: PostgresStore) -> tuple[Act, Check]:
    batch = some_tasks(MIN_TASKS + 10, tenant=a_task().id)

    async def check(answers: Sequence[Any]) -> None:
        assert [one.id for one in answers] == [new.id for new in batch]
        assert len({one.created for one in answers}) == 1
        found = await all_tasks(store, Filter(tenants=(batch[0].tenant,)))
        assert [task.id for task in found] == [new.id for new in batch]

    return lambda: store.enqueue(batch), check


async def settle_and_claim(store: PostgresStore, *, slowly: bool = False) -> tuple[Act, Check]:
    """Half of eight tasks are settled, and the other half claimed: what a lost claim took is handed back."""
    queue = a_task().id
    batch = some_tasks(8, queue=queue, max_attempts=1 if slowly else 3)
    await store.enqueue(batch)
    worker = await worker_on(store)
    held = await worker.claim(4, queue)
    follow = [a_task(queue="elsewhere") for _ in held]
    if slowly:
        settlements = [complete(one, None, new) for one, new in zip(held, follow, strict=True)]
    else:
        settlements = [complete(one) for one in held]

    async def check(settled: Any) -> None:
        assert set(settled.receipts) <= {Receipt.APPLIED, Receipt.REPEATED}
        assert await states(store, batch[:4]) == [State.COMPLETED] * 4
        if slowly:
            assert await states(store, follow) == [State.READY] * 4
        pulse = await worker.beat(*(one.lease for one in settled.claimed), through=worker.claims)
        assert pulse.alive
        assert not pulse.lost
        claimed = [*settled.claimed, *await worker.claim(8, queue)]
        assert sorted(one.task.id for one in claimed) == [new.id for new in batch[4:]]
        assert {one.task.attempt for one in claimed} == {1}
        assert set((await store.settle([complete(one) for one in claimed])).receipts) == {Receipt.APPLIED}

    return lambda: store.settle(settlements, worker.next_claim(8, queue)), check


async def settle_slowly(store: PostgresStore) -> tuple[Act, Check]:
    return await settle_and_claim(store, slowly=True)


async def settle_failures(store: PostgresStore) -> tuple[Act, Check]:
    """A retry and a burial, with the line of each."""
    queue = a_task().id
    batch = some_tasks(2, queue=queue)
    await store.enqueue(batch)
    worker = await worker_on(store)
    again, dead = await worker.claim(2, queue)
    settlements = [retry(again), bury(dead)]
    assert all(map(is_recorded, settlements))

    async def check(settled: Any) -> None:
        assert set(settled.receipts) <= {Receipt.APPLIED, Receipt.REPEATED}
        assert await states(store, batch) == [State.READY, State.DEAD]
        assert [len(await store.attempts(new.id)) for new in batch] == [1, 1]

    return lambda: store.settle(settlements), check


async def heartbeat(store: PostgresStore) -> tuple[Act, Check]:
    """It hands back what a lost claim took, however often it is lost itself."""
    queue = a_task().id
    batch = some_tasks(4, queue=queue)
    await store.enqueue(batch)
    worker = await worker_on(store)
    (held,) = await worker.claim(1, queue)
    await worker.claim(3, queue)  # and its answer was lost

    async def check(pulse: Any) -> None:
        assert pulse.alive
        assert not pulse.lost
        assert sorted(await states(store, batch)) == [State.READY] * 3 + [State.RUNNING]
        assert {task.attempt for task in await tasks_of(store, batch) if task.id != held.task.id} == {0}
        assert (await store.settle([complete(held)])).receipts == (Receipt.APPLIED,)

    return lambda: worker.beat(held.lease, through=worker.claims), check


async def lead(store: PostgresStore) -> tuple[Act, Check]:
    holder = a_task().id

    async def check(leads: bool) -> None:
        assert leads
        assert not await store.lead("another", timedelta(seconds=30))
        assert not await store.lead(holder, timedelta(0))  # resigned

    return lambda: store.lead(holder, timedelta(seconds=30)), check


async def promote(store: PostgresStore) -> tuple[Act, Check]:
    batch = some_tasks(3, delay=timedelta(milliseconds=1))
    await store.enqueue(batch)
    due = [task.run_at for task in await tasks_of(store, batch)]
    await eventually(lambda: passed(store, max(due)))

    async def check(promoted: Any) -> None:
        assert promoted.number in (0, 3)
        assert await states(store, batch) == [State.READY] * 3

    return lambda: store.promote(100), check


async def cancel(store: PostgresStore) -> tuple[Act, Check]:
    batch = some_tasks(3)
    await store.enqueue(batch)
    return applying(store, batch, CancelTasks(by=OPERATOR), State.CANCELLED)


async def replay(store: PostgresStore) -> tuple[Act, Check]:
    return applying(store, await dead_tasks(store), Replay(by=OPERATOR), State.READY)


async def discard(store: PostgresStore) -> tuple[Act, Check]:
    return applying(store, await dead_tasks(store), Discard(by=OPERATOR), None)


async def dead_tasks(store: PostgresStore) -> list[Any]:
    queue = a_task().id
    batch = some_tasks(3, queue=queue)
    await store.enqueue(batch)
    worker = await worker_on(store)
    await store.settle([bury(one) for one in await worker.claim(3, queue)])
    return batch


def applying(
    store: PostgresStore, batch: Sequence[Any], action: Any, becomes: State | None
) -> tuple[Act, Check]:
    where = Filter(ids=tuple(new.id for new in batch))

    async def check(done: Applied) -> None:
        assert done.ids in ((), tuple(new.id for new in batch))
        assert await states(store, batch) == ([becomes] * 3 if becomes else [])
        audits = [one for one in await all_records(store, Audit) if batch[0].id in contents(one)]
        assert len(audits) == 1

    return lambda: store.apply(action, where, 100), check


async def rescue(store: PostgresStore) -> tuple[Act, Check]:
    """A rescuer that does not hear what it was given gives up its session, as the keeper does."""
    queue = a_task().id
    batch = some_tasks(2, queue=queue)
    await store.enqueue(batch)
    silent = await worker_on(store)
    await silent.claim(2, queue)
    await store.remove(Session, silent.session)
    rescuers: list[Any] = []

    async def act() -> Sequence[Claimed]:
        if rescuers:
            await store.remove(Session, rescuers[-1].session)
        rescuers.append(await worker_on(store, "keeper"))
        return await store.rescue(rescuers[-1].session, 10)

    async def check(rescued: Sequence[Claimed]) -> None:
        assert sorted(one.task.id for one in rescued) == [new.id for new in batch]
        assert {one.task.attempt for one in rescued} == {1}
        assert set((await store.settle([retry(one) for one in rescued])).receipts) == {Receipt.APPLIED}

    return act, check


async def put_queue(store: PostgresStore) -> tuple[Act, Check]:
    settings = QueueSettings(name=a_task().id, paused=True)

    async def check(_: None) -> None:
        assert settings in await all_records(store, QueueSettings)

    return lambda: store.put(settings), check


CASES: list[Case] = [
    enqueue_plain,
    enqueue_keyed,
    enqueue_bulk,
    settle_and_claim,
    settle_slowly,
    settle_failures,
    heartbeat,
    lead,
    promote,
    cancel,
    replay,
    discard,
    rescue,
    put_queue,
]


@pytest.mark.parametrize("moment", sample(["after_commit"], ["before"]))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_cut_at_any_statement_is_made_good_by_a_repeat(
    server: Postgres, store: PostgresStore, proxy: Proxy, moment: Moment, case: Case
) -> None:
    """Each statement of a verb in turn, on tasks of its own each time, until there is none left to cut."""
    for n in count():
        act, check = await case(store)
        strike = arm(proxy, moment, n)
        try:
            await act()
        except StoreUnavailable:
            assert strike.has_struck
        else:
            break
        finally:
            proxy.spare()
        # What the server has not let go of yet is passed over by who takes what is free: by a rescue, say.
        await eventually(lambda: not asked(server, LINGERING))
        await check(await act())
    assert n > 0, "nothing was cut"
    assert not strike.has_struck, "a cut that the caller did not hear of"


@pytest.mark.parametrize("number", [1, 3, 1000])
async def test_a_repeat_that_meets_the_end_of_its_task_is_harmless(server: Postgres, number: int) -> None:
    """An enqueue whose answer was lost is repeated just while its task completes: it must not run again."""
    async with opened(fresh(server.url)) as store:
        batch = some_tasks(number)
        await store.enqueue(batch)
        worker = await worker_on(store)
        held = await worker.claim(number)
        ending = settle_statement(store.env, [complete(one) for one in held], None, ())
        async with store.connections.one() as connection, store.connections.transaction(connection):
            await store.connections._rows(connection, ending)
            again = asyncio.create_task(store.enqueue(batch))
            await eventually(lambda: asked(server, WAITING))
        assert [one.created for one in await again] == [False] * number
        assert await states(store, batch) == [State.COMPLETED] * number
        assert await worker.claim(number) == []


@pytest.mark.parametrize("kind", ["plain", "keyed", "unique", "after"])
async def test_a_repeat_that_meets_its_own_first_try_is_harmless(server: Postgres, kind: str) -> None:
    """The first one is still under way in the server when its connection is cut and it is repeated."""
    async with opened(fresh(server.url)) as store:
        before = await enqueue_one(store)
        options: dict[str, dict[str, Any]] = {
            "plain": {},
            "keyed": {"idempotency_key": "a key"},
            "unique": {"fingerprint": "a fingerprint"},
            "after": {"after": (before,)},
        }
        batch = [a_task(**options[kind])]
        async with store.connections.one() as connection, store.connections.transaction(connection):
            first = enqueue(store.env, batch)
            await play(first, lambda ask: store.connections._rows(connection, ask))
            again = asyncio.create_task(store.enqueue(batch))
            await eventually(lambda: asked(server, WAITING))
        assert [one.id for one in await again] == [batch[0].id]
        assert len(await tasks_of(store, batch)) == 1


# -- the server is restarted, or ends our connections --------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_work_goes_on_by_itself_after_a_restart(server: Postgres, mode: Mode) -> None:
    async with program(fresh(server.url), slots=8) as (app, work, started):
        await work.aenqueue_many([{"key": str(n), "seconds": 0.02} for n in range(300)])
        for _ in range(20):
            await asyncio.wait_for(started.get(), 10)
        await asyncio.to_thread(server.restart, mode)
        await eventually(lambda: all_ended(app, 300), within=30)
        await assert_ended_once(app, 300)


async def test_a_handle_goes_on_while_the_server_comes_and_goes(server: Postgres) -> None:
    async with opened(fresh(server.url)) as store:
        before = await enqueue_one(store)
        await asyncio.to_thread(server.stop)
        with pytest.raises(
            StoreUnavailable, match=r"cannot connect|lost the connection|starting up or shutting down"
        ):
            await enqueue_one(store)
        await asyncio.to_thread(server.start_again)

        after = await eventually(lambda: despite_trouble(lambda: enqueue_one(store)))
        assert {task.id for task in await all_tasks(store)} == {before, after}


@pytest.mark.parametrize("key", [None, "a key"])
async def test_a_connection_that_the_server_ends_is_told_as_such(server: Postgres, key: str | None) -> None:
    """And not by what the driver's pool has to say about it; outside of a transaction and in one."""
    url = fresh(server.url)
    async with opened(url) as store:
        with stranger(server) as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {schema_in(url)}.task")
            waiting = asyncio.create_task(store.enqueue([a_task(idempotency_key=key)]))
            await eventually(lambda: asked(server, WAITING))
            await asyncio.to_thread(terminate, server, "windlass")
            with pytest.raises(StoreUnavailable, match="terminating connection due to administrator command"):
                await waiting
        await enqueue_one(store)


async def test_work_goes_on_when_every_connection_is_ended(server: Postgres) -> None:
    async with program(fresh(server.url), slots=8) as (app, work, started):
        await work.aenqueue_many([{"key": str(n), "seconds": 0.02} for n in range(200)])
        ended = 0
        for _ in range(5):
            for _ in range(10):
                await asyncio.wait_for(started.get(), 10)
            ended += await asyncio.to_thread(terminate, server, "windlass%")
        await eventually(lambda: all_ended(app, 200), within=30)
        await assert_ended_once(app, 200)
    assert ended >= 10


async def test_a_worker_is_not_deaf_after_its_listener_was_ended(server: Postgres) -> None:
    """The poll cannot be the reason why it hears: it is a minute away."""
    async with program(fresh(server.url), poll=60) as (_, work, started):
        first = await eventually(lambda: asyncio.to_thread(listening, server))
        await work.aenqueue(key="before")
        assert await asyncio.wait_for(started.get(), 10) == "before"

        assert await asyncio.to_thread(terminate, server, "windlass listener") == len(first)
        await work.aenqueue(key="meanwhile")
        assert await asyncio.wait_for(started.get(), 10) == "meanwhile"

        again = await eventually(lambda: asyncio.to_thread(listening, server))
        assert not again & first
        await eventually(lambda: idle(server))
        await work.aenqueue(key="after")
        assert await asyncio.wait_for(started.get(), 10) == "after"


async def idle(server: Postgres) -> bool:
    """Whether the new listener has said what it had to say."""
    question = (
        "SELECT FROM pg_stat_activity WHERE application_name = 'windlass listener' AND state = 'idle' "
        "AND clock_timestamp() - state_change > interval '0.3 s'"
    )
    return bool(await asyncio.to_thread(asked, server, question))


async def test_a_worker_is_not_deaf_after_a_restart(server: Postgres) -> None:
    async with program(fresh(server.url), poll=60) as (_, work, started):
        first = await eventually(lambda: asyncio.to_thread(listening, server))
        await asyncio.to_thread(server.restart, "fast")
        again = await eventually(lambda: asyncio.to_thread(listening, server))
        assert not again & first

        await eventually(lambda: despite_trouble(lambda: work.aenqueue(key="after")))
        assert await asyncio.wait_for(started.get(), 10) == "after"


async def test_after_a_restart_rescue_waits_for_one_lease(server: Postgres) -> None:
    """Real time: a lease that ran out while the server was down may still be renewed for one lease more."""
    lease = timedelta(seconds=2)
    async with opened(fresh(server.url)) as store:
        batch = some_tasks(2)
        await store.enqueue(batch)
        back, gone = await worker_on(store, "back", lease), await worker_on(store, "gone", lease)
        (kept,), (lost,) = await back.claim(1), await gone.claim(1)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(threading.Event().wait, lease.total_seconds() * 1.1)
        await asyncio.to_thread(server.start_again)
        ((started_at,),) = asked(server, "SELECT pg_postmaster_start_time()")

        keeper = await eventually(lambda: despite_trouble(lambda: worker_on(store, "keeper")))
        assert await store.rescue(keeper.session, 10) == []
        assert (await back.beat(kept.lease, lease_for=timedelta(seconds=30))).alive

        (rescued,) = await eventually(lambda: store.rescue(keeper.session, 10))
        assert rescued.task.id == lost.task.id
        assert await store.now() - started_at >= lease
        assert (await store.settle([complete(kept), complete(lost)])).receipts == (
            Receipt.APPLIED,
            Receipt.LOST,
        )


# -- the network is frozen, a table is locked ----------------------------------------------------------


async def test_a_frozen_network_fences_the_worker_which_recovers(proxy: Proxy) -> None:
    lease = 3.0
    app = App(fresh(proxy.url), backoff=Backoff(base=0.05, cap=0.2))
    runs: asyncio.Queue[str] = asyncio.Queue()

    @app.task(name="long")
    async def long() -> None:
        runs.put_nowait("started")
        try:
            if app.is_frozen:
                await pause(60)
        finally:
            runs.put_nowait("ended")

    app.is_frozen = True
    async with working(app, lease=lease, heartbeat=0.2, keeper=True):
        await long.aenqueue()
        assert await asyncio.wait_for(runs.get(), 5) == "started"
        proxy.freeze()
        frozen = monotonic()
        assert await asyncio.wait_for(runs.get(), lease * 2) == "ended"
        assert monotonic() - frozen < lease, "it went on when others might have taken over"

        app.is_frozen = False
        proxy.thaw()
        await eventually(lambda: all_ended(app, 1), within=20)
        await long.aenqueue()
        await eventually(lambda: all_ended(app, 2), within=5)
    await app.close()


async def test_who_gives_up_waiting_need_not_wait_for_the_network(store: PostgresStore, proxy: Proxy) -> None:
    """Within a script's transaction, too, where a rollback would not be answered either."""
    worker = await worker_on(store)
    held = await worker.claim(1)
    await store.enqueue([a_task(idempotency_key="a key")])
    proxy.freeze()
    for act in (
        lambda: store.enqueue([a_task()]),
        lambda: store.enqueue([a_task(idempotency_key="another key")]),
        lambda: worker.beat(*(one.lease for one in held)),
        lambda: worker_on(PostgresStore.from_url(fresh(proxy.url))),
    ):
        began = monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(act(), 0.3)
        assert monotonic() - began < 5.0
    proxy.thaw()
    await enqueue_one(store)


@pytest.mark.parametrize("keyed", [False, True])
async def test_what_was_given_up_does_not_go_on_in_secret(server: Postgres, keyed: bool) -> None:
    """Whoever is cancelled, and then does something else, must not be overtaken by what it gave up."""
    url = fresh(server.url)
    async with opened(url) as store:
        with stranger(server) as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {schema_in(url)}.task")
            new = a_task(idempotency_key="a key" if keyed else None)
            waiting = asyncio.create_task(store.enqueue([new]))
            await eventually(lambda: asked(server, WAITING))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not asked(server, WAITING)
        assert await all_tasks(store) == []
        await store.enqueue([new])


async def test_a_host_that_vanishes_is_noticed_by_the_kernel(server: Postgres) -> None:
    async with opened(fresh(server.url)) as store, store.connections.one() as connection:
        found = connection._transport.get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000


async def test_a_locked_table_does_not_wedge_the_worker(server: Postgres) -> None:
    url = fresh(server.url)
    async with program(url, lease=2, heartbeat=0.2, slots=4) as (app, work, started):
        await work.aenqueue_many([{"key": str(n), "seconds": 0.01} for n in range(200)])
        for _ in range(10):
            await asyncio.wait_for(started.get(), 10)
        with stranger(server) as connection, connection.transaction():
            await asyncio.to_thread(connection.execute, f"LOCK TABLE {schema_in(url)}.task")
            await asyncio.to_thread(threading.Event().wait, 3.0)  # longer than the lease
            assert len(asked(server, WAITING)) < 20, "those who gave up still wait"
        await eventually(lambda: all_ended(app, 200), within=30)
        await assert_ended_once(app, 200)


async def test_a_deadlock_is_tried_again(server: Postgres) -> None:
    url = fresh(server.url)
    schema = schema_in(url)
    async with opened(url) as store:
        await store.enqueue(some_tasks(2))
        worker = await worker_on(store)
        first, second = sorted(await worker.claim(2), key=lambda one: one.task.id)
        lock = f"SELECT FROM {schema}.task WHERE id = %s FOR UPDATE"
        with stranger(server) as connection, connection.transaction():
            connection.execute("SET LOCAL deadlock_timeout = '20s'")  # so that it is not the one to give way
            connection.execute(lock, [second.task.id])
            settling = asyncio.create_task(store.settle([complete(first), complete(second)]))
            await eventually(lambda: asked(server, WAITING), within=1.8)
            await asyncio.to_thread(connection.execute, lock, [first.task.id])
            assert "deadlock detected" in server.log.read_text()
        assert (await settling).receipts == (Receipt.APPLIED,) * 2


# -- no writes, no connection, no time -----------------------------------------------------------------


def set_read_only(server: Postgres, value: str) -> None:
    tell(server, f"ALTER SYSTEM SET default_transaction_read_only = {value}", "SELECT pg_reload_conf()")


async def test_a_server_that_takes_no_writes_is_unavailable_until_it_does(server: Postgres) -> None:
    async with opened(fresh(server.url)) as store:
        await enqueue_one(store)
        set_read_only(server, "on")
        try:
            with pytest.raises(StoreUnavailable, match="is read-only"):
                await eventually(lambda: refused(store))
            with pytest.raises(StoreUnavailable, match="is read-only"):  # by a new connection
                await enqueue_one(store)
            assert not asked(server, "SELECT FROM pg_stat_activity WHERE application_name = 'windlass'")
        finally:
            set_read_only(server, "off")
        await eventually(lambda: despite_trouble(lambda: enqueue_one(store)))


async def refused(store: PostgresStore) -> bool:
    """Until the server has read its configuration, writes still succeed."""
    await enqueue_one(store)
    return False


async def test_a_server_without_a_free_connection_is_unavailable_for_a_while(
    server_folder: Path,
) -> None:
    few = {"max_connections": "6", "superuser_reserved_connections": "0", "max_wal_senders": "0"}
    with Postgres.start(server_folder, settings=QUICK | few) as small:
        async with opened(fresh(small.url)) as store, opened(fresh(small.url)) as late:
            await late.close()
            strangers = []
            with suppress(psycopg.OperationalError):
                while True:
                    strangers.append(psycopg.connect(small.url))
            with pytest.raises(StoreUnavailable, match="no free connection"):
                await late.open()
            await enqueue_one(store)  # who has a connection keeps it
            for one in strangers:
                one.close()
            await eventually(lambda: despite_trouble(lambda: opening(late)))
            await enqueue_one(late)


async def opening(store: PostgresStore) -> bool:
    await store.open()
    return True


async def test_a_worker_outlives_a_time_without_connections(server_folder: Path) -> None:
    few = {"max_connections": "12", "superuser_reserved_connections": "0", "max_wal_senders": "0"}
    with Postgres.start(server_folder, settings=QUICK | few) as small:
        async with program(fresh(small.url), lease=30) as (app, work, started):
            await work.aenqueue_many([{"key": str(n), "seconds": 0.02} for n in range(100)])
            await asyncio.wait_for(started.get(), 10)
            strangers = []
            with stranger(small) as inside:
                inside.execute(TERMINATE.format("windlass%"))
                with suppress(psycopg.OperationalError):
                    while len(strangers) < 12:
                        strangers.append(psycopg.connect(small.url))
            await pause(0.5)
            for one in strangers:
                one.close()
            await eventually(lambda: all_ended(app, 100), within=20)
            await assert_ended_once(app, 100)


async def test_a_statement_that_takes_longer_than_the_role_may_is_told_as_such(server: Postgres) -> None:
    tell(
        server,
        "CREATE ROLE hasty LOGIN",
        "ALTER ROLE hasty SET statement_timeout = '150ms'",
        "GRANT CREATE ON DATABASE windlass TO hasty",
    )
    url = fresh(server.url.replace(f"{USER}@", "hasty@"))
    async with opened(url) as store:
        await enqueue_one(store)
        with stranger(server) as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {schema_in(url)}.task")
            with pytest.raises(StoreUnavailable, match="statement_timeout"):
                await enqueue_one(store)
        await enqueue_one(store)


# -- it was never going to work ------------------------------------------------------------------------


async def failing(url: str) -> StoreError:
    """What opening the store raises."""
    with pytest.raises(StoreError) as caught:
        async with opened(url):
            pass
    return caught.value


async def test_a_wrong_password_is_told(server: Postgres) -> None:
    rules = server.data / "pg_hba.conf"
    rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    os.chmod(rules, 0o644)  # noqa: PTH101 - so that the server's user may read it
    tell(server, "CREATE ROLE locked LOGIN PASSWORD 'right'", "SELECT pg_reload_conf()")
    error = await failing(fresh(server.url.replace(f"{USER}@", "locked:wrong@")))

    assert not error.transient
    assert "check user, password" in str(error)
    assert "wrong" not in str(error).replace("wrong password", "")


async def test_an_unknown_database_is_told(server: Postgres) -> None:
    error = await failing(fresh(f"{server.url}-not"))

    assert not error.transient
    assert 'database "windlass-not" does not exist' in str(error)


async def test_missing_rights_to_make_the_schema_are_told(server: Postgres) -> None:
    tell(server, "CREATE ROLE humble LOGIN")
    error = await failing(fresh(server.url.replace(f"{USER}@", "humble@")))

    assert not error.transient
    assert "permission denied for database windlass" in str(error)


async def test_a_host_that_is_not_there_is_unavailable() -> None:
    error = await failing("postgresql://somebody@nowhere.invalid/windlass")

    assert error.transient
    assert "cannot connect to Postgres at nowhere.invalid/windlass" in str(error)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"N"])
async def test_what_is_no_postgres_server_is_told(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        with suppress(ConnectionError):
            await reader.read(100)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        error = await failing(f"postgresql://somebody@127.0.0.1:{port}/windlass")

    assert "check host and port" in str(error) or "that the URL is right" in str(error)


async def test_a_setting_that_makes_no_sense_is_told(server: Postgres) -> None:
    error = await failing(f"{server.url}?sslmode=bogus")

    assert not error.transient
    assert "check the store's URL" in str(error)
