"""Events of steps that follow from others, of many tasks at once, and of the caller's own transaction."""

import logging
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.loops.workers import drained
from tests.observe.test_observe import events, names
from windlass import App, Context, Filter, Retention
from windlass._model.filter import By
from windlass._observe.metrics import Metrics
from windlass.testing.conformance.steps import a_task, complete, release, stop, worker_on

BY = By(who="ann", why="not needed")


@pytest.fixture(autouse=True)
def _all_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="windlass")


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    app = App("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/windlass.db")
    await app.store.open()
    yield app
    await app.close()


@pytest.fixture
async def on_sqlite(tmp_path: Path) -> AsyncIterator[App]:
    app = App(f"sqlite:///{tmp_path}/windlass.db")
    await app.store.open()
    yield app
    await app.close()


def one_event(caplog: pytest.LogCaptureFixture, name: str, task_id: str | None = None) -> Any:
    (found,) = [
        one
        for one in events(caplog)
        if one.event == name and task_id in (None, getattr(one, "task_id", None))
    ]
    return found


async def test_successors_of_a_cancelled_task_are_told(app: App, caplog: pytest.LogCaptureFixture) -> None:
    first = a_task()
    second = a_task(after=(first.id,), queue="next", tenant="acme")
    third = a_task(after=(second.id,))
    await app.store.enqueue([first, second, third])

    await app.operator.cancel_one(first.id, by=BY)

    assert names(caplog, first.id) == ["enqueued", "cancelled"]
    for new in (second, third):
        told = one_event(caplog, "cancelled", new.id)
        assert (told.by, told.queue, told.error_type) == ("ann", new.queue, "Cancelled")
    assert (
        f"task {first.id}, which it waited for, was cancelled"
        in one_event(caplog, "cancelled", second.id).error_message
    )


async def test_successors_of_a_stopped_run_are_told(app: App, caplog: pytest.LogCaptureFixture) -> None:
    worker = await worker_on(app.store)
    first = a_task()
    waiting = a_task(after=(first.id,))
    await app.store.enqueue([first, waiting])

    await app.store.settle([stop(await worker.claim_one())])

    assert names(caplog, waiting.id) == ["enqueued", "cancelled"]


async def test_an_unblocked_task_is_told(app: App, caplog: pytest.LogCaptureFixture) -> None:
    worker = await worker_on(app.store)
    first = a_task()
    second = a_task(after=(first.id,))
    await app.store.enqueue([first, second])

    await app.store.settle([complete(await worker.claim_one())])

    assert names(caplog, second.id) == ["enqueued", "unblocked"]


async def test_a_task_behind_a_cancelled_one_is_told_as_enqueued_and_cancelled(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_on(app.store)
    await app.store.enqueue([a_task()])
    gone = await worker.claim_one()
    await app.store.settle([stop(gone)])

    doomed = a_task(after=(gone.task.id,))
    await app.store.enqueue([doomed])

    assert names(caplog, doomed.id) == ["enqueued", "cancelled"]


async def test_a_released_task_that_was_asked_to_stop_is_told_as_cancelled(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_on(app.store)
    await app.store.enqueue([a_task()])
    held = await worker.claim_one()
    await app.operator.cancel_one(held.task.id, by=BY)

    await app.store.settle([release(held)])

    assert names(caplog, held.task.id) == ["enqueued", "claimed", "cancelled"]


async def test_a_prune_is_one_event_for_each_queue_and_state(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    await app.store.enqueue([a_task(queue="mail"), a_task(queue="mail"), a_task(queue="other")])
    await app.operator.cancel(Filter(), by=BY)

    await app.operator.prune(Retention(cancelled=timedelta(0)))

    told = {one.queue: one for one in events(caplog) if one.event == "pruned"}
    assert {queue: (one.number, one.state) for queue, one in told.items()} == {
        "mail": (2, "cancelled"),
        "other": (1, "cancelled"),
    }
    assert told["mail"].getMessage() == "pruned 2 cancelled tasks of queue mail"


async def test_a_promotion_is_told_with_its_number(app: App, caplog: pytest.LogCaptureFixture) -> None:
    await app.store.enqueue([a_task(delay=timedelta(microseconds=1)), a_task()])
    while not (await app.store.promote(10)).number:
        continue

    assert one_event(caplog, "promoted").number == 1


async def test_the_enqueued_event_tells_by_whom_and_with_which_key(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def note() -> None: ...

    handle = await note.using(idempotency_key="order-7").aenqueue()
    task = await handle.task()

    told = one_event(caplog, "enqueued")
    assert (told.by, told.idempotency_key) == (task.enqueued_by, "order-7")
    assert told.by
    assert not hasattr(told, "joined")


async def test_an_enqueue_in_the_callers_transaction_is_told_as_joined(
    on_sqlite: App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = on_sqlite

    @app.task
    async def note() -> None: ...

    connection = sqlite3.connect(tmp_path / "windlass.db")
    connection.execute("BEGIN IMMEDIATE")
    handle = note.using(within=connection).enqueue()
    connection.commit()
    connection.close()

    told = one_event(caplog, "enqueued", handle.id)
    assert told.joined is True


async def test_steps_of_a_handlers_transaction_are_told_once_it_has_committed(
    on_sqlite: App, caplog: pytest.LogCaptureFixture
) -> None:
    app = on_sqlite

    @app.task
    async def writing(*, ctx: Context) -> None:
        async with ctx.transaction():
            pass

    handle = await writing.aenqueue()  # type: ignore[call-arg]
    waiting = a_task(after=(handle.id,), queue="idle")
    await app.store.enqueue([waiting])
    await drained(app)

    assert names(caplog, waiting.id) == ["enqueued", "unblocked"]
    assert not hasattr(one_event(caplog, "unblocked"), "joined")


async def test_metrics_count_what_follows(app: App) -> None:
    metrics = Metrics(app.store)
    first = a_task(queue="mail")
    await app.store.enqueue([first, a_task(after=(first.id,), queue="mail")])
    await app.operator.cancel_one(first.id, by=BY)
    await app.operator.prune(Retention(cancelled=timedelta(0)))

    text = (await metrics.exposition())[0].decode()
    assert 'windlass_tasks_ended_total{queue="mail",state="cancelled",type="mail.send"} 2.0' in text
    assert 'windlass_tasks_pruned_total{queue="mail",state="cancelled"} 2.0' in text
