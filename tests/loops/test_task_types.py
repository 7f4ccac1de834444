"""Task types that programs publish to the store, and their former names."""

import random
from datetime import timedelta
from typing import Any

import pytest

from tests.loops.workers import Watch, drained
from windlass import App, Backoff, InvalidOption, Retention, State
from windlass._model.options import DeclaredType
from windlass._policy.task_type import stored_backoff
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.errors import UnknownTaskType
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
        secret=("card",),
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
