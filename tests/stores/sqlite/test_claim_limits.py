"""Limits in the file: permits go with what runs, nobody is woken for nothing, and no kill breaks a cap."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from windlass._model.limit import Limit, Usage
from windlass._model.queue import Retention
from windlass._model.record import Session
from windlass._store.protocol import Wake
from windlass._stores.sqlite import SQLiteStore, leases
from windlass._stores.sqlite import upkeep as keeping
from windlass._stores.sqlite.claim.queries import LaneRotation
from windlass._stores.sqlite.connection.open import connect
from windlass._stores.sqlite.transaction import Transaction
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    ENDINGS,
    a_task,
    all_records,
    complete,
    enqueue_one,
    release,
    settle_now,
    some_tasks,
    worker_on,
)

from .conftest import DEADLINE, line_of

Peek = Callable[..., list[tuple[object, ...]]]
ONE = Limit(name="one", queue="q", running=1)
RATE = Limit(name="rate", queue="q", rate=2, burst=4)


# -- permits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
async def test_only_what_runs_has_permits(store: SQLiteStore, peek: Peek, ending: str) -> None:
    await store.put(ONE)
    await store.put(RATE)
    await enqueue_one(store, queue="q")
    worker = await worker_on(store)
    permits = [peek("SELECT permits FROM windlass_task")]
    claimed = await worker.claim(1, "q")
    permits.append(peek("SELECT permits FROM windlass_task"))

    await settle_now(store, ENDINGS[ending](claimed[0]))

    permits.append(peek("SELECT permits FROM windlass_task"))
    assert permits == [[(None,)], [('["one\\u001f","rate\\u001f"]',)], [(None,)]]


async def test_a_limit_that_comes_or_goes_changes_the_permits_of_what_runs(
    store: SQLiteStore, peek: Peek
) -> None:
    await store.enqueue(some_tasks(2, queue="q"))
    worker = await worker_on(store)
    await worker.claim(2, "q")

    await store.put(ONE)
    with_it = peek("SELECT permits FROM windlass_task")
    await store.remove(Limit, "one")

    assert with_it == [('["one\\u001f"]',)] * 2
    assert peek("SELECT permits FROM windlass_task") == [(None,)] * 2


async def test_usage_is_read_a_page_at_a_time(store: SQLiteStore) -> None:
    await store.put(Limit(name="each", by="tenant", running=3, rate=2, burst=4))
    await store.enqueue([a_task(queue="q", tenant=f"t{number}") for number in range(7)])
    worker = await worker_on(store)
    await settle_now(store, *map(complete, (await worker.claim(7, "q"))[:3]))

    found = await all_records(store, Usage)

    assert [(usage.value, usage.running, usage.tokens) for usage in found] == [
        (f"t{number}", int(number > 2), 3.0) for number in range(7)
    ]


# -- starts that are left ----------------------------------------------------------------------------


async def test_a_rate_that_changes_refills_what_was_before_as_before(
    store: SQLiteStore, clock: ManualClock
) -> None:
    """Ten seconds at a start in ten make one start, although it is a hundred a second from then on."""
    await store.put(replace(RATE, rate=0.1, burst=100))
    await store.enqueue(some_tasks(150, queue="q"))
    worker = await worker_on(store)
    first = await worker.claim(150, "q")
    clock.advance(timedelta(seconds=10))
    await worker.beat(*[one.lease for one in first])

    await store.put(replace(RATE, rate=100, burst=100))

    assert [len(first), len(await worker.claim(150, "q"))] == [100, 1]


async def test_what_says_nothing_is_forgotten(
    store: SQLiteStore, clock: ManualClock, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "BUCKETS_AT_ONCE", 2)
    for limit in (Limit(name="slow", by="tenant", rate=0.001), Limit(name="quick", by="tenant", rate=1)):
        await store.put(limit)
    await store.enqueue([a_task(queue="q", tenant=f"t{number}") for number in range(5)])
    worker = await worker_on(store)
    await worker.claim(5, "q")
    kept = []
    for seconds in (0.5, 0.5, 600):
        clock.advance(timedelta(seconds=seconds))
        await store.prune(Retention(), limit=10)
        kept += peek("SELECT count(*) FROM windlass_bucket")
    await store.remove(Limit, "slow")
    await store.prune(Retention(), limit=10)
    kept += peek("SELECT count(*) FROM windlass_bucket")

    clock.advance(keeping.KEPT_AFTER_LIMIT)
    await store.prune(Retention(), limit=10)

    assert [*kept, *peek("SELECT count(*) FROM windlass_bucket")] == [(10,), (5,), (5,), (5,), (0,)]


# -- who is woken ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [ONE, replace(RATE, burst=1)], ids=lambda one: one.name)
async def test_a_claim_that_gets_nothing_writes_nothing(
    store: SQLiteStore, path: Path, clock: ManualClock, limit: Limit
) -> None:
    """Else every look of those that wait would let all the others look again."""
    await store.put(limit)
    await store.enqueue(some_tasks(3, queue="q"))
    worker = await worker_on(store)
    await worker.claim(1, "q")
    with closing(sqlite3.connect(path)) as connection:
        before = connection.execute("PRAGMA data_version").fetchone()
        clock.advance(timedelta(milliseconds=1))

        assert await worker.claim(1, "q") == []

        assert connection.execute("PRAGMA data_version").fetchone() == before


async def test_who_takes_again_what_he_gives_back_wakes_nobody(store: SQLiteStore, path: Path) -> None:
    await store.put(ONE)
    await store.enqueue(some_tasks(2, queue="q"))
    worker = await worker_on(store)
    claimed = await worker.claim(1, "q")
    told: list[bool] = []
    with closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        while claimed:
            tx = Transaction(connection, store.clock.now())
            settlements = [complete(one) for one in claimed]
            claimed = leases.settle(
                tx, settlements, worker.next_claim(1, "q"), LaneRotation(lambda: 0.5)
            ).claimed
            told.append(tx.wakes.affects_all_queues)
        connection.execute("ROLLBACK")

    assert told == [False, True]


async def test_a_permit_given_back_wakes_another_process_at_once(
    store: SQLiteStore, path: Path, python
) -> None:
    await store.put(ONE)
    await store.enqueue(some_tasks(2, queue="q"))
    worker = await worker_on(store)
    claimed = await worker.claim(1, "q")
    process = python(LISTEN, path)
    assert await line_of(process) == "here"
    folder = path.with_name("windlass.db-wakes")
    await until(lambda: folder.exists() and any(not one.name.startswith(".") for one in folder.iterdir()))

    await settle_now(store, *map(complete, claimed))

    assert await line_of(process) == Wake.READY


async def test_time_that_nobody_waits_for_any_more_wakes_nobody(store: SQLiteStore) -> None:
    """The timer goes with its listener, and of two the first counts."""
    await store.put(replace(RATE, rate=0.01, burst=1))
    await store.enqueue(some_tasks(3, queue="q"))
    worker = await worker_on(store)
    await worker.claim(1, "q")
    listening = store.wakes(["q"])
    waking = asyncio.ensure_future(anext(listening))
    assert await waking is Wake.READY  # the first look
    waking = asyncio.ensure_future(anext(listening))

    (listener,) = store._wake_hub.listeners  # Nothing else shows a timer.
    timers = []
    for _ in range(3):
        await worker.claim(5, "q")
        await until(lambda: listener._later._handle is not None)
        timers.append(listener._later._handle)
    waking.cancel()
    await asyncio.gather(waking, return_exceptions=True)
    await listening.aclose()

    assert timers[0] is timers[2]
    assert timers[0].cancelled()


# -- several processes -------------------------------------------------------------------------------

LISTEN = """
import asyncio, sys
from windlass._stores.sqlite import SQLiteStore
from windlass._stores.sqlite.read.find import Reader
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    Reader.poll = lambda reader, queues, seen: seen  # So that only the hint can do it.
    print("here", flush=True)
    async for wake in store.wakes(["q"]):
        print(wake, flush=True)
