"""What a handler logs is written without the secrets of its task, wherever it runs and however it logs."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops import child_tasks
from tests.loops.child_tasks import app as child_app
from tests.loops.child_tasks import log_everywhere
from tests.loops.workers import drained
from windlass import RESULT, App, Context, InvalidOption, WorkerSettings, chain
from windlass._cli.run.logs import TextFormatter
from windlass._stores.memory import MemoryStore
from windlass.logs import JsonFormatter, SecretFilter

SECRET = 'canary\'s "7f3a" sings'
SPELLINGS = ("7f3a", "canary's")
CARD = r"\b\d{13,19}\b"
NUMBER = "4111111111111111"


FORMATTERS: dict[str, logging.Formatter] = {
    "own": logging.Formatter("%(message)s %(told)s %(odd)s", defaults={"told": "", "odd": ""}),
    "text": TextFormatter(colour=False),
    "json": JsonFormatter(),  # masks by itself
}


@pytest.fixture(params=FORMATTERS)
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What one handler writes; it is the only one, so that no other has masked the record before."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(FORMATTERS[request.param])
    if request.param != "json":
        handler.addFilter(SecretFilter())
    logger = logging.getLogger("shop.images")
    context = logging.getLogger("windlass.task")
    for one in (logger, context):
        one.addHandler(handler)
        one.propagate = False
    yield handler.stream
    for one in (logger, context):
        one.removeHandler(handler)
        one.propagate = True


@pytest.fixture
def app() -> App:
    return App(MemoryStore())


def assert_masked(text: str, number: int = 5) -> None:
    assert not [one for one in SPELLINGS if one in text], text
    assert text.count("[secret]") >= number, text
    for word in ("message", "format", "too few", "context", "it failed", "KeyError"):
        assert word in text


async def test_in_a_coroutine(app: App, written: io.StringIO) -> None:
    @app.task(secret=["pin.code"])
    async def log(pin: dict[str, str], *, ctx: Context) -> None:
        log_everywhere(pin["code"], ctx)

    await log.aenqueue(pin={"code": SECRET})  # type: ignore[call-arg]
    await drained(app)

    assert_masked(written.getvalue())


async def test_in_a_thread(app: App, written: io.StringIO) -> None:
    @app.task
    def log(password: str, *, ctx: Context) -> None:
        log_everywhere(password, ctx)

    await log.aenqueue(password=SECRET)  # type: ignore[call-arg]
    await drained(app)

    assert_masked(written.getvalue())


async def test_in_a_child_process(written: io.StringIO) -> None:
    before = child_app.use_store(MemoryStore())
    try:
        await child_app.client.send(child_tasks.log_secret.name, {"account": {"pin": {"code": SECRET}}})
        await drained(child_app, processes=1)
    finally:
        child_app.use_store(before)

    assert_masked(written.getvalue())


@pytest.mark.parametrize("process", [False, True])
async def test_of_a_result_that_it_takes(written: io.StringIO, process: bool) -> None:
    before = child_app.use_store(MemoryStore())
    try:
        step = child_tasks.log_secret if process else child_tasks.log_taken
        following = step.step(account=RESULT)  # type: ignore[call-arg]
        await child_app.client.enqueue(chain(child_tasks.open_account.step(SECRET), following))
        await drained(child_app, processes=1)
    finally:
        child_app.use_store(before)

    assert_masked(written.getvalue())


async def test_patterns_of_the_app_are_masked_in_what_its_handlers_log(written: io.StringIO) -> None:
    app = App(MemoryStore(), redact=[CARD])

    @app.task
    async def log(text: str) -> None:
        logging.getLogger("shop.images").warning("paid by %s", text, extra={"told": int(NUMBER), "odd": 7})

    await log.aenqueue(f"card {NUMBER}")
    await drained(app)

    assert "paid by card [secret]" in written.getvalue()
    assert NUMBER not in written.getvalue()


async def test_what_follows_is_not_masked_of_the_secrets_of_the_task_before(
    app: App, written: io.StringIO
) -> None:
    @app.task
    async def log(said: str, password: str = "") -> None:
        logging.getLogger("shop.images").warning("said %s", said)

    await log.aenqueue(said="sesame", password="sesame")
    await log.aenqueue(said="sesame")
    await drained(app, slots=1)

    assert written.getvalue().count("said [secret]") == 1
    assert written.getvalue().count("said sesame") == 1


def test_patterns_of_the_filter_are_masked_in_every_record() -> None:
    record = logging.makeLogRecord({"msg": "card %s", "args": (NUMBER,), "told": {"deep": [NUMBER]}})

    assert SecretFilter([CARD]).filter(record)

    assert record.getMessage() == "card [secret]"
    assert record.told == {"deep": ["[secret]"]}  # type: ignore[attr-defined]
    with pytest.raises(InvalidOption, match="unbounded time"):
        SecretFilter(["(a+)+$"])


def test_fields_that_contain_themselves_can_be_masked() -> None:
    endless: list[Any] = [NUMBER]
    endless.append(endless)
    record = logging.makeLogRecord({"msg": "x", "told": endless, "none": None, "on": True})

    SecretFilter([CARD]).filter(record)

    assert NUMBER not in str(vars(record))


def test_an_event_of_structlog_stays_an_event() -> None:
    record = logging.makeLogRecord(
        {"msg": {"event": "paid", "card": NUMBER, "of": [NUMBER]}, "_name": "info"}
    )

    SecretFilter([CARD]).filter(record)

    assert record.msg == {"event": "paid", "card": "[secret]", "of": ["[secret]"]}


def test_a_record_outside_of_handlers_stays_as_it_is() -> None:
    error = ValueError(SECRET)
    told = {"a": [SECRET]}
    record = logging.makeLogRecord(
        {"msg": "%s", "args": (SECRET,), "told": told, "exc_info": (ValueError, error, None)}
    )

    SecretFilter().filter(record)

    assert record.args == (SECRET,)
    assert record.exc_info == (ValueError, error, None)
    assert record.told is told  # type: ignore[attr-defined]
    assert SECRET in json.loads(JsonFormatter().format(record))["message"]


async def test_a_worker_masks_what_handlers_log_whatever_the_program_has_set_up(app: App) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger("shop.orders")
    logger.addHandler(handler)

    @app.task(secret=["card"])
    async def charge(card: str) -> None:
        logger.warning("charging %s", card)

    for _ in range(3):
        await charge.aenqueue("4111-1111")
        async with app.worker(WorkerSettings(keeper=False)):
            await (await charge.aenqueue("4111-1111")).result(timeout=10)
            logger.warning("outside %s", "4111-1111")
    logger.removeHandler(handler)

    lines = stream.getvalue().splitlines()
    assert {*lines} == {"charging [secret]", "outside 4111-1111"}
    assert len([one for one in handler.filters if isinstance(one, SecretFilter)]) == 1


PROGRAM = """
import logging
from windlass import App, WorkerSettings

app = App("sqlite:///shop.db", redact=["[0-9]{4}-[0-9]{4}"])

@app.task(secret=["card"])
def charge(card: str) -> None:
    logging.getLogger("shop").warning("charging %s", card)

if __name__ == "__main__":
    charge.enqueue("a secret")
    app.run_worker(WorkerSettings(drain=True, keeper=False))
    logging.getLogger("shop").warning("later %s", "4111-1111")
"""


@pytest.mark.system
def test_a_program_that_has_not_set_up_logging_writes_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)

    hint, *lines = ran.stderr.splitlines()
    assert "no live worker serves queue default" in hint  # it enqueues before it runs a worker
    assert lines == ["charging [secret]", "later [secret]"]
