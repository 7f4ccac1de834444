"""Workers and producers by way of `windlass serve`, all of them killed: every task ends once. (I2)"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.system import program
from tests.system.fleet import Fleet, Schedule, wait_until
from tests.system.serving import Server
from windlass import App, StoreUnavailable

WORKER = ("work", "read", "operate", "enqueue")
PRODUCER = ("enqueue", "read")
pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]


@pytest.fixture
def server(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that asks for keys; the processes of the fleet go there, the fleet itself to the file."""
    made = fleet.app.sync_operator.keys.create("workers", scopes=WORKER)
    monkeypatch.setenv("WINDLASS_KEY", made.text)
    with closing(Server(fleet)) as server:
        fleet.way = server.url
        server.start()
        yield server


def test_every_task_ends_once_though_workers_and_the_server_are_killed(fleet: Fleet, server: Server) -> None:
    def replace() -> None:
        fleet.kill(fleet.workers[0])
        fleet.start()

    fleet.start_ready(2)
    ids = fleet.enqueue("nap", 250, seconds=0.2) + fleet.enqueue("flaky", 50, failures=1)
    ids += fleet.enqueue("nap", 100, delay=3.0, seconds=0.5) + fleet.enqueue("threaded", 100, seconds=0.05)
    schedule = Schedule()
    for second in (0.5, 1.5, 3.6, 4.6):
        schedule.at(second, replace)
    schedule.at(1.0, server.kill_and_start)
    schedule.at(3.3, server.kill_and_start)
    schedule.run()
    fleet.drain(40)
    report = fleet.checked()

    assert report.numbers["tasks"] == len(set(ids)) == 500
    assert set(fleet.states(ids)) == {"completed"}
    assert report.numbers["fault kill"] == 4
    assert report.numbers["fault restart"] == 2
    assert report.numbers["attempts lost with a worker"] > 0


def test_a_stream_of_wishes_is_heard_once_though_the_server_is_killed(fleet: Fleet, server: Server) -> None:
    fleet.start_ready(2)
    producer = fleet.produce("p", seed=7, wishes=150, per_second=60)
    schedule = Schedule()
    for second in (1.0, 2.5):
        schedule.at(second, server.kill_and_start)
    schedule.run()
    assert producer.process.wait(30) == 0, producer.errors.read_text()[-2000:]
    fleet.drain(40)
    report = fleet.checked()

    assert report.numbers["tasks"] > 100
    assert report.numbers["fault restart"] == 2


def test_what_is_repeated_after_a_restart_is_there_once(
    fleet: Fleet, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fleet.app.sync_operator.keys.create("producers", scopes=PRODUCER)
    monkeypatch.setenv("WINDLASS_KEY", made.text)
    app = App(server.url)
    wish: dict[str, Any] = {"idempotency_key": "order-1"}
    kind = f"{program.__name__}.quick"

    wait_until(lambda: _is_heard(app, kind), 5, what="the server knows the new key")
    first = app.sync_client.send(kind, {"key": "a"}, **wish)
    server.kill()
    with pytest.raises(StoreUnavailable, match="cannot connect to http"):
        app.sync_client.send(kind, {"key": "b"}, idempotency_key="order-2")
    server.start()
    again = app.sync_client.send(kind, {"key": "a"}, **wish)
    second = app.sync_client.send(kind, {"key": "b"}, idempotency_key="order-2")
    with pytest.raises(Exception, match="lacks the scope operate"):
        app.sync_operator.pause("default")

    assert (first.created, again.created, second.created) == (True, False, True)
    assert first.id == again.id
    assert len(fleet.app.sync_operator.find().items) == 3
    asyncio.run(app.close())


def _is_heard(app: App, kind: str) -> bool:
    """A key that was just made is known within a second."""
    try:
        app.sync_client.send(kind, {"key": "z"}, idempotency_key="order-0")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not heard
        return "rejected the key" not in str(error)
    return True


def test_a_worker_goes_on_where_it_was_once_the_server_is_back(fleet: Fleet, server: Server) -> None:
    (worker,) = fleet.start_ready(1)
    (running,) = fleet.enqueue("nap", seconds=0.5)
    wait_until(lambda: bool(fleet.runs()), 10, what="it runs")
    server.kill_and_start()
    (after,) = fleet.enqueue("quick")
    wait_until(lambda: set(fleet.states([running, after])) == {"completed"}, 20, what="both are done")

    assert worker.alive
    assert len(fleet.runs()) == 2  # neither was run again
    assert "Traceback" not in worker.errors.read_text()
    assert os.environ["WINDLASS_KEY"] not in "".join(
        file.read_text() for file in Path(fleet.folder).glob("*.log")
    )
