"""`client.send`: a task by the name of its type, as its app declares it or as another has published it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.loops.workers import Watch, drained
from windlass import App, Backoff, InvalidPayload
from windlass._client import published_types
from windlass._model.options import DeclaredType, Defaults
from windlass._model.task import Task
from windlass._stores.memory import MemoryStore
from windlass.errors import DuplicateTask
from windlass.testing.faults import FaultyStore

OPTIONS: dict[str, Any] = {
    "queue": "bank",
    "priority": 7,
    "timeout": 30,
    "max_attempts": 3,
    "unique": True,
    "secret": ("card.number",),
}
PAYLOAD = {"amount": 5, "card": {"number": "4111-1111"}}


def shop(store: Any, **options: Any) -> App:
    """A program that declares the type pay."""
    app = App(store, secret=("pin",))

    @app.task(name="pay", aliases=("charge",), **OPTIONS | options)
    async def pay(amount: int, card: dict[str, str]) -> str:
        raise ValueError(f"declined: {card['number']}")

    return app


def declared(task: Task) -> dict[str, Any]:
    """The options of a task that its type declares."""
    return {
        "queue": task.queue,
        "priority": task.priority,
        "timeout": task.timeout.total_seconds() if task.timeout else None,
        "max_attempts": task.max_attempts,
        "unique": task.fingerprint is not None,
        "secret": task.secret,
    }


AS_DECLARED = OPTIONS | {"secret": ("pin", "card.number")}


@pytest.fixture
def producer(request: pytest.FixtureRequest) -> App:
    """A program with the type's declaration, or one that only the store tells of it."""
    store = MemoryStore()
    app = shop(store)
    if request.param == "its own app":
        return app
    app.setup()
    return App(store)


both = pytest.mark.parametrize("producer", ["its own app", "another app"], indirect=True)
by_name_or_alias = pytest.mark.parametrize("name", ["pay", "charge"])


@both
@by_name_or_alias
async def test_a_type_has_its_declared_options(producer: App, name: str) -> None:
    handle = await producer.client.send(name, PAYLOAD)

    task = await handle.task()
    assert (task.type, declared(task)) == (name, AS_DECLARED)
    with pytest.raises(DuplicateTask):
        await producer.client.send(name, PAYLOAD)


@both
def test_blocking_send_does_the_same(producer: App) -> None:
    assert declared(producer.sync_client.send("pay", PAYLOAD).task()) == AS_DECLARED


@both
async def test_options_given_take_precedence(producer: App) -> None:
    handle = await producer.client.send("pay", PAYLOAD, queue="other", timeout=None, unique=False)

    task = await handle.task()
    assert (task.queue, task.timeout, task.fingerprint, task.max_attempts) == ("other", None, None, 3)


@pytest.mark.parametrize("payload", [None, {"amount": "five", "card": {}}, PAYLOAD | {"pni": 1}])
@by_name_or_alias
async def test_the_payload_is_checked_against_the_handler(name: str, payload: Any) -> None:
    app = shop(MemoryStore())

    with pytest.raises(InvalidPayload, match="does not fit pay"):
        await app.client.send(name, payload)


async def test_the_apps_own_worker_runs_it_and_masks_its_secrets() -> None:
    app = shop(MemoryStore(), backoff=Backoff(base=0, jitter=0), max_attempts=1)
    handle = await app.client.send("pay", PAYLOAD)
    await drained(app)

    task = await handle.task()
    assert task.error is not None
    assert task.error.message == "declined: [secret]"


async def test_a_type_that_nobody_has_published_has_the_general_defaults() -> None:
    app = App(MemoryStore(), secret=("pin",))

    task = await (await app.client.send("unknown")).task()

    assert (task.queue, task.max_attempts, task.timeout) == ("default", 8, None)
    assert task.secret == ("pin",)  # the app's, for all types


async def test_published_types_are_read_once_in_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(published_types, "monotonic", lambda: now)
    store, watch = MemoryStore(), Watch()
    app = App(FaultyStore(store, watch))
    for _ in range(3):
        assert (await (await app.client.send("pay")).task()).queue == "default"
    assert watch.calls["records"] == 1

    await store.put(DeclaredType(name="pay", defaults=Defaults(queue="bank")))
    now += published_types.FRESH_SECONDS
    assert (await (await app.client.send("pay")).task()).queue == "bank"


@pytest.mark.parametrize(("secret", "times"), [((), 0), (("pin",), 1)])
async def test_declared_types_are_looked_up_only_if_their_secrets_may_have_to_be_encrypted(
    secret: tuple[str, ...], times: int
) -> None:
    watch = Watch()
    app = App(FaultyStore(MemoryStore(), watch), secret=secret)

    @app.task(name="pay", aliases=("charge",))
    async def pay(amount: int) -> None: ...

    await app.client.send("pay", {"amount": 1})
    await app.client.send("charge", {"amount": 1})

    assert watch.calls["records"] == times


@pytest.mark.parametrize("make", [shop, App], ids=["its own app", "another app"])
def test_a_task_sent_within_a_transaction_has_its_declared_options(
    make: Callable[[str], App], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    shop(url).setup()
    app = make(url)
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        connection.execute("BEGIN IMMEDIATE")  # the look-up must not wait for this write lock
        handle = app.sync_client.send("pay", PAYLOAD, within=connection)
        connection.commit()

    task = handle.task()
    assert (task.queue, task.timeout) == ("bank", timedelta(seconds=30))
    if make is shop:
        with (
            closing(sqlite3.connect(tmp_path / "tasks.db")) as connection,
            pytest.raises(InvalidPayload),
        ):
            app.sync_client.send("pay", within=connection)


async def test_a_sender_marks_fields_as_secret() -> None:
    app = App("memory://")

    @app.task(secret=["pin"])
    async def pay(pin: str, card: str) -> None: ...

    sent = await app.client.send("elsewhere", {"card": "4242-1111"}, secret=["card"])
    enqueued = await pay.using(secret=["card"]).aenqueue(pin="9999", card="4242-1111")

    shown = [(await handle.task()).as_dict() for handle in (sent, enqueued)]
    assert [one["secret"] for one in shown] == [["card"], ["pin", "card"]]
    assert [one["payload"]["card"] for one in shown] == ["[secret]", "[secret]"]
