"""A worker that idles, drains or claims ahead: few calls to the store, and no task it has no room for."""

import asyncio
from time import monotonic, perf_counter

import pytest

from tests.loops.workers import assert_nothing_held, drained, eventually, pause, tasks, watched, working
from windlass import App, Snooze, State, chain


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_draining_runs_what_is_ready_and_what_follows_from_it_and_ends(app: App) -> None:
    ran: list[str] = []

    @app.task
    async def step(name: str) -> None:
        ran.append(name)
        if name == "c":
            await step.aenqueue("d")

    await app.client.enqueue(chain(step.step("a"), step.step("b"), step.step("c")))
    later = await step.using(delay=60).aenqueue("later")
    worker = await drained(app, slots=1)

    assert ran == ["a", "b", "c", "d"]
    assert worker.ran == 4
    assert await later.state() is State.SCHEDULED
    await assert_nothing_held(app)


async def test_draining_nothing_ends_at_once(app: App) -> None:
    began = monotonic()
    worker = await drained(app, poll=30)

    assert worker.ran == 0
    assert monotonic() - began < 10


async def test_draining_does_not_wait_for_a_snooze(app: App) -> None:
    @app.task
    async def sleepy() -> None:
        raise Snooze(60)

    handle = await sleepy.aenqueue()
    await drained(app)

    assert await handle.state() is State.SCHEDULED


async def test_draining_many_with_few_slots_leaves_none(app: App) -> None:
    @app.task
    async def quick() -> None: ...

    @app.task
    def in_thread() -> None: ...

    await quick.aenqueue_many([{} for _ in range(3000)])
    await in_thread.aenqueue_many([{} for _ in range(300)])
    worker = await drained(app, slots=3)

    assert worker.ran == 3300
    (count,) = await app.operator.count()
    assert count.number == 3300
    assert await tasks(app, State.READY, State.RUNNING) == []


async def test_a_worker_whose_tasks_take_long_claims_no_more_than_it_has_room_for(app: App) -> None:
    gate = asyncio.Event()

    @app.task
    async def slow() -> None:
        await gate.wait()

    await slow.aenqueue_many([{} for _ in range(10)])
    async with working(app, slots=2, heartbeat=1.5):
        await eventually(lambda: _running(app, 2))
        await pause(0.1)
        assert len(await tasks(app, State.RUNNING)) == 2  # from the very first claim on
        gate.set()


async def test_a_worker_whose_tasks_are_quick_claims_ahead(app: App) -> None:
    @app.task
    async def quick() -> None: ...

    gate, entered = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> None:
        entered.set()
        await gate.wait()

    async with working(app, slots=2, heartbeat=1.5) as worker:
        await quick.aenqueue_many([{} for _ in range(100)])
        await eventually(lambda: worker.ran == 100)
        await slow.aenqueue_many([{} for _ in range(10)])
        await asyncio.wait_for(entered.wait(), 5)

        assert len(await tasks(app, State.RUNNING)) == 4  # two run, two wait here
        gate.set()


async def test_what_was_claimed_ahead_does_not_wait_behind_a_long_run(app: App) -> None:
    """The quick task must go back to where another worker can take it."""
    gate, entered = asyncio.Event(), asyncio.Event()
    ran_by: list[str] = []

    @app.task
    async def quick() -> None: ...

    @app.task
    async def slow() -> None:
        entered.set()
        await gate.wait()

    async with working(app, slots=1, name="alice", heartbeat=0.1) as alice:
        await quick.aenqueue_many([{} for _ in range(100)])
        await eventually(lambda: alice.ran == 100)
        handles = await app.client.enqueue_many([slow.step(), quick.step()])
        await asyncio.wait_for(entered.wait(), 5)
        assert await handles[1].state() is State.RUNNING
        async with working(app, slots=1, name="bob"):
            task = await handles[1].wait(timeout=5)
            ran_by.append(task.worker or "")
        gate.set()
        await handles[0].wait(timeout=5)

    assert ran_by == ["bob"]
    assert task.attempt == 1


async def test_an_idle_worker_asks_about_once_per_poll() -> None:
    app, watch = watched()

    @app.task
    async def quick() -> None: ...

    async with working(app, poll=0.5, heartbeat=1, lease=5):
        watch.calls.clear()
        await pause(3)
        calls = dict(watch.calls)

    assert 3 <= calls["settle"] <= 9  # every 0.25 to 0.75 s
    assert calls["heartbeat"] <= 4
    assert sum(calls.values()) <= 13


async def test_an_idle_keeper_asks_a_few_times_a_second_at_most() -> None:
    app, watch = watched()

    async with working(app, poll=10, heartbeat=1, lease=30, keeper=True):
        await pause(0.1)
        watch.calls.clear()
        await pause(2)
        calls = dict(watch.calls)

    assert sum(calls.values()) <= 12, calls


async def test_a_new_task_starts_within_milliseconds(app: App, record_property: object) -> None:
    started: list[float] = []

    @app.task
    async def note() -> None:
        started.append(perf_counter())

    delays: list[float] = []
    async with working(app, poll=10):
        for n in range(100):
            await pause(0.001)
            enqueued = perf_counter()
            await note.aenqueue()
            await eventually(lambda n=n: len(started) > n)  # type: ignore[misc]
            delays.append(started[-1] - enqueued)

    delays.sort()
    record_property("median_ms", delays[50] * 1000)  # type: ignore[operator]
    assert delays[50] < 0.05


async def test_a_worker_serves_only_the_queues_it_was_given(app: App) -> None:
    @app.task(queue="mail")
    async def mail() -> None: ...

    @app.task(queue="images")
    async def image() -> None: ...

    letter, picture = await mail.aenqueue(), await image.aenqueue()
    await drained(app, queues=("mail",))

    assert (await letter.state(), await picture.state()) == (State.COMPLETED, State.READY)


async def test_higher_priority_runs_first_and_equals_in_order_of_arrival(app: App) -> None:
    ran: list[str] = []

    @app.task
    async def note(name: str) -> None:
        ran.append(name)

    for name, priority in [("a", "low"), ("b", 0), ("c", "high"), ("d", 0), ("e", "high")]:
        await note.using(priority=priority).aenqueue(name)
    await drained(app, slots=1)

    assert ran == ["c", "e", "b", "d", "a"]


async def test_a_paused_queue_gives_nothing_and_resuming_wakes_the_workers(app: App) -> None:
    @app.task(queue="mail")
    async def mail() -> None: ...

    await app.operator.pause("mail")
    async with working(app, poll=30):
        handle = await mail.aenqueue()
        await pause(0.1)
        assert await handle.state() is State.READY
        await app.operator.resume("mail")

        await handle.wait(timeout=2)


async def test_two_workers_share_the_work_and_run_nothing_twice(app: App) -> None:
    ran: list[int] = []

    @app.task
    async def note(n: int) -> None:
        ran.append(n)
        await pause(0.001)

    await note.aenqueue_many([{"n": n} for n in range(200)])
    async with working(app, name="alice") as alice, working(app, name="bob") as bob:
        await eventually(lambda: _completed(app, 200))

    assert sorted(ran) == list(range(200))
    assert alice.ran + bob.ran == 200
    assert min(alice.ran, bob.ran) > 20


async def _running(app: App, number: int) -> bool:
    return len(await tasks(app, State.RUNNING)) == number


async def _completed(app: App, number: int) -> bool:
    return len(await tasks(app, State.COMPLETED)) == number
