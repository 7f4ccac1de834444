"""Waiting for tasks to end: one question for all who wait, prompt, and nothing is left behind."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

from tests.loops.workers import drained, eventually, pause, watched, working
from windlass import App, NotFinished, NotFound, Retention, State, StoreUnavailable
from windlass._client.tasks import waiter
from windlass._model.filter import By, CancelTasks, Filter
from windlass._model.task import TaskId
from windlass._observe.events import Event, EventName
from windlass._store.forward import ForwardingStore
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, Hold

LONG = 30.0
ANN = By(who="ann")


async def note() -> str:
    return "done"


async def enqueued(app: App, number: int = 1) -> list[TaskId]:
    return [(await app.client.send("note")).id for _ in range(number)]


async def end_elsewhere(store: Store, *ids: TaskId) -> None:
    """End tasks by another handle, as another process would."""
    await store.another().apply(CancelTasks(by=ANN), Filter(ids=ids), len(ids))


def waits_for(app: App, *ids: TaskId, timeout: float | None = LONG) -> list[asyncio.Task[State]]:
    async def wait(task_id: TaskId) -> State:
        return (await (await app.client.get(task_id)).wait(timeout)).state

    return [asyncio.create_task(wait(task_id)) for task_id in ids]


async def all_wait(app: App, number: int) -> None:
    await eventually(lambda: sum(len(one._waits) for one in of(app).loops.values()) == number)


def of(app: App) -> waiter.Waiter:
    return waiter._waiter_of(app.store)


def is_between_rounds(app: App) -> bool:
    return all(one._round is None for one in of(app).loops.values())


def is_idle(app: App, before: set[asyncio.Task[object]]) -> bool:
    return not of(app).loops and asyncio.all_tasks() <= before


@pytest.fixture
def only_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask nothing by itself."""
    monkeypatch.setattr(waiter, "FIRST_PAUSE", 3600.0)
    monkeypatch.setattr(waiter, "LAST_PAUSE", 3600.0)


