"""The memory store alone: what it keeps when nothing is left to keep."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from windlass._model.limit import Limit
from windlass._model.record import Session
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    LEASE,
    enqueue_and_claim,
    release,
    settle_now,
    some_tasks,
    worker_on,
)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


async def test_nothing_stays_of_sessions_that_came_and_went(store: MemoryStore, clock: ManualClock) -> None:
    for removed in (True, False):
        worker = await worker_on(store)
        assert await worker.claim(5) == []
        await worker.beat(through=worker.claims)
        await settle_now(store, release(await enqueue_and_claim(store, worker)))
        if removed:
            assert await store.remove(Session, worker.session)
        clock.advance(LEASE)

    keeper = await worker_on(store)
    assert await store.rescue(keeper.session, limit=10) == []

    assert store._tables.held == {}
    assert list(store._tables.sessions) == [keeper.session]


async def test_what_a_removed_session_held_moves_to_its_rescuer_alone(store: MemoryStore) -> None:
    worker, keeper = await worker_on(store), await worker_on(store)
    claimed = await enqueue_and_claim(store, worker)
    await store.remove(Session, worker.session)

    (rescued,) = await store.rescue(keeper.session, limit=10)

    assert rescued.task.id == claimed.task.id
    assert list(store._tables.held) == [keeper.session]


async def test_claims_that_a_rate_holds_up_share_one_timer(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(Limit(name="r", queue="q", rate=0.001, burst=1))
    await store.enqueue(some_tasks(5, queue="q"))
    worker = await worker_on(store)
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_at = loop.call_at

    def counted(*args: Any, **rest: Any) -> asyncio.TimerHandle:
        timers.append(call_at(*args, **rest))
        return timers[-1]

    monkeypatch.setattr(loop, "call_at", counted)

    numbers = [len(await worker.claim(1, "q")) for _ in range(50)]

    assert (sum(numbers), len(timers)) == (1, 1)


PROGRAM = """
import os, sys
from windlass import App, WorkerSettings

app, other = App("memory://"), App("memory://")

@app.task
def add(a: int) -> None: ...

for n in range(3):
    add.enqueue(n)
if "delay" in sys.argv:
    add.using(delay="1h").enqueue(3)
if "work" in sys.argv:
    app.run_worker(WorkerSettings(drain=True, keeper=False))
if "fork" in sys.argv and os.fork() == 0:
    sys.exit()  # it has a copy of the tasks, and loses none
if "fork" in sys.argv:
    os.wait()
if "test" in sys.argv:
    from windlass.testing.harness import harness
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("does", "lost"),
    [
        ("", "lost 3 tasks"),
        ("delay", "lost 4 tasks"),
        ("work", ""),
        ("work delay", "lost 1 task "),
        ("fork", "lost 3 tasks"),
        ("test", ""),
    ],
)
def test_a_program_is_told_at_its_end_what_it_loses(does: str, lost: str) -> None:
    command = [sys.executable, "-c", PROGRAM, *does.split()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    told = [line for line in ran.stderr.splitlines() if "memory://" in line]
    assert [line[: len(lost)] for line in told] == ([lost] if lost else [])
    assert all("sqlite:///windlass.db" in line for line in told)
