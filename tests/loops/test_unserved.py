"""Queues that no live worker serves: the keeper says so, once."""

import logging
from datetime import timedelta

import pytest

from windlass import App
from windlass._ids import new_id
from windlass._keeper.unserved import UnservedQueues
from windlass._model.lease import Heartbeat
from windlass._model.record import Session
from windlass._model.record import Worker as WorkerRecord
from windlass._observe.overview import read_overview
from windlass._stores.memory import MemoryStore
from windlass.testing.conformance.steps import a_task


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def serve(store: MemoryStore, *queues: str, all_queues: bool = False) -> str:
    session = new_id()
    worker = WorkerRecord(name="w", queues=queues, all_queues=all_queues)
    await store.heartbeat(
        Heartbeat(session=session, worker=worker, lease_for=timedelta(hours=1), opening=True)
    )
    return session


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_an_unserved_queue_is_warned_of_once(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.enqueue([a_task(queue="mail"), a_task(queue="mail"), a_task(queue="served")])
    await serve(store, "served")
    watch = UnservedQueues(store)

    await watch.warn()
    assert warnings(caplog) == []  # A deployment may be under way.
    for _ in range(3):
        await watch.warn()

    assert warnings(caplog) == [
        "no live worker serves queue mail, which has 2 ready tasks; start one with -q mail"
    ]


async def test_it_is_warned_of_again_after_it_was_served(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass.keeper")
    await store.enqueue([a_task(queue="mail")])
    watch = UnservedQueues(store)
    for _ in range(2):
        await watch.warn()
    session = await serve(store, "mail")
    await watch.warn()
    await store.remove(Session, session)
    for _ in range(2):
        await watch.warn()

    assert len(warnings(caplog)) == 2
    assert "queue mail is served again or has no ready tasks" in caplog.text


async def test_a_worker_for_all_queues_serves_every_queue(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.enqueue([a_task(queue="mail")])
    await serve(store, all_queues=True)
    watch = UnservedQueues(store)
    for _ in range(3):
        await watch.warn()

    assert warnings(caplog) == []


async def test_the_queue_of_a_declared_type_is_listed_while_it_is_idle(store: MemoryStore) -> None:
    app = App(store)

    @app.task(queue="idle")
    async def rest() -> None: ...

    await app.open()

    assert (await read_overview(store)).queues == ("idle",)


async def test_stripes_without_effect_are_logged(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(store)
    app.queue("mail", stripes=4)
    app.queue("other", ageing="1m")

    await app.open()

    assert warnings(caplog) == ["stripes of queue mail have no effect on this store; they are for Postgres"]