class Asked(ForwardingStore):
    """A store that notes which tasks it was asked for, and when."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[tuple[float, Sequence[TaskId]]] = []

    def another(self) -> Store:
        return self.inner.another()

    async def ended(self, ids: Sequence[TaskId]) -> Sequence[TaskId]:
        self.asked.append((monotonic(), ids))
        return await self.inner.ended(ids)


# -- one question for all --------------------------------------------------------------------------------


async def test_many_who_wait_cost_one_question_and_one_read_for_each_fifty_that_ended() -> None:
    inner = MemoryStore()
    app, watch = watched(inner)
    ids = await enqueued(app, 200)
    waiting = waits_for(app, *ids)
    await all_wait(app, 200)
    reads, began, asked = watch.calls["find"], monotonic(), watch.calls["ended"]
    await eventually(lambda: watch.calls["ended"] >= asked + 15)

    assert monotonic() - began > 0.9 * 14 * waiter._LONGEST_GAP
    assert watch.calls["find"] == reads
    await end_elsewhere(inner, *ids)
    assert set(await asyncio.gather(*waiting)) == {State.CANCELLED}
    assert watch.calls["find"] == reads + 4


async def test_those_who_return_together_read_the_published_types_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, watch = watched()
    (made,) = await enqueued(app)
    handle = await app.client.get(made)
    monkeypatch.setattr(app.client.types, "_fresh_until", 0.001)
    watch.then("records", Fault.BEFORE)
    read = watch.calls["records"]
    with pytest.raises(StoreUnavailable):
        await handle.task()

    await asyncio.gather(*(handle.task() for _ in range(20)))
    assert watch.calls["records"] == read + 2


async def test_newcomers_do_not_change_the_pauses_of_others() -> None:
    store = Asked(MemoryStore())
    app = App(store)
    ids = [old] = await enqueued(app)
    began = monotonic()
    waiting = waits_for(app, old)

    def times() -> list[float]:
        return [at for at, ids in store.asked if old in ids]

    while monotonic() < began + 0.8:
        ids += await enqueued(app)
        waiting += waits_for(app, ids[-1])
        await pause(0.005)
    await end_elsewhere(store.inner, *ids)

    await asyncio.gather(*waiting)
    assert len(store.asked) > len(times()) > 5
    for before, after in pairwise(times()):
        assert after - before > 0.5 * min((before - began) / 4, waiter.LAST_PAUSE / 2) - 0.005


async def test_two_who_wait_for_one_task_are_both_told() -> None:
    inner = MemoryStore()
    app, _ = watched(inner)
    (made,) = await enqueued(app)
    first, second, third = waits_for(app, made, made, made)
    await all_wait(app, 1)
    first.cancel()
    await end_elsewhere(inner, made)

    assert [await second, await third] == [State.CANCELLED] * 2


def test_a_lost_hint_costs_at_most_a_quarter_of_a_second() -> None:
    assert waiter.LAST_PAUSE + waiter._LONGEST_GAP < 0.25


# -- hints -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("only_hints")
async def test_a_worker_of_this_process_tells_at_once() -> None:
    app, watch = watched()
    app.task(name="note")(note)
    handle = await app.client.send("note")
    waiting = asyncio.create_task(handle.result(timeout=LONG))
    await all_wait(app, 1)
    async with working(app):
        assert await waiting == "done"

    assert watch.calls["ended"] == 0


@pytest.mark.usefixtures("only_hints")
async def test_whoever_cancels_in_this_process_tells_at_once() -> None:
    app, watch = watched()
    made = await enqueued(app, 120)
    waiting = waits_for(app, *made)
    await all_wait(app, 120)
    await app.operator.cancel(Filter(ids=tuple(made)), by=ANN)

    assert set(await asyncio.gather(*waiting)) == {State.CANCELLED}
    assert watch.calls["ended"] == 0


@pytest.mark.usefixtures("only_hints")
async def test_a_hint_that_is_wrong_ends_no_wait() -> None:
    """As that of a transaction which is rolled back."""
    app, watch = watched()
    (made,) = await enqueued(app)
    waiting = asyncio.create_task(waiter.wait_for_end(app.store, made, LONG))
    await all_wait(app, 1)
    of(app).take(Event(name=EventName.COMPLETED, task_id=made))
    await eventually(lambda: watch.calls["find"] == 1 and is_between_rounds(app))
    assert not waiting.done()
    await app.operator.cancel_one(made, by=ANN)

    ended = await waiting
    assert ended is not None
    assert ended.state is State.CANCELLED


@pytest.mark.usefixtures("only_hints")
async def test_a_hint_during_a_read_is_not_lost() -> None:
    app, watch = watched()
    first, second = await enqueued(app, 2)
    waiting = waits_for(app, first, second)
    await all_wait(app, 2)
    hold = Hold()
    watch.then("find", hold)
    await app.store.apply(CancelTasks(by=ANN), Filter(ids=(first,)), 1)
    await hold.reached()
    await app.store.apply(CancelTasks(by=ANN), Filter(ids=(second,)), 1)
    hold.let_go()

    assert await asyncio.gather(*waiting) == [State.CANCELLED] * 2


# -- nothing is left behind ------------------------------------------------------------------------------


async def test_who_gives_up_leaves_nothing_behind() -> None:
    app, watch = watched()
    ids = await enqueued(app, 20)
    before = asyncio.all_tasks()
    waiting = waits_for(app, *ids)
    await all_wait(app, 20)
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    await eventually(lambda: is_idle(app, before))
    asked = watch.calls["ended"]
    await pause(0.1)

    assert watch.calls["ended"] == asked


async def test_who_gives_up_during_a_question_leaves_nothing_behind() -> None:
    app, watch = watched()
    (made,) = await enqueued(app)
    before = asyncio.all_tasks()
    hold = Hold()
    watch.then("ended", hold)
    (waiting,) = waits_for(app, made)
    await hold.reached()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not of(app).loops
    hold.let_go()

    await eventually(lambda: is_idle(app, before))


async def test_a_wait_in_time_leaves_nothing_behind() -> None:
    app, _ = watched()
    (made,) = await enqueued(app)
    before = asyncio.all_tasks()
    with pytest.raises(NotFinished, match=r"is still ready after 0\.05 s; .*check that a worker serves"):
        await (await app.client.get(made)).wait(0.05)

    await eventually(lambda: is_idle(app, before))


async def test_a_task_whose_record_is_deleted_meanwhile_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiter, "FIRST_PAUSE", 0.2)
    inner = MemoryStore()
    app, _ = watched(inner)
    (made,) = await enqueued(app)
    (waiting,) = waits_for(app, made, timeout=None)
    await all_wait(app, 1)
    await end_elsewhere(inner, made)
    now = timedelta(0)
    await inner.prune(Retention(completed=now, dead=now, cancelled=now), 10)

    with pytest.raises(NotFound):
        await waiting


# -- loops, threads and processes ------------------------------------------------------------------------


async def test_every_event_loop_is_told(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/windlass.db")
    app.task(name="note")(note)
    ids = await enqueued(app, 3)

    async def wait(task_id: TaskId) -> object:
        return await (await app.client.get(task_id)).result(timeout=LONG)

    threads = [asyncio.to_thread(asyncio.run, wait(task_id)) for task_id in ids]
    blocking = [asyncio.to_thread(app.sync_client.get(task_id).result, timeout=LONG) for task_id in ids]
    waiting = asyncio.gather(*threads, *blocking, *map(wait, ids))
    await eventually(lambda: len(of(app).loops) == 5)
    await drained(app)

    assert await waiting == ["done"] * 9
    await eventually(lambda: not of(app).loops)
    await app.close()


@pytest.fixture
def waiting_thread(tmp_path: Path) -> Iterator[tuple[App, TaskId, list[State]]]:
    """An app, and a thread that waits for a task of it; the state that it saw."""
    app = App(f"sqlite:///{tmp_path}/windlass.db")
    handle = app.sync_client.send("note")
    seen: list[State] = []
    thread = threading.Thread(target=lambda: seen.append(handle.wait(LONG).state))
    thread.start()
    yield app, handle.id, seen
    thread.join(LONG)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_waits_by_itself(waiting_thread: tuple[App, TaskId, list[State]]) -> None:
    app, task_id, seen = waiting_thread
    asyncio.run(all_wait(app, 1))
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child's coverage is not collected
        signal.alarm(20)  # a child that hangs is not left behind
        try:
            os._exit(_end_in_child(app, task_id))
        except BaseException:  # noqa: BLE001 - a forked child of pytest must never go on
            os._exit(99)

    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    asyncio.run(eventually(lambda: seen == [State.CANCELLED]))


def _end_in_child(app: App, task_id: TaskId) -> int:
    """Wait for one task that this child ends, and for that which the parent waits for."""
    own = app.sync_client.send("note")
    threads = [
        threading.Thread(target=app.sync_client.get(one).wait, args=(LONG,)) for one in (own.id, task_id)
    ]
    for thread in threads:
        thread.start()
    app.sync_operator.cancel_one(own.id, by=ANN)
    app.sync_operator.cancel_one(task_id, by=ANN)
    for thread in threads:
        thread.join(10)
    return sum(thread.is_alive() for thread in threads) + len(of(app).loops)


# -- outages ---------------------------------------------------------------------------------------------


async def test_a_wait_outlives_an_outage() -> None:
    app, watch = watched()
    (made,) = await enqueued(app)
    (waiting,) = waits_for(app, made)
    watch.down.add("ended")
    await eventually(lambda: watch.calls["ended"] > 3)
    await app.operator.cancel_one(made, by=ANN)
    watch.down.clear()

    assert await waiting is State.CANCELLED


async def test_an_outage_that_lasts_is_raised_to_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiter, "OUTAGE_SECONDS", 0.02)
    app, watch = watched()
    waiting = waits_for(app, *await enqueued(app, 3))
    await all_wait(app, 3)
    watch.down.add("ended")

    for one in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(one, StoreUnavailable)
    assert not of(app).loops


async def test_another_error_is_raised_at_once() -> None:
    class Broken(Asked):
        async def ended(self, ids: Sequence[TaskId]) -> Sequence[TaskId]:
            raise ValueError("a bug in the store")

    app = App(Broken(MemoryStore()))
    (made,) = await enqueued(app)

    with pytest.raises(ValueError, match="a bug in the store"):
        await (await app.client.get(made)).wait(LONG)


def test_a_program_that_ends_while_it_waits_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory://")

    async def run() -> None:
        (made,) = await enqueued(app)
        waits_for(app, made)
        await all_wait(app, 1)

    asyncio.run(run())

    assert caplog.text == ""
    assert not of(app).loops
