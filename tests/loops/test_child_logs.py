"""Log records of child processes: logged by the worker, at its levels, with their task; none is lost."""

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.loops import child_tasks
from tests.loops.child_tasks import app as child_app
from tests.loops.workers import drained, eventually, working
from windlass import App, State
from windlass._stores.memory import MemoryStore
from windlass._worker import child_logs
from windlass.logs import JsonFormatter


@pytest.fixture
def app() -> Iterator[App]:
    """The module's app on a store of its own."""
    before = child_app.use_store(MemoryStore())
    yield child_app
    child_app.use_store(before)


async def run(app: App, how: str) -> Any:
    """Run the task that logs, in a child, to its end."""
    handle = await child_tasks.log.aenqueue(how)  # type: ignore[call-arg]
    await drained(app, processes=1)
    return await handle.task()


def records(caplog: pytest.LogCaptureFixture, name: str = "shop.images") -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == name]


async def test_records_of_every_level_come_with_their_task_and_fields(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    task = await run(app, "every level")

    found = records(caplog)
    assert [(one.levelname, one.getMessage()) for one in found] == [
        (level.upper(), f"{level} of 4") for level in ("debug", "info", "warning", "error")
    ]
    assert {(one.task_id, one.task_type) for one in found} == {(task.id, task.type)}  # type: ignore[attr-defined]
    assert {one.size for one in found} == {7}  # type: ignore[attr-defined]
    assert all(one.process != os.getpid() and one.funcName == "log" for one in found)
    line = json.loads(JsonFormatter().format(found[0]))
    assert (line["task_id"], line["task_type"], line["odd"]) == (task.id, task.type, [1, 2])
    assert [one.getMessage() for one in records(caplog, "windlass.task")] == ["by the context"]


async def test_an_event_of_structlog_comes_as_text_with_its_fields(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    await run(app, "structlog")

    [record] = records(caplog)
    assert (record.getMessage(), record.order_id) == ("charged", 7)  # type: ignore[attr-defined]
    assert not hasattr(record, "_logger")


async def test_a_dict_that_is_no_event_of_structlog_comes_as_text(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    await run(app, "dicts")

    assert [one.getMessage() for one in records(caplog)] == ["{'user': 1}", "{1: 1}"]


async def test_the_levels_are_the_workers(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.ERROR, logger="shop")
    await run(app, "every level")

    assert [one.levelname for one in records(caplog)] == ["ERROR"]


async def test_a_traceback_is_passed_on(app: App, caplog: pytest.LogCaptureFixture) -> None:
    await run(app, "exception")

    [record] = records(caplog)
    text = logging.Formatter("%(message)s").format(record)
    assert text.startswith("it failed\nTraceback (most recent call last)")
    assert text.endswith("KeyError: 'lost'")


async def test_whatever_is_logged_can_be_passed_on_and_is_bounded(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    task = await run(app, "odd")

    odd, long = records(caplog)
    assert task.state is State.COMPLETED
    assert odd.getMessage() == "a lone \\ud800 surrogate"
    assert odd.big == 1 << 80 or str(odd.big) == str(1 << 80)  # type: ignore[attr-defined]
    assert len(long.getMessage()) <= child_logs.MAX_TEXT
    assert len(long.long) <= 200  # type: ignore[attr-defined]


async def test_logging_that_the_program_sets_up_in_the_child_writes_nothing_twice(
    app: App, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    await run(app, "own set-up")

    assert [one.getMessage() for one in records(caplog)] == []  # the level is its own from there on
    assert "once" not in capfd.readouterr().err


async def test_a_child_that_dies_loses_no_record_that_it_had_logged(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    task = await run(app, "die")

    assert task.state is State.DEAD
    assert [one.getMessage() for one in records(caplog)] == [f"record {n}" for n in range(200)]


def test_a_record_that_was_cut_off_is_the_only_one_that_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    """As when a child is killed while it writes."""
    caplog.set_level(logging.INFO)
    receiver = child_logs.LogReceiver()
    child = socket.socket(fileno=os.dup(receiver.fd))
    receiver.start()
    sender = child_logs.LogSender(child)
    for n in range(3):
        sender.handle(logging.makeLogRecord({"name": "shop.images", "levelno": 20, "msg": f"record {n}"}))
    child.send((1000).to_bytes(4, "big") + b'{"name": "shop.ima')
    child.close()
    receiver.close()

    assert [one.getMessage() for one in records(caplog)] == ["record 0", "record 1", "record 2"]
    assert "cannot log" not in caplog.text


class Stuck(logging.Handler):
    """A log that takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.taken: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.released.wait(30)
        self.taken.append(record)


async def test_a_flood_into_a_log_that_is_stuck_ends_and_its_losses_are_counted(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, logger = Stuck(), logging.getLogger("shop.images")
    logger.addHandler(stuck)
    caplog.set_level(logging.INFO)

    async def is_counted() -> bool:
        """Log something, as there may be room by now; return whether the notice has come."""
        await (await child_tasks.log.aenqueue("exception")).wait(timeout=10)  # type: ignore[call-arg]
        return "log records dropped" in caplog.text

    try:
        async with working(app, processes=1):
            handle = await child_tasks.log.aenqueue("flood")  # type: ignore[call-arg]
            other = await child_tasks.triple.aenqueue(2)
            assert (await handle.wait(timeout=20)).state is State.COMPLETED
            assert await other.result(timeout=10) == 6  # the worker goes on meanwhile
            stuck.released.set()
            await eventually(is_counted)
    finally:
        stuck.released.set()
        logger.removeHandler(stuck)

    notice = next(one for one in caplog.records if "log records dropped" in one.getMessage())
    number = int(notice.getMessage().split()[0].replace(",", ""))
    logged = len([one for one in stuck.taken if one.getMessage().startswith("record ")])
    assert 100 < logged < 15_000
    assert number + logged >= 20_000


async def test_a_fork_of_a_child_does_not_write_into_its_socket(
    app: App, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    task = await run(app, "fork")

    assert task.state is State.COMPLETED
    assert "INFO shop.images: from a fork" in capfd.readouterr().err
