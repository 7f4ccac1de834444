"""Lanes in the file: what a claim costs, and how tasks get to where they belong, whoever dies meanwhile."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from tests.examples import sample
from windlass._model.limit import Limit
from windlass._model.queue import Fairness, Level, Ordering, QueueSettings, Retention
from windlass._stores.sqlite import SQLiteStore, leases
from windlass._stores.sqlite.claim import queries as answers
from windlass._stores.sqlite.claim import relayout
from windlass._stores.sqlite.claim.queries import LaneRotation
from windlass._stores.sqlite.connection.open import connect
from windlass._stores.sqlite.transaction import Transaction
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    ManualWorker,
    a_task,
    bury,
    complete,
    enqueue_one,
    replay,
    retry,
    settle_now,
    some_tasks,
    worker_on,
)

Peek = Callable[..., list[tuple[object, ...]]]
FAIR = QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN)
RANDOM = QueueSettings(name="q", fairness=Fairness.RANDOM)
EACH = Limit(name="each", by="tenant", running=3)
HIGH = 10

PLACES = "SELECT tenant, lane, key <> '' FROM windlass_task ORDER BY id"
UNDONE = "SELECT count(*) FROM windlass_rearranging"


async def claimed_tenants(worker: ManualWorker, number: int) -> list[str]:
    """The tenants of all that can be claimed, so many at a time."""
    tenants: list[str] = []
    while claimed := await worker.claim(number, "q"):
        tenants += [one.task.tenant for one in claimed]
    return tenants


# -- what a claim costs ------------------------------------------------------------------------------


class Meter:
    """Counts the steps of SQLite's machine, in hundreds."""

    def __init__(self, connection: sqlite3.Connection, clock: ManualClock) -> None:
        self._connection = connection
        self._clock = clock
        self._rotation = LaneRotation(Random(1).random)
        self._hundreds = 0
        connection.set_progress_handler(self._count, 100)

    def _count(self) -> int:
        self._hundreds += 1
        return 0

    def claim(self, worker: ManualWorker, number: int, level: Level | None = None) -> int:
        """The steps of a claim that finds as many as it asks for."""
        self._hundreds = 0
        wish = replace(worker.next_claim(number, "q"), level=level)
        found = leases.claim(Transaction(self._connection, self._clock.now()), wish, self._rotation)
        assert len(found) == number
        return self._hundreds * 100


@contextmanager
def metered(path: Path, clock: ManualClock) -> Iterator[Meter]:
    """A transaction whose steps are counted, and of which nothing stays."""
    with closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield Meter(connection, clock)
        connection.execute("ROLLBACK")


async def enqueue_tenants(store: SQLiteStore, number: int) -> None:
    """A task of each of so many tenants."""
    for first in range(0, number, 2_500):
        tenants = range(first, min(first + 2_500, number))
        await store.enqueue([a_task(queue="q", tenant=f"tenant {tenant}") for tenant in tenants])


@pytest.mark.parametrize("settings", [FAIR, RANDOM], ids=lambda one: one.fairness.value)
@pytest.mark.parametrize("limits", sample([[EACH]], [[]]), ids=lambda some: "limits" if some else "no limits")
async def test_a_claim_costs_the_same_however_long_the_backlog_is(
    store: SQLiteStore, path: Path, clock: ManualClock, settings: QueueSettings, limits: list[Limit]
) -> None:
    for record in (settings, *limits):
        await store.put(record)
    worker = await worker_on(store)
    await enqueue_tenants(store, 10_000)
    with metered(path, clock) as meter:
        short = [meter.claim(worker, 20) for _ in range(3)]

    await store.enqueue(some_tasks(20_000, queue="q", tenant="tenant 7"))
    with metered(path, clock) as meter:
        long = [meter.claim(worker, 20) for _ in range(3)]

    assert max(long) <= 1.5 * max(short)
    assert max(long) <= 250_000  # some ten milliseconds, and most of it for a thousand lanes


@pytest.mark.parametrize("level", list(Level), ids=lambda one: one.value)
@pytest.mark.parametrize("settings", [QueueSettings(name="q"), FAIR], ids=["plain", "fair"])
async def test_a_claim_for_a_level_costs_the_same_however_many_are_before_it(
    store: SQLiteStore, path: Path, clock: ManualClock, level: Level, settings: QueueSettings
) -> None:
    await store.put(settings)
    worker = await worker_on(store)
    for priority in (HIGH, 0, -HIGH):
        await store.enqueue(some_tasks(50, queue="q", priority=priority))
    with metered(path, clock) as meter:
        short = meter.claim(worker, 20, level)

    for priority in (HIGH, 0):
        await store.enqueue(some_tasks(10_000, queue="q", priority=priority))
    with metered(path, clock) as meter:
        long = meter.claim(worker, 20, level)

    # Of the middle level a window of the line is looked at: the same however long the line is.
    assert long <= short + 60 * answers.MIDDLE_WINDOW


