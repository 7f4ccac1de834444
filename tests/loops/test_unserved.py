"""Queues that no live worker serves: the keeper says so, once, and so is who waits for a task told."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.loops.workers import Watch, drained, eventually, working
from windlass import App
from windlass._client.tasks import unserved
from windlass._client.tasks.unserved import why_unserved
from windlass._documents.queues import QueueView
from windlass._ids import new_id
from windlass._keeper.unserved import UnservedTasks
from windlass._model.filter import Filter, Page
from windlass._model.lease import Heartbeat
from windlass._model.queue import QueueSettings, Window
from windlass._model.record import Session
from windlass._model.record import Worker as WorkerRecord
from windlass._model.state import State
from windlass._observe.health import check_queues
from windlass._observe.overview import read_overview
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task
from windlass.testing.faults import FaultyStore
from windlass.testing.harness import harness


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def serve(
    store: MemoryStore, *queues: str, all_queues: bool = False, types: tuple[str, ...] | None = None
) -> str:
    session = new_id()
    worker = WorkerRecord(name="w", queues=queues, all_queues=all_queues, types=types)
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
    watch = UnservedTasks(store)

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
    watch = UnservedTasks(store)
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
    watch = UnservedTasks(store)
    for _ in range(3):
        await watch.warn()

    assert warnings(caplog) == []


async def test_a_type_that_no_worker_handles_is_warned_of_once_a_minute(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass.keeper")
    store = MemoryStore(clock=clock)
    await store.enqueue(
        [
            a_task(queue="mail", type="add"),
            a_task(queue="mail", type="gone"),
            a_task(queue="mail", type="gone", delay=timedelta(seconds=15)),
            a_task(queue="mail", type="tomorrow", delay=timedelta(days=1)),
        ]
    )
    await serve(store, "mail", types=("add",))
    watch = UnservedTasks(store)
    told = "no live worker of queue mail handles task type gone, which has 2 tasks; deploy its handler"

    seen = []
    for _ in range(6):
        await watch.warn()
        seen.append(len(warnings(caplog)))
        clock.advance(30)
    await serve(store, "mail", types=("gone", "tomorrow"))
    await watch.warn()

    assert seen == [0, 1, 1, 2, 2, 3]  # a deployment may be under way
    assert all(line.startswith(told) for line in warnings(caplog))
    assert "task type gone of queue mail is handled again or has no tasks" in caplog.text


async def test_one_turn_warns_of_few_types(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    await store.enqueue([a_task(queue="mail", type=f"t{number}") for number in range(50)])
    await serve(store, "mail", types=("add",))
    watch = UnservedTasks(store)

    for _ in range(2):
        await watch.warn()

    assert len(warnings(caplog)) == 20


async def test_hundreds_of_unserved_queues_are_a_few_lines_of_the_log(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass.keeper")
    await store.enqueue([a_task(queue=f"q{number:04}") for number in range(300) for _ in range(2)])
    watch = UnservedTasks(store)
    for _ in range(3):
        await watch.warn()
    warned = warnings(caplog)
    await serve(store, all_queues=True)
    await watch.warn()
    served = [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]

    assert len(warned) == 21
    assert warned[19] == "no live worker serves queue q0019, which has 2 ready tasks; start one with -q q0019"
    assert warned[20] == (
        "no live worker serves 280 more queues, which have 560 ready tasks; `windlass queues list` shows them"
    )
    assert len(served) == 21
    assert served[20] == "280 more queues are served again or have no ready tasks"


async def test_hundreds_of_types_that_are_handled_again_are_a_few_lines(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass.keeper")
    store = MemoryStore(clock=clock)
    await store.enqueue([a_task(queue="mail", type=f"t{number:02}") for number in range(50)])
    await serve(store, "mail", types=("add",))
    watch = UnservedTasks(store)
    for _ in range(4):
        await watch.warn()
    await serve(store, "mail")
    await watch.warn()
    handled = [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]

    assert len(handled) == 21
    assert handled[20] == "30 more task types are handled again or have no tasks"


async def test_a_check_names_a_few_of_hundreds_of_queues(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    await store.enqueue(
        [
            *(a_task(queue=f"q{number:04}") for number in range(500)),
            *(a_task(queue="mail", type=f"t{number:04}") for number in range(300)),
        ]
    )
    await serve(store, "mail", types=("add",))
    opens = clock.now().hour * 60 + 60
    window = Window(opens=opens % 1440, closes=(opens + 60) % 1440)
    for number in range(22):
        await store.put(QueueSettings(name=f"q{number:04}", windows=(window,)))

    findings = check_queues(await read_overview(store))

    assert len(findings) == 63
    assert findings[20].message == "no live worker serves 480 more queues (480 tasks due)"
    assert findings[41].message == "2 more queues are closed by their windows"
    assert findings[62].message == (
        "no live worker of their queue handles 280 more task types (280 pending tasks)"
    )


async def test_queues_and_types_without_a_worker_are_seen_and_checked(
    clock: ManualClock,
) -> None:
    store = MemoryStore(clock=clock)
    later = timedelta(seconds=15)
    await store.enqueue(
        [
            *(a_task(queue="mail", type=f"t{number}") for number in range(6)),
            a_task(queue="snoozed", type="gone", delay=later),
            a_task(queue="later", type="gone", delay=timedelta(days=1)),
            a_task(queue="served", type="gone"),
        ]
    )
    await serve(store, "served", types=("add",))
    clock.advance(15)

    seen = await read_overview(store)

    assert {queue: sum(types.values()) for queue, types in seen.unserved().items()} == {
        "mail": 6,
        "snoozed": 1,
    }
    document = QueueView(overview=seen, settings={}).overview_document()
    assert document.unserved == ["mail", "snoozed"]
    assert document.unhandled is not None
    assert [(one.queue, one.type, one.number) for one in document.unhandled] == [("served", "gone", 1)]
    hidden = QueueView(overview=seen, settings={}, with_workers=False).overview_document()
    assert (hidden.unserved, hidden.unhandled) == (None, None)
    assert [one.message.partition(";")[0] for one in check_queues(seen)] == [
        "no live worker serves queue mail (6 tasks due, of types t0, t1, t2, t3, t4 and 1 more)",
        "no live worker serves queue snoozed (1 task due, of type gone)",
        "no live worker of queue served handles task type gone (1 pending task)",
    ]


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


async def test_who_waits_without_a_timeout_is_told_that_no_worker_serves_the_queue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unserved, "HINT_AFTER", 0.01)
    monkeypatch.setattr(unserved, "_LOOK_AT_MOST_EVERY", 0.02)
    app = App("memory://")

    @app.task(name="add", queue="mail")
    async def add() -> int:
        return 3

    @app.task(name="other")
    async def other() -> None: ...

    handles = [await add.aenqueue() for _ in range(5)]
    waits = [asyncio.create_task(handle.result()) for handle in handles]
    await eventually(lambda: warnings(caplog))
    waits.append(asyncio.create_task((await other.aenqueue()).result()))  # type: ignore[arg-type]
    await eventually(lambda: len(warnings(caplog)) == 2)
    await drained(app)

    assert await asyncio.gather(*waits) == [3, 3, 3, 3, 3, None]
    told = [line.partition(": ")[2] for line in warnings(caplog)]
    assert told == [
        "no live worker serves queue mail (store memory://); `windlass worker APP` starts one",
        "no live worker serves queue default (store memory://); `windlass worker APP` starts one",
    ]


async def test_who_enqueues_is_told_once_that_no_worker_serves_the_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    app = App(FaultyStore(SQLiteStore(tmp_path / "windlass.db"), watch))

    @app.task(name="add", queue="mail")
    async def add() -> None: ...

    async with working(app, queues=("served",)):
        await app.client.send("add", queue="served")
        first, *_ = [await add.aenqueue() for _ in range(3)]
        read = watch.calls["records"]
        await add.aenqueue_many([{}, {}])
        await asyncio.to_thread(add.enqueue)
        assert watch.calls["records"] == read
        await app.client.send("add", queue="other")
    await app.close()

    told = "is enqueued, but no live worker serves queue"
    lines = [line for line in warnings(caplog) if told in line]
    assert [line.partition(told)[2] for line in lines] == [
        f" {queue} (store FaultyStore); `windlass worker APP` starts one" for queue in ("mail", "other")
    ]
    assert lines[0].startswith(f"task {first.id} ")


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "blocking"])
async def test_who_enqueues_within_a_transaction_is_told_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    app = App(f"sqlite:///{tmp_path}/windlass.db")

    @app.task(name="add", queue="mail")
    async def add() -> None: ...

    def enqueue_within() -> None:
        with closing(sqlite3.connect(tmp_path / "windlass.db")) as connection:
            add.using(within=connection).enqueue()
            add.using(within=connection).enqueue()
            connection.commit()

    await app.open()
    if is_async:
        with closing(sqlite3.connect(tmp_path / "windlass.db")) as connection:
            await add.using(within=connection).aenqueue()
            await add.using(within=connection).aenqueue()
            connection.commit()
    else:
        await asyncio.to_thread(enqueue_within)
    number = len((await app.operator.find(Filter())).items)
    await app.close()

    assert number == 2
    lines = [line for line in warnings(caplog) if "no live worker serves queue mail" in line]
    assert len(lines) == 1


async def test_the_store_is_named_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    app = App("sqlite:///windlass.db")

    @app.task(name="add")
    async def add() -> None: ...

    await add.aenqueue()
    await app.close()

    (line,) = warnings(caplog)
    assert f"no live worker serves queue default (store sqlite:///{tmp_path}/windlass.db); " in line


async def test_an_enqueue_succeeds_though_nobody_knows_who_serves_the_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    app = App(FaultyStore(SQLiteStore(tmp_path / "windlass.db"), watch))

    @app.task(name="add")
    async def add() -> None: ...

    await app.open()
    watch.down.add("records")

    handle = await add.aenqueue()

    assert handle.created
    assert warnings(caplog) == []
    watch.down.clear()
    await app.close()


def test_nothing_is_told_of_enqueues_in_a_test(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory://")

    @app.task(name="add")
    async def add() -> None: ...

    add.enqueue()
    for options in ({"store": f"sqlite:///{tmp_path}/test.db"}, {"inline": True}, {}):
        with harness(app, **options):
            add.enqueue()

    assert warnings(caplog) == []


async def test_nothing_is_told_of_a_task_that_a_worker_would_run(store: MemoryStore) -> None:
    await store.enqueue([a_task(queue="mail", type="add"), a_task(queue="other", type="add")])
    served, other = (await store.find(Filter(), Page(limit=2))).items
    heartbeat = Heartbeat(
        session=new_id(),
        worker=WorkerRecord(name="w", queues=("mail", "other"), types=("add",)),
        lease_for=timedelta(hours=1),
        opening=True,
    )
    await store.heartbeat(heartbeat)

    assert await why_unserved(store, served) == ""
    assert await why_unserved(store, replace(other, type="sub")) == (
        "no live worker has a handler for sub; `windlass worker APP` starts one"
    )
    assert await why_unserved(store, replace(other, queue="b")) == (
        "no live worker serves queue b; `windlass worker APP` starts one"
    )
    assert await why_unserved(store, replace(other, queue="b", state=State.RUNNING)) == ""
