"""Queues and limits that code declares and an operator changes: which of them applies."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loops.workers import Watch
from windlass import App, InvalidOption, NotFound, Retention
from windlass._model.filter import Page
from windlass._model.limit import Limit
from windlass._model.queue import Fairness, Level, QueueSettings
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import FaultyStore


@pytest.fixture
def store() -> Store:
    return MemoryStore()


def shop(store: Store, **queue: Any) -> App:
    """A program, started anew, that declares this of the queue mail."""
    app = App(store.another())
    if queue:
        app.queue("mail", **queue)
    return app


async def settings(store: Store) -> QueueSettings:
    found = (await store.records(QueueSettings, Page())).items
    return next((one for one in found if one.name == "mail"), QueueSettings(name="mail"))


async def limits(store: Store) -> list[Limit]:
    return [*(await store.records(Limit, Page())).items]


# -- queues ------------------------------------------------------------------------------------------


async def test_what_is_declared_is_put(store: Store) -> None:
    app = shop(store, fairness="round_robin", weights={"acme": 3}, shares={"low": 10}, ageing="1m")

    await app.open()

    found = await settings(store)
    assert (found.fairness, found.weights) == (Fairness.ROUND_ROBIN, {"acme": 3})
    assert found.ordering.shares == {Level.LOW: 10}
    assert found.ordering.ageing == timedelta(minutes=1)


async def test_an_operators_change_stands_over_restarts(store: Store) -> None:
    await shop(store, fairness="round_robin", weights={"acme": 3}).open()
    operator = App(store).operator
    await operator.set_queue("mail", weights={"acme": 5, "bob": 2})

    await shop(store, fairness="round_robin", weights={"acme": 3}).open()

    assert (await settings(store)).weights == {"acme": 5, "bob": 2}


async def test_a_declaration_that_changed_is_put_again(store: Store) -> None:
    await shop(store, fairness="round_robin", weights={"acme": 3}).open()
    await App(store).operator.set_queue("mail", weights={"bob": 2})

    await shop(store, fairness="round_robin", weights={"acme": 4}).open()

    assert (await settings(store)).weights == {"acme": 4}


async def test_spelling_it_in_another_way_is_no_change(store: Store) -> None:
    await shop(store, ageing="60s", fairness="random").open()
    await App(store).operator.set_queue("mail", fairness="fifo", ageing=None)

    await shop(store, ageing=timedelta(minutes=1), fairness=Fairness.RANDOM).open()

    assert await settings(store) == QueueSettings(name="mail")


async def test_what_is_not_declared_is_the_operators(store: Store) -> None:
    await App(store).operator.set_queue(
        "mail", fairness="random", retention=Retention(dead=None), create=True
    )
    await App(store).operator.pause("mail")

    await shop(store, ageing="1m").open()

    found = await settings(store)
    assert found.fairness is Fairness.RANDOM
    assert found.retention == Retention(dead=None)
    assert found.paused
    assert found.ordering.ageing == timedelta(minutes=1)


async def test_what_is_no_longer_declared_goes_back_to_the_default(store: Store) -> None:
    await shop(store, fairness="random", ageing="1m").open()

    await shop(store, ageing="1m").open()

    assert (await settings(store)).fairness is Fairness.FIFO


async def test_a_program_that_declares_nothing_changes_nothing(store: Store) -> None:
    await shop(store, fairness="random").open()
    before = await settings(store)

    await shop(store).open()

    assert await settings(store) == before


async def test_a_declaration_wins_over_what_contradicts_it(store: Store) -> None:
    await App(store).operator.set_queue("mail", stripes=4, create=True)
    await App(store).operator.pause("mail")

    await shop(store, fairness="round_robin").open()

    found = await settings(store)
    assert (found.fairness, found.stripes, found.paused) == (Fairness.ROUND_ROBIN, 1, True)


async def test_an_unchanged_declaration_never_stops_a_program(store: Store) -> None:
    await shop(store, stripes=4).open()
    await App(store).operator.set_queue("mail", stripes=1, fairness="round_robin", weights={"acme": 2})

    await shop(store, stripes=4).open()

    assert (await settings(store)).weights == {"acme": 2}


async def test_a_restart_writes_nothing(store: Store) -> None:
    watch = Watch()
    for _ in range(2):
        app = shop(FaultyStore(store, watch), fairness="random")
        app.limit("one", running=1)
        await app.open()

    assert watch.calls["put"] == 4  # the queue, the limit and what was said of each, the first time


async def test_priorities_age_as_the_store_has_it(store: Store) -> None:
    await shop(store, ageing="1m").open()
    app = shop(store, ageing="1m")

    await App(store).operator.set_queue("mail", ageing="1h")
    sent = await app.client.send("welcome", queue="mail", priority=2)

    assert (await sent.task()).boost == 2 * 3_600_000


# -- limits ------------------------------------------------------------------------------------------


def limited(store: Store, **options: Any) -> App:
    app = App(store.another())
    app.limit("api", **options)
    return app


async def test_a_limit_is_put(store: Store) -> None:
    await limited(store, queue="mail", by="account_id", running=5, rate="120/m", burst=20).open()

    assert await limits(store) == [
        Limit(name="api", queue="mail", by="account_id", running=5, rate=2.0, burst=20)
    ]


async def test_an_operators_limit_stands_until_the_declaration_changes(store: Store) -> None:
    await limited(store, running=5).open()
    await App(store).operator.limits.change("api", running=1)

    await limited(store, running=5).open()
    held = await limits(store)
    await limited(store, running=6).open()

    assert held == [Limit(name="api", running=1)]
    assert await limits(store) == [Limit(name="api", running=6)]


async def test_a_removed_limit_stays_away_until_the_declaration_changes(store: Store) -> None:
    await limited(store, running=5).open()
    await App(store).operator.limits.remove("api")

    await limited(store, running=5).open()
    gone = await limits(store)
    await limited(store, running=4).open()

    assert gone == []
    assert await limits(store) == [Limit(name="api", running=4)]


async def test_a_type_declared_after_its_limit_is_looked_at_too(store: Store) -> None:
    app = limited(store, type="charge", by="acount_id", running=1)

    @app.task(name="charge")
    async def charge(account_id: int) -> None: ...

    with pytest.raises(InvalidOption, match="did you mean 'account_id'"):
        await app.open()
    assert await limits(store) == []


async def test_a_handler_that_takes_anything_can_be_limited_by_anything(store: Store) -> None:
    app = limited(store, type="charge", by="whatever", running=1)

    @app.task(name="charge")
    async def charge(**fields: Any) -> None: ...

    await app.open()

    assert len(await limits(store)) == 1


# -- the operator ------------------------------------------------------------------------------------


async def test_limits_are_set_changed_seen_and_removed(store: Store) -> None:
    held = App(store).operator.limits

    await held.set("b", create=True, all=True, running=3)
    await held.set("a", create=True, queue="mail", rate="10/s")
    changed = await held.change("a", running=2, rate=None)

    assert changed == Limit(name="a", queue="mail", running=2)
    assert await held.list() == [changed, Limit(name="b", running=3)]
    await held.remove("b")
    assert await held.list() == [changed]


async def test_an_unknown_limit_is_named_with_what_was_meant(store: Store) -> None:
    held = App(store).operator.limits
    await held.set("stripe", create=True, all=True, running=3)

    for act in (held.get("strip"), held.change("strip", running=1), held.remove("strip")):
        with pytest.raises(NotFound, match=r"no limit 'strip'; .*did you mean 'stripe'"):
            await act
    assert await held.list() == [Limit(name="stripe", running=3)]


async def test_a_limit_is_neither_made_nor_widened_unasked(store: Store) -> None:
    """A misspelt name, or a limit that loses its scope, would hold back all tasks."""
    app = limited(store, type="charge", running=3)
    await app.open()
    held = app.operator.limits
    (declared,) = standing = await limits(store)

    for options in ({"running": 1}, {"running": 1, "queue": "mail"}, {"running": 1, "all": True}):
        with pytest.raises(NotFound, match=rf"create=True .*; did you mean '{declared.name}'"):
            await held.set(f"{declared.name}s", **options)
    for act in (
        held.set("new", create=True, running=1),
        held.set("new", create=True, running=1, by="tenant"),
        held.set(declared.name, type=None),
    ):
        with pytest.raises(InvalidOption, match=r"would apply to all tasks: .*all=True"):
            await act
    with pytest.raises(InvalidOption, match="all and queue contradict each other"):
        await held.set("new", create=True, all=True, queue="mail", running=1)
    assert await limits(store) == standing

    assert await held.set(declared.name, running=1, create=True) == replace(declared, running=1)
    assert await held.set(declared.name, all=True) == replace(declared, running=1, type=None)
    assert (await held.set(declared.name, running=2)).running == 2


async def test_a_limit_by_a_field_that_its_type_lacks_is_refused(store: Store) -> None:
    app = App(store)

    @app.task(name="charge")
    async def charge(account_id: int) -> None: ...

    with pytest.raises(InvalidOption, match="did you mean 'account_id'"):
        await app.operator.limits.set("api", create=True, type="charge", by="account", running=1)


async def test_a_senseless_change_changes_nothing(store: Store) -> None:
    operator = App(store).operator
    await operator.set_queue("mail", fairness="round_robin", weights={"acme": 2}, create=True)
    before = await settings(store)

    with pytest.raises(InvalidOption, match="1 to 100"):
        await operator.set_queue("mail", weights={"acme": 1000})
    with pytest.raises(InvalidOption, match="leave stripes at 1"):
        await operator.set_queue("mail", stripes=3)

    assert await settings(store) == before


def test_programs_without_a_loop_do_the_same() -> None:
    app = App("memory://")
    operator = app.sync_operator

    assert operator.set_queue("mail", fairness="random", create=True).fairness is Fairness.RANDOM
    assert operator.limits.set("one", create=True, all=True, running=3) == operator.limits.get("one")
    assert operator.limits.change("one", running=2).running == 2
    assert [limit.name for limit in operator.limits.list()] == ["one"]
    assert operator.limits.usages() == []
    operator.limits.remove("one")
    assert operator.limits.list() == []