async def test_of_many_tenants_each_has_its_chance(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with more lanes than are looked at in one go, and while the first of them have enough."""
    monkeypatch.setattr(answers, "LANES_AT_ONCE", 10)
    await store.put(RANDOM)
    for _ in range(30):
        await enqueue_tenants(store, 35)
    worker = await worker_on(store)

    drawn = {one.task.tenant for _ in range(50) for one in await worker.claim(4, "q")}

    assert len(drawn) > 25


# -- where tasks belong ------------------------------------------------------------------------------


async def test_whatever_makes_a_task_ready_puts_it_where_it_belongs(
    store: SQLiteStore, clock: ManualClock, peek: Peek
) -> None:
    await store.put(FAIR)
    await store.put(EACH)
    worker = await worker_on(store)
    new = [a_task(queue="q", tenant=tenant) for tenant in ("retried", "released", "replayed")]
    await store.enqueue(new)
    retried, released, replayed = sorted(await worker.claim(3, "q"), key=lambda one: one.task.id)
    await settle_now(store, retry(retried, timedelta(seconds=1)), retry(released), bury(replayed))
    await replay(store, replayed.task.id)
    await enqueue_one(store, queue="q", tenant="delayed", delay=timedelta(seconds=1))
    first = await enqueue_one(store, queue="first")
    await enqueue_one(store, queue="q", tenant="unblocked", after=(first,))
    (before,) = await worker.claim(1, "first")
    not_ready = [row for row in peek(PLACES) if row[0] in ("retried", "delayed", "unblocked")]

    await settle_now(store, complete(before))
    clock.advance(timedelta(seconds=1))
    await store.promote(10)

    assert not_ready == [(tenant, "", 0) for tenant in ("retried", "delayed", "unblocked")]
    tenants = ["retried", "released", "replayed", "delayed", "unblocked"]
    assert [row for row in peek(PLACES) if row[0] in tenants] == [(tenant, tenant, 1) for tenant in tenants]


async def test_what_is_enqueued_within_the_callers_transaction_has_its_lane(
    store: SQLiteStore, path: Path, peek: Peek
) -> None:
    await store.put(FAIR)
    await store.put(EACH)

    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        store.join(connection).enqueue([a_task(queue="q", tenant="ada")])
        connection.commit()

    assert peek(PLACES) == [("ada", "ada", 1)]


async def test_settings_that_change_no_lane_move_nothing(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause, say, or a weight: however long the queue is."""
    await store.put(FAIR)
    await store.put(EACH)
    await store.enqueue(some_tasks(3, queue="q", tenant="ada"))
    monkeypatch.setattr(relayout, "_begin", lambda *_: pytest.fail("it goes through the queue"))

    for settings in (replace(FAIR, paused=True), replace(FAIR, weights={"ada": 3}), RANDOM):
        await store.put(settings)
    await store.put(replace(EACH, running=1, rate=5.0))


# -- a few at a time ---------------------------------------------------------------------------------

CHANGES = {
    "fair": ([], FAIR),
    "shared out": ([], QueueSettings(name="q", ordering=Ordering(shares={Level.LOW: 20}))),
    "a line again": ([FAIR], QueueSettings(name="q")),
    "a limit": ([], EACH),
    "a limit by another field": ([EACH], replace(EACH, by="type")),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_much_that_waits_is_moved_a_few_at_a_time(
    store: SQLiteStore, peek: Peek, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    before, after = CHANGES[change]
    for record in before:
        await store.put(record)
    new = [a_task(queue="q", tenant=f"t{number % 5}", priority=number % 3 - 1) for number in range(60)]
    await store.enqueue(new)
    monkeypatch.setattr(relayout, "MAX_MOVED", 7)

    await store.put(after)
    moved = peek("SELECT id, lane, key FROM windlass_task ORDER BY id")

    other = SQLiteStore(store.path.with_name("other.db"), clock=store.clock)
    await other.put(after)
    await other.enqueue(new)
    with closing(sqlite3.connect(other.path)) as connection:
        assert moved == connection.execute("SELECT id, lane, key FROM windlass_task ORDER BY id").fetchall()
    assert peek(UNDONE) == [(0,)]
    await other.close()


@pytest.mark.parametrize("change", CHANGES)
async def test_who_dies_while_moving_loses_nothing_and_the_keeper_goes_on(
    store: SQLiteStore, peek: Peek, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    before, after = CHANGES[change]
    for record in before:
        await store.put(record)
    await store.enqueue([a_task(queue="q", tenant=f"t{number % 5}") for number in range(40)])
    worker = await worker_on(store)
    with monkeypatch.context() as dying:
        dying.setattr(relayout, "MAX_MOVED", 7)
        dying.setattr(SQLiteStore, "_repeat", _die)
        with pytest.raises(ConnectionAbortedError):
            await store.put(after)
    assert peek(UNDONE) == [(1,)]

    some = await worker.claim(4, "q")
    await store.prune(Retention(), limit=10)

    assert 0 < len(some) <= 4
    assert peek(UNDONE) == [(0,)]


@pytest.mark.parametrize("record", [FAIR, EACH], ids=["lanes", "keys"])
async def test_what_is_left_in_old_lanes_is_claimed_all_the_same(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, record: QueueSettings | Limit
) -> None:
    await store.put(record)
    tenants = [f"t{number % 5}" for number in range(40)]
    await store.enqueue([a_task(queue="q", tenant=tenant) for tenant in tenants])
    worker = await worker_on(store)
    monkeypatch.setattr(relayout, "MAX_MOVED", 7)
    monkeypatch.setattr(SQLiteStore, "_repeat", _die)

    with pytest.raises(ConnectionAbortedError):
        await store.remove(type(record), record.name)

    await store.enqueue(some_tasks(40, queue="q", tenant="new"))
    first = [one.task.tenant for one in await worker.claim(12, "q")]
    assert "t4" in first  # It does not wait for what has come since.
    assert Counter(first + await claimed_tenants(worker, 6)) == Counter([*tenants, *["new"] * 40])


async def _die(*_: object) -> None:
    raise ConnectionAbortedError
