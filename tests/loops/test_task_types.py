"""Task types that programs publish to the store, and their former names."""

import random
from datetime import timedelta
from typing import Any

import pytest

from tests.loops.workers import Watch, drained, working
from windlass import App, Backoff, InvalidOption, NotFound, Retention, State
from windlass._model.options import DeclaredType, Defaults
from windlass._observe.gauges import Gauges
from windlass._observe.overview import read_overview
from windlass._policy.task_type import stored_backoff
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.errors import UnknownTaskType
from windlass.testing.conformance.steps import worker_on
from windlass.testing.faults import FaultyStore


@pytest.fixture
def store() -> Store:
    return MemoryStore()


def shop(store: Store, *, retention: Retention | None = None, **options: Any) -> App:
    """A program, started anew, that declares the type pay with these options."""
    app = App(store, retention=retention)

    @app.task(name="pay", **options)
    async def pay(amount: int = 1) -> int:
        return amount

    return app


async def published(app: App) -> DeclaredType:
    await app.publish()
    (found,) = await app.operator.types()
    return found


async def test_what_a_type_declares_is_published(store: Store) -> None:
    app = shop(
        store,
        retention=Retention(dead=None),
        aliases=("charge",),
        queue="bank",
        priority="high",
        timeout="5m",
        unique=True,
        secret=("amount",),
        backoff=Backoff(base=7, max_attempts=3),
    )

    found = await published(app)

    assert found.defaults == app.types["pay"].defaults
    assert (found.aliases, found.retention) == (("charge",), Retention(dead=None))
    assert stored_backoff(found)(1, 0.5) == timedelta(seconds=7)
    assert stored_backoff(found)(20, 0.25) == app.types["pay"].backoff(20, 0.25)


async def test_publishing_again_writes_nothing(store: Store) -> None:
    await shop(store).publish()
    watch = Watch()
    await shop(FaultyStore(store, watch)).publish()

    assert watch.calls["put"] == 0


async def test_the_last_program_to_publish_a_type_wins_and_warns(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await shop(store, queue="a").publish()
    found = await published(shop(store, queue="b", timeout=3))

    assert (found.defaults.queue, found.defaults.timeout) == ("b", timedelta(seconds=3))
    assert "task type pay was declared otherwise" in caplog.text
    assert "queue 'a' -> 'b'" in caplog.text
    assert "priority" not in caplog.text


async def test_a_backoff_that_returns_other_delays_each_time_warns_of_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await shop(store, backoff=lambda _attempt, _draw: timedelta(seconds=random.random())).publish()

    assert "declared otherwise" not in caplog.text


async def test_a_type_that_is_no_longer_declared_keeps_its_rules(store: Store) -> None:
    await shop(store, retention=Retention(dead=None)).publish()
    await App(store).publish()

    (found,) = await App(store).operator.types()
    assert found.retention == Retention(dead=None)


# -- aliases -----------------------------------------------------------------------------------------


async def test_a_worker_runs_tasks_that_were_enqueued_under_a_former_name(store: Store) -> None:
    before = App(store)

    @before.task(name="charge")
    async def charge(amount: int) -> int:
        return -amount

    handle = await charge.aenqueue(5)
    await drained(shop(store, aliases=("charge",)))

    assert await handle.result(timeout=1) == 5
    task = await handle.task()
    assert (task.type, task.state) == ("charge", State.COMPLETED)


@pytest.mark.parametrize("taken", ["pay", "charge"])
async def test_a_name_is_declared_once_even_as_an_alias(store: Store, taken: str) -> None:
    app = shop(store, aliases=("charge",))

    async def other() -> None: ...

    with pytest.raises(InvalidOption, match=f"{taken!r} is already declared"):
        app.task(name=taken)(other)
    with pytest.raises(InvalidOption, match=f"{taken!r} is already declared"):
        app.task(name="other", aliases=(taken,))(other)
    assert [*app.types] == ["pay"]


async def test_a_type_is_found_by_its_alias(store: Store) -> None:
    app = shop(store, aliases=("charge",))

    assert app.declared("charge") is app.declared("pay")
    with pytest.raises(UnknownTaskType, match="did you mean 'charge'"):
        app.declared("chargee")


async def test_a_single_alias_is_not_read_as_its_letters(store: Store) -> None:
    with pytest.raises(InvalidOption, match="sequence of names"):
        shop(store, aliases="charge")


# -- types without a handler -------------------------------------------------------------------------


async def test_a_worker_warns_once_of_each_type_that_it_has_no_handler_for(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app = shop(store)
    for name in ("bank.pay", "bank.pay", "other", "other"):
        await app.client.send(name)
    await drained(app)

    warnings = [one.getMessage() for one in caplog.records if "no handler" in one.getMessage()]
    assert len(warnings) == 2
    assert "task type bank.pay (there is one for 'pay')" in warnings[0]
    assert "add 'bank.pay' to aliases= of the new one" in warnings[0]


async def test_a_worker_reports_what_it_handles(store: Store) -> None:
    app = shop(store, aliases=("charge",))
    async with working(app):
        (session,) = await app.operator.workers()

    assert session.worker.types == ("charge", "pay")


async def test_pending_tasks_that_no_worker_of_their_queue_handles_are_counted(store: Store) -> None:
    app = shop(store, aliases=("charge",))
    await app.client.enqueue_tasks(
        [
            app.builder.build(name, b"{}", {"delay": 3600}, Defaults(queue=queue))
            for name, queue in (
                ("pay", "default"),
                ("charge", "default"),
                ("gone", "default"),
                ("gone", "default"),
                ("gone", "unserved"),
            )
        ]
    )

    assert (await read_overview(store)).unhandled() == {}  # no worker at all is another problem
    async with working(app):
        overview = await read_overview(store)
    assert overview.unhandled() == {("default", "gone"): 2}
    families = {one.name: one for one in Gauges(overview).collect()}
    samples = families["windlass_tasks_unhandled"].samples
    numbers = {(one.labels["queue"], one.labels["type"]): one.value for one in samples}
    assert {labels for labels, number in numbers.items() if number} == {("default", "gone")}
    assert (numbers["default", "gone"], numbers["default", "pay"]) == (2, 0)


async def test_a_worker_that_does_not_say_what_it_handles_may_handle_anything(store: Store) -> None:
    foreign = await worker_on(store)
    await App(store).client.send("gone", delay=60)
    await foreign.beat(opening=True)

    assert (await read_overview(store)).unhandled() == {}


# -- list and remove ---------------------------------------------------------------------------------


async def test_a_type_can_be_removed(store: Store) -> None:
    app = shop(store)
    await app.publish()

    await app.operator.remove_type("pay")

    assert await app.operator.types() == []
    (entry,) = (await app.operator.audit()).items
    assert (entry.action, entry.subject) == ("remove", "type pay")
    with pytest.raises(NotFound, match="no app has published a task type 'pay'"):
        await app.operator.remove_type("pay")
