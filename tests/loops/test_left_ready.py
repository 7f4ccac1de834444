"""What a worker that has drained leaves: it says so, with the reasons."""

import logging
from datetime import timedelta

import pytest

from tests.loops.workers import drained, settings, working
from windlass import App, WorkerSettings
from windlass._client.tasks.left_ready import left_ready
from windlass._model.record import Worker
from windlass._stores.memory import MemoryStore
from windlass._worker.process import run_to_end, warn_of_left

DAY = timedelta(days=1)


@pytest.fixture
def app() -> App:
    made = App(MemoryStore())

    @made.task(name="add", queue="mail")
    async def add() -> None: ...

    return made


async def left(app: App, *queues: str) -> str:
    return await left_ready(app.store, Worker(name="w", queues=queues or ("mail",), types=("add",)))


async def test_nothing_is_left_by_a_worker_that_can_run_all(app: App) -> None:
    await app.client.send("add")
    await app.client.send("add", delay=DAY)  # nothing that a worker could run now
    await drained(app)

    assert await left(app) == ""


async def test_each_reason_is_named_with_its_number(app: App) -> None:
    operator, send = app.operator, app.client.send
    for queue, number in (("other", 3), ("paused", 2), ("closed", 1), ("limited", 1), ("mail", 1)):
        for _ in range(number):
            await send("add", queue=queue)
    await send("sub", queue="mail")
    await operator.pause("paused")
    hour = (await operator.now() + timedelta(hours=3)).hour
    await operator.set_queue("closed", windows=f"{hour:02}:00-{hour:02}:30 UTC")
    await operator.limits.set("gate", create=True, queue="limited", running=0)

    told = await left(app, "mail", "paused", "closed", "limited")

    assert told == (
        "9 tasks left: 3 in queue other, which it does not serve; 2 in queue paused, which is paused; "
        "1 in queue closed, which is closed by its windows; 1 in queue limited, held back by limit gate; "
        "1 in queue mail, which became ready meanwhile; and for 1 other reason"
    )


async def test_tasks_that_were_handed_back_are_left_too(app: App) -> None:
    await app.client.send("sub", queue="mail")
    await app.client.send("sub", queue="mail", delay=DAY)
    await drained(app)

    assert await left(app) == "1 task left: 1 of type sub in queue mail, for which it has no handler"


async def test_what_another_live_worker_runs_is_not_left(app: App) -> None:
    await app.client.send("add", queue="other")
    other = App(app.store.another())

    @other.task(name="add", queue="other")
    async def add() -> None: ...

    await other.operator.pause("other")
    async with working(other):
        assert await left(app) == ""
    assert await left(app) == "1 task left: 1 in queue other, which it does not serve"


async def test_a_worker_that_drains_warns_once_and_one_that_is_stopped_does_not(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    await app.client.send("add", queue="other")

    await run_to_end(app.worker(settings(drain=True)), app.store)
    stopped = app.worker(settings(drain=True))
    stopped.stop()
    assert not await warn_of_left(stopped, app.store)
    assert not await warn_of_left(app.worker(WorkerSettings()), app.store)

    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert line == "worker alice has drained: 1 task left: 1 in queue other, which it does not serve"