asyncio.run(main())
"""

WORK = """
import asyncio, json, os, sys
from datetime import timedelta
from windlass._model.filter import Filter
from windlass._model.state import State
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.conformance.steps import complete, worker_on
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(sign, task):
    os.write(log, f"{sign} {json.loads(task.payload)['account']} {task.id}\\n".encode())
async def main():
    store = SQLiteStore(sys.argv[1])
    worker = await worker_on(store, lease_for=timedelta(hours=1))
    print(worker.session, flush=True)
    async for _ in store.wakes(["q"]):
        claimed = list(await worker.claim(5, "q"))
        for one in claimed:
            note("+", one.task)
        while claimed:
            one = claimed.pop(0)
            note("-", one.task)
            more = (await store.settle([complete(one)], worker.next_claim(5 - len(claimed), "q"))).claimed
            for one in more:
                note("+", one.task)
            claimed += more
asyncio.run(main())
"""

CAPS = {f"a{number}": number % 3 + 1 for number in range(6)}


@pytest.mark.system
async def test_no_cap_is_exceeded_whoever_is_killed(path: Path, tmp_path: Path, python) -> None:
    """By what the processes wrote down themselves: what started and has not ended."""
    store = SQLiteStore(path)
    log = tmp_path / "log"
    log.touch()
    await store.put(Limit(name="account", by="account", running=3))
    for account, cap in CAPS.items():
        await store.put(Limit(name=account, type=f"post.{account}", running=cap))
    await store.enqueue(
        [
            a_task(queue="q", type=f"post.{account}", payload=json.dumps({"account": account}).encode())
            for _ in range(40)
            for account in CAPS
        ]
    )
    # However slow the machine is: sessions end here because they are removed, not because time has passed.
    rescuer = await worker_on(store, lease_for=timedelta(hours=1))
    processes = [python(WORK, path, log) for _ in range(3)]
    sessions = [await line_of(process) for process in processes]

    for number in range(2):  # One after the other is killed, and another takes its place.
        await until(lambda: len(ended(log)) >= 60 * (number + 1))  # noqa: B023 - it is called at once
        processes[number].kill()
        processes[number].wait(DEADLINE)
        await store.remove(Session, sessions[number])
        processes.append(python(WORK, path, log))
        sessions.append(await line_of(processes[-1]))
        for one in await store.rescue(rescuer.session, limit=100):
            with log.open("a") as file:
                file.write(f"- {json.loads(one.task.payload)['account']} {one.task.id}\n")
            await settle_now(store, release(one))
    await until(lambda: len(ended(log)) == 40 * len(CAPS))

    highest = most_at_once(log.read_text().splitlines())
    assert all(highest[account] <= cap for account, cap in CAPS.items()), highest
    assert any(highest[account] == cap > 1 for account, cap in CAPS.items()), highest
    await store.close()


def ended(log: Path) -> set[str]:
    """The tasks that have come to an end."""
    return {line.split()[2] for line in log.read_text().splitlines() if line.startswith("-")}


async def until(happened: Callable[[], bool]) -> None:
    """Wait for something outside of this process's control, with a deadline."""
    async with asyncio.timeout(DEADLINE):
        while not happened():  # noqa: ASYNC110 - no event tells of another process's files
            await asyncio.sleep(0)


def most_at_once(lines: list[str]) -> dict[str, int]:
    """How many of each account ran at once at most. Who was killed may have ended one without saying so."""
    running: dict[str, set[str]] = {}
    highest: Counter[str] = Counter()
    for line in lines:
        sign, account, task = line.split()
        if sign == "+":
            running.setdefault(account, set()).add(task)
        else:
            running.get(account, set()).discard(task)
        highest[account] = max(highest[account], len(running.get(account, ())))
    return dict(highest)
