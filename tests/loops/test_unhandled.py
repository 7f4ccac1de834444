"""The keeper counts how long tasks wait that no live worker has a handler for, and buries them in the end."""

from datetime import timedelta

import pytest

from tests.loops.workers import drained
from windlass import App, State
from windlass._ids import new_id
from windlass._keeper import keeper as keeper_module
from windlass._keeper import unhandled as unhandled_module
from windlass._keeper.unhandled import UnhandledTasks
from windlass._model.filter import Filter, Page
from windlass._model.lease import Heartbeat
from windlass._model.record import Session, Worker
from windlass._model.task import Task
from windlass._policy.verdict import UNHANDLED_FOR, UNHANDLED_GAP
from windlass._stores.memory import MemoryStore
from windlass.errors import StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task, some_tasks
from windlass.testing.faults import Fault, FaultyStore

LEASE = timedelta(days=30)
EVERY = timedelta(seconds=keeper_module._UNHANDLED_EVERY)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def chore(store: MemoryStore) -> UnhandledTasks:
    return UnhandledTasks(store, "k", timedelta(seconds=30))


async def serve(store: MemoryStore, *types: str, queue: str = "default", known: bool = True) -> str:
    """A live worker with handlers for these types; one that does not say which unless they are known."""
    session = new_id()
    worker = Worker(name="w", queues=(queue,), types=types if known else None)
    await store.heartbeat(Heartbeat(session=session, worker=worker, lease_for=LEASE, opening=True))
    return session


async def all_tasks(store: MemoryStore) -> list[Task]:
    return [*(await store.find(Filter(), Page(limit=1000))).items]


async def promote(store: MemoryStore, clock: ManualClock, by: timedelta) -> None:
    clock.advance(by.total_seconds())
    await store.promote(10_000)


async def test_it_says_since_when_and_buries_after_a_day(
    store: MemoryStore, clock: ManualClock, chore: UnhandledTasks
) -> None:
    await store.enqueue([a_task(type="gone"), a_task(type="known")])
    await serve(store, "known")
    began = clock.now()

    await chore.turn()
    gone, known = await all_tasks(store)
    assert (gone.state, gone.attempt, gone.unhandled_since) == (State.SCHEDULED, 0, began)
    assert gone.error is not None
    assert gone.error.message == f"no worker has had a handler since {began:%Y-%m-%dT%H:%M:%SZ}"
    assert (known.state, known.fence) == (State.READY, 0)

    while clock.now() < began + UNHANDLED_FOR - EVERY:
        await promote(store, clock, EVERY)
        await chore.turn()
    assert (await all_tasks(store))[0].state is State.SCHEDULED
    for _ in range(2):
        await promote(store, clock, EVERY)
        await chore.turn()

    gone, known = await all_tasks(store)
    assert gone.state is State.DEAD
    assert gone.error is not None
    assert gone.error.type == "UnknownTaskType"
    assert (known.state, known.fence) == (State.READY, 0)


def test_it_looks_again_before_the_count_starts_anew() -> None:
    assert 2 * EVERY < UNHANDLED_GAP


async def test_all_of_very_many_tasks_are_counted(
    store: MemoryStore, chore: UnhandledTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unhandled_module, "UNHANDLED_BATCH", 10)
    await store.enqueue([*some_tasks(95, type="gone"), *some_tasks(5, type="lost", queue="other")])
    await serve(store)
    await serve(store, queue="other")

    await chore.turn()

    assert {task.state for task in await all_tasks(store)} == {State.SCHEDULED}


@pytest.mark.parametrize("case", ["handled", "worker does not say", "no worker", "only a keeper"])
async def test_what_a_worker_may_run_or_nobody_serves_is_left_alone(
    store: MemoryStore, chore: UnhandledTasks, case: str
) -> None:
    await store.enqueue([a_task(type="mail")])
    if case == "handled":
        await serve(store, "other")
        await serve(store, "mail")
    elif case == "worker does not say":
        await serve(store, known=False)
    elif case == "only a keeper":
        worker = Worker(name="keeper", keeper=True)
        beat = Heartbeat(session=new_id(), worker=worker, lease_for=LEASE, opening=True)
        await store.heartbeat(beat)
    before = await all_tasks(store)

    await chore.turn()

    assert await all_tasks(store) == before


async def test_a_worker_with_a_handler_in_another_queue_does_not_count(
    store: MemoryStore, chore: UnhandledTasks
) -> None:
    await store.enqueue([a_task(type="mail")])
    await serve(store, "mail", queue="elsewhere")
    await serve(store, "other")

    await chore.turn()

    assert [task.state for task in await all_tasks(store)] == [State.SCHEDULED]


async def test_a_worker_that_meets_the_task_does_not_start_the_count_anew(
    store: MemoryStore, clock: ManualClock, chore: UnhandledTasks
) -> None:
    app = App(store)

    @app.task(name="known")
    async def known() -> None: ...

    await store.enqueue([a_task(type="gone")])
    session = await serve(store, "known")
    began = clock.now()
    await chore.turn()
    await promote(store, clock, EVERY)
    await drained(app)
    (met,) = await all_tasks(store)
    assert (met.state, met.unhandled_since) == (State.READY, began)

    await chore.turn()

    assert (await all_tasks(store))[0].unhandled_since == began
    assert await store.remove(Session, session)


async def test_what_it_cannot_settle_is_handed_back_uncounted(store: MemoryStore) -> None:
    await store.enqueue([a_task(type="gone")])
    await serve(store)
    faulty = FaultyStore(store, lambda verb: Fault.BEFORE if verb == "settle" else None)

    with pytest.raises(StoreUnavailable):
        await UnhandledTasks(faulty, "k", timedelta(seconds=30)).turn()

    (task,) = await all_tasks(store)
    assert (task.state, task.attempt, task.session) == (State.READY, 0, None)
    assert len((await store.records(Session, Page(limit=10))).items) == 1


async def test_its_session_ends_with_the_turn(store: MemoryStore, chore: UnhandledTasks) -> None:
    await store.enqueue([a_task(type="gone")])
    session = await serve(store)

    await chore.turn()

    assert [one.id for one in (await store.records(Session, Page(limit=10))).items] == [session]
