"""Enqueueing and settling within the caller's own transaction, by every driver: both or neither. (P9, D15)"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from tests.examples import sample
from tests.servers.postgres import Postgres
from tests.stores.postgres.callers import AT_ONCE, DRIVERS, ORDER, Caller
from windlass._ids import new_id
from windlass._model.state import State
from windlass._model.verdict import Receipt
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.connection.address import parse
from windlass.errors import (
    DuplicateTask,
    IdempotencyConflict,
    InvalidOption,
    NotFound,
    NotSupported,
    SchemaMismatch,
    StoreUnavailable,
)
from windlass.testing.conformance.steps import (
    a_task,
    bury,
    cancel,
    complete,
    enqueue_and_claim,
    enqueue_one,
    exists,
    load,
    settle,
    some_tasks,
    state_of,
    worker_on,
)

# Every driver on the newest server; there is little in which an older one could differ.
SAMPLE = ("psycopg", "psycopg-async", "asyncpg", "sqlalchemy-session", "sqlalchemy-asyncpg", "django")
CALLERS = sample(
    [("postgres_newest", name) for name in SAMPLE],
    [
        *(("postgres_newest", name) for name in DRIVERS if name not in SAMPLE),
        ("postgres15", "psycopg"),
        ("postgres15", "asyncpg"),
    ],
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = {*metafunc.fixturenames}
    if "caller" in wanted:
        metafunc.parametrize(("server", "caller"), CALLERS, indirect=True)
    elif "at_once" in wanted:
        pairs = [("postgres_newest", name) for name in AT_ONCE]
        metafunc.parametrize(("server", "at_once"), pairs, indirect=True)
    elif "server" in wanted:
        metafunc.parametrize("server", ["postgres_newest"], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(server: Postgres) -> str:
    return database_on(server)


@cache
def database_on(server: Postgres) -> str:
    """A database that has windlass's schema, and a table of the caller's."""
    url = server.new_database(f"join_{uuid4().hex[:12]}")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (number integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with ThreadPoolExecutor(1) as beside:  # This thread may have an event loop already.
        beside.submit(lambda: asyncio.run(make_schema(f"{url}?schema=tasks"))).result()
    return url


async def make_schema(url: str) -> None:
    store = PostgresStore.from_url(url)
    await store.open()
    await store.close()


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    """Nothing in it yet."""
    with psycopg.connect(database) as connection:
        for table in ("orders", "tasks.task", "tasks.history", "tasks.idempotency", "tasks.dependency"):
            connection.execute(f"DELETE FROM {table}")  # for a few rows much quicker than TRUNCATE
    opened = PostgresStore.from_url(f"{database}?schema=tasks")
    yield opened
    await opened.close()


@pytest.fixture
async def caller(request: pytest.FixtureRequest, store: PostgresStore) -> AsyncIterator[Caller]:
    """In a transaction of its own, which it has not begun to use."""
    async with DRIVERS[request.param](store.address.dsn) as caller:
        yield caller


@pytest.fixture
async def at_once(request: pytest.FixtureRequest, store: PostgresStore) -> AsyncIterator[Caller]:
    """On a connection that commits every statement by itself."""
    async with AT_ONCE[request.param](store.address.dsn) as caller:
        yield caller


async def ask(store: PostgresStore, sql: str, *parameters: Any) -> Any:
    """One value, seen from outside."""
    connection = await asyncpg.connect(store.address.dsn)
    try:
        return await connection.fetchval(sql, *parameters)
    finally:
        await connection.close()


async def orders(store: PostgresStore) -> int:
    number: int = await ask(store, "SELECT count(*) FROM orders")
    return number


# -- both or neither ---------------------------------------------------------------------------------


async def test_both_stand_after_the_callers_commit(store: PostgresStore, caller: Caller) -> None:
    new = a_task()
    await caller.say(ORDER)
    answers = await caller.enqueue(store, new)
    before = await exists(store, new.id)

    await caller.commit()

    assert [(answer.id, answer.created) for answer in answers] == [(new.id, True)]
    assert not before
    assert await state_of(store, new.id) is State.READY
    assert await orders(store) == 1


async def test_neither_stands_after_the_callers_rollback(store: PostgresStore, caller: Caller) -> None:
    new = a_task(idempotency_key="k", fingerprint="f")
    await caller.say(ORDER)
    await caller.enqueue(store, new)

    await caller.rollback()

    assert not await exists(store, new.id)
    assert await orders(store) == 0
    assert await ask(store, "SELECT count(*) FROM tasks.idempotency") == 0


async def test_a_task_that_comes_before_the_callers_own_writes_waits_for_his_commit_too(
    store: PostgresStore, caller: Caller
) -> None:
    """SQLAlchemy on asyncpg begins at its first statement, which is ours here."""
    first, second = a_task(), a_task(fingerprint="f")
    await caller.enqueue(store, first)
    await caller.enqueue(store, second)
    before = [await exists(store, first.id), await exists(store, second.id)]

    await caller.rollback()

    assert before == [False, False]
    assert not await exists(store, first.id)
    assert not await exists(store, second.id)


async def test_a_commit_that_fails_takes_the_task_with_it(store: PostgresStore, caller: Caller) -> None:
    new = a_task()
    await caller.say(ORDER)
    await caller.say(ORDER)
    await caller.enqueue(store, new)

    with pytest.raises(Exception, match="duplicate key"):
        await caller.commit()

    assert not await exists(store, new.id)


@pytest.mark.parametrize(
    ("standing", "wish", "refusal"),
    [
        ({"fingerprint": "f"}, {"fingerprint": "f"}, DuplicateTask),
        (
            {"idempotency_key": "k", "idempotency_digest": "a"},
            {"idempotency_key": "k", "idempotency_digest": "b"},
            IdempotencyConflict,
        ),
        ({}, {"after": ("018f0000-0000-7000-8000-000000000000",)}, NotFound),
        ({}, {"run_at": datetime.max.replace(tzinfo=UTC)}, InvalidOption),
    ],
    ids=["fingerprint", "key", "after", "run_at"],
)
async def test_a_refusal_leaves_the_transaction_usable(
    store: PostgresStore,
    caller: Caller,
    standing: dict[str, str],
    wish: dict[str, Any],
    refusal: type[Exception],
) -> None:
    await store.enqueue([a_task(**standing)])
    innocent, refused, after = a_task(idempotency_key="free"), a_task(**wish), a_task()
    await caller.say(ORDER)

    with pytest.raises(refusal):
        await caller.enqueue(store, innocent, refused)
    await caller.enqueue(store, after)
    await caller.commit()

    assert [await exists(store, new.id) for new in (innocent, refused, after)] == [False, False, True]
    assert await orders(store) == 1
    assert await ask(store, "SELECT count(*) FROM tasks.idempotency WHERE key = 'free'") == 0


async def test_what_stands_already_is_answered_with(store: PostgresStore, caller: Caller) -> None:
    first = a_task(idempotency_key="k", idempotency_for=timedelta(days=400))
    again = a_task(idempotency_key="k")
    plain = await enqueue_one(store)
    await caller.enqueue(store, first)

    answers = await caller.enqueue(store, again, a_task(id=plain))
    await caller.commit()

    assert [(answer.id, answer.created) for answer in answers] == [(first.id, False), (plain, False)]
    until = await ask(store, "SELECT until FROM tasks.idempotency")
    created = (await load(store, first.id)).created_at
    assert abs(until - created - timedelta(days=400)) < timedelta(seconds=10), "days have 24 hours"


# -- everything that a task can be -------------------------------------------------------------------

AWKWARD = "naïve {\"quoted\"}, 'so', \\back\\slash %s %% $1 \t 木 🪝"


async def test_every_field_arrives_as_it_was(store: PostgresStore, caller: Caller) -> None:
    payload = b'{"a":"\\u0000 \\\\ \xc3\xa9 %s"}'
    run_at = datetime(2031, 3, 30, 1, 30, 0, 123456, tzinfo=UTC)
    new = a_task(
        type=AWKWARD,
        payload=payload,
        queue=AWKWARD,
        tenant=AWKWARD,
        priority=-7,
        max_attempts=9,
        timeout=timedelta(days=2, microseconds=5),
        next=b'[{"\\"":1}]',
        result_into=AWKWARD,
        secret=("{", '"', "NULL", ""),
        trace=AWKWARD,
        enqueued_by=AWKWARD,
        run_at=run_at,
        fingerprint=AWKWARD,
        idempotency_key=AWKWARD,
        idempotency_digest="d",
    )
    bare = a_task(id=new.id.replace(new.id[-4:], "0000"), root=new.id)
    await caller.enqueue(store, new, bare)
    await caller.commit()

    task, other = await load(store, new.id), await load(store, bare.id)

    assert (task.type, task.queue, task.tenant, task.trace, task.result_into) == (AWKWARD,) * 5
    assert (task.payload, task.next, task.run_at, task.timeout) == (payload, new.next, run_at, new.timeout)
    assert (task.priority, task.boost, task.max_attempts) == (-7, -7 * 2**44, 9)
    assert (task.secret, task.idempotency_key, task.fingerprint) == (new.secret, AWKWARD, AWKWARD)
    assert task.state is State.SCHEDULED
    assert (other.root, other.next, other.timeout, other.trace) == (new.id, None, None, None)


async def test_a_delay_is_so_many_hours_wherever_the_caller_is(store: PostgresStore, caller: Caller) -> None:
    """By the clocks of New York this year has a day of 25 hours; ours all have 24."""
    await caller.say("SET TIME ZONE 'America/New_York'")
    new = a_task(delay=timedelta(days=365, seconds=1))
    keyed = a_task(delay=timedelta(days=180), fingerprint="f")

    await caller.enqueue(store, new)
    await caller.enqueue(store, keyed)
    await caller.commit()

    for wish in (new, keyed):
        task = await load(store, wish.id)
        assert task.run_at - task.created_at == wish.delay


async def test_a_chain_and_what_it_waits_for(store: PostgresStore, caller: Caller) -> None:
    standing = await enqueue_one(store)
    cancelled = await enqueue_one(store)
    await cancel(store, cancelled)
    first = a_task()
    second = a_task(after=(first.id, standing))
    doomed_by = a_task(after=(cancelled,))

    await caller.enqueue(store, first, second, doomed_by)
    await caller.commit()

    assert await state_of(store, second.id) is State.WAITING
    assert (await load(store, second.id)).after == (first.id, standing)
    assert await state_of(store, doomed_by.id) is State.CANCELLED


async def test_a_large_batch(store: PostgresStore, caller: Caller) -> None:
    batch = some_tasks(3000)

    answers = await caller.enqueue(store, *batch)
    await caller.commit()

    assert [answer.id for answer in answers] == [new.id for new in batch]
    assert await ask(store, "SELECT count(*) FROM tasks.task") == len(batch)


async def test_nothing_at_all(store: PostgresStore, caller: Caller) -> None:
    assert list(await caller.enqueue(store)) == []
    assert list(await caller.settle(store)) == []


# -- on a connection that commits by itself ----------------------------------------------------------


async def test_without_a_transaction_the_tasks_stand_at_once(store: PostgresStore, at_once: Caller) -> None:
    plain, keyed = a_task(), a_task(idempotency_key="k")

    await at_once.enqueue(store, plain)
    await at_once.enqueue(store, keyed)

    assert await exists(store, plain.id)
    assert await exists(store, keyed.id)


async def test_without_a_transaction_a_batch_is_kept_whole_or_not_at_all(
    store: PostgresStore, at_once: Caller
) -> None:
    await enqueue_one(store, fingerprint="f")
    innocent, after = a_task(idempotency_key="k"), a_task(idempotency_key="k", payload=b"{}")

    with pytest.raises(DuplicateTask):
        await at_once.enqueue(store, innocent, a_task(fingerprint="f"))
    await at_once.enqueue(store, after)

    assert not await exists(store, innocent.id)
    assert await exists(store, after.id)


async def test_settling_needs_a_transaction(store: PostgresStore, at_once: Caller) -> None:
    claimed = await enqueue_and_claim(store, await worker_on(store))

    with pytest.raises(InvalidOption, match="begin"):
        await at_once.settle(store, complete(claimed))


# -- settling ----------------------------------------------------------------------------------------


async def test_a_task_is_completed_by_the_callers_commit(store: PostgresStore, caller: Caller) -> None:
    claimed = await enqueue_and_claim(store, await worker_on(store))
    await caller.say(ORDER)

    receipts = await caller.settle(store, complete(claimed, b"1"))
    before = await state_of(store, claimed.task.id)
    await caller.commit()

    assert tuple(receipts) == (Receipt.APPLIED,)
    assert before is State.RUNNING
    task = await load(store, claimed.task.id)
    assert (task.state, task.result) == (State.COMPLETED, b"1")
    assert await orders(store) == 1


async def test_a_rollback_leaves_the_task_running(store: PostgresStore, caller: Caller) -> None:
    claimed = await enqueue_and_claim(store, await worker_on(store))

    await caller.settle(store, complete(claimed))
    await caller.rollback()

    assert await state_of(store, claimed.task.id) is State.RUNNING
    assert await settle(store, complete(claimed)) == (Receipt.APPLIED,)


async def test_receipts_are_those_of_the_store(store: PostgresStore, caller: Caller) -> None:
    worker = await worker_on(store)
    done, lost, dead = [await enqueue_and_claim(store, worker) for _ in range(3)]
    await settle(store, complete(done))
    waiting = await enqueue_one(store, after=(dead.task.id,))
    other = a_task()

    receipts = await caller.settle(
        store,
        complete(done),
        complete(type(lost.lease)(task_id=lost.task.id, fence=lost.lease.fence + 1)),
        bury(dead),
        complete(lost, b"null", other),
    )
    again = await caller.settle(store, complete(done))
    await caller.commit()

    assert tuple(receipts) == (Receipt.REPEATED, Receipt.LOST, Receipt.APPLIED, Receipt.APPLIED)
    assert tuple(again) == (Receipt.REPEATED,)
    assert await state_of(store, dead.task.id) is State.DEAD
    assert await state_of(store, waiting) is State.WAITING
    assert await state_of(store, other.id) is State.READY


async def test_a_task_that_another_waits_for(store: PostgresStore, caller: Caller) -> None:
    claimed = await enqueue_and_claim(store, await worker_on(store))
    waiting = await enqueue_one(store, after=(claimed.task.id,))

    receipts = await caller.settle(store, complete(claimed))
    await caller.commit()

    assert tuple(receipts) == (Receipt.APPLIED,)
    assert await state_of(store, waiting) is State.READY


async def test_a_refused_successor_leaves_the_transaction_usable(
    store: PostgresStore, caller: Caller
) -> None:
    claimed = await enqueue_and_claim(store, await worker_on(store))
    await caller.say(ORDER)

    with pytest.raises(NotFound):
        await caller.settle(store, complete(claimed, None, a_task(after=(new_id(),))))
    await caller.commit()

    assert await state_of(store, claimed.task.id) is State.RUNNING
    assert await orders(store) == 1


async def test_a_duplicate_successor_is_cancelled_in_the_transaction(
    store: PostgresStore, caller: Caller
) -> None:
    claimed = await enqueue_and_claim(store, await worker_on(store))
    await enqueue_one(store, fingerprint="f")
    successor = a_task(fingerprint="f")
    await caller.say(ORDER)

    assert tuple(await caller.settle(store, complete(claimed, None, successor))) == (Receipt.APPLIED,)
    await caller.commit()

    assert await state_of(store, claimed.task.id) is State.COMPLETED
    assert await state_of(store, successor.id) is State.CANCELLED


# -- what goes wrong ---------------------------------------------------------------------------------


async def test_a_transaction_that_has_failed_is_told_so(store: PostgresStore, caller: Caller) -> None:
    with pytest.raises(Exception, match="nowhere"):
        await caller.say("SELECT * FROM nowhere")

    with pytest.raises(InvalidOption, match="roll it back"):
        await caller.enqueue(store, a_task())


async def test_a_schema_of_another_number(store: PostgresStore, caller: Caller) -> None:
    await caller.say("UPDATE tasks.schema_version SET number = 99")

    with pytest.raises(SchemaMismatch, match="upgrade windlass"):
        await caller.enqueue(store, a_task())
    await caller.rollback()


async def test_a_later_snapshot_is_needed(store: PostgresStore, caller: Caller) -> None:
    """At REPEATABLE READ a key that was taken meanwhile cannot be seen, only run into."""
    await caller.say("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    await caller.say("SELECT 1 FROM orders")
    await enqueue_one(store, idempotency_key="k", idempotency_digest="d")
    await enqueue_one(store, fingerprint="f")

    for wish in ({"idempotency_key": "k", "idempotency_digest": "d"}, {"fingerprint": "f"}):
        with pytest.raises(StoreUnavailable, match="retry all of it"):
            await caller.enqueue(store, a_task(**wish))


async def test_a_connection_that_is_gone(store: PostgresStore, caller: Caller) -> None:
    await caller.say(ORDER)
    await caller.enqueue(store, a_task())
    await ask(
        store,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database() AND application_name <> 'windlass'",
    )

    with pytest.raises(StoreUnavailable):
        await caller.enqueue(store, a_task(idempotency_key="k"))
    with pytest.raises((StoreUnavailable, InvalidOption)):  # SQLAlchemy wants to be rolled back first.
        await caller.enqueue(store, a_task())


@pytest.mark.parametrize("connection", [object(), None, "postgresql://"], ids=["object", "none", "url"])
def test_what_cannot_be_joined(connection: object) -> None:
    store = PostgresStore(parse("postgresql://nowhere/nothing"))

    with pytest.raises(NotSupported, match="asyncpg"):
        store.join(connection)
