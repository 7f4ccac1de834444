"""Two people change different fields of one record at the same time: both changes stand."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from windlass import App, NotFound
from windlass._client.operator import Operator
from windlass._client.records import MAX_TRIES
from windlass._model.filter import By, Page
from windlass._model.limit import Limit
from windlass._model.queue import QueueSettings
from windlass._model.record import Audit
from windlass._model.schedule import Schedule
from windlass._store.forward import ForwardingStore
from windlass._stores.memory import MemoryStore
from windlass.errors import Conflict


class ContendedStore(ForwardingStore):
    """Lets others act between the read and the write of a change, `times` times."""

    def __init__(self, inner: MemoryStore, others: Callable[[], Coroutine[Any, Any, object]]) -> None:
        super().__init__(inner)
        self.others = others
        self.times = 1

    def another(self) -> "ContendedStore":
        raise NotImplementedError

    async def put(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]  # a coroutine either way
        if self.times:
            self.times -= 1
            await self.others()
        await self.inner.put(*args, **kwargs)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def bob(store: MemoryStore) -> Operator:
    return Operator(store, By(who="bob"))


def contended(
    store: MemoryStore, others: Callable[[], Coroutine[Any, Any, object]], times: int = 1
) -> ContendedStore:
    made = ContendedStore(store, others)
    made.times = times
    return made


async def queue(store: MemoryStore) -> QueueSettings:
    (found,) = (await store.records(QueueSettings, Page())).items
    return found


async def test_a_pause_survives_a_change_of_settings(store: MemoryStore, bob: Operator) -> None:
    ann = Operator(contended(store, lambda: bob.pause("mail", create=True)), By(who="ann"))

    made = await ann.set_queue("mail", ageing="1m", create=True)

    assert made == await queue(store)
    assert made.paused
    assert made.ordering.ageing is not None
    audits = (await store.records(Audit, Page())).items
    assert [audit.who for audit in audits] == ["bob", "ann"]


async def test_a_change_of_settings_survives_a_pause(store: MemoryStore, bob: Operator) -> None:
    await bob.set_queue("mail", stripes=2, create=True)
    ann = Operator(contended(store, lambda: bob.set_queue("mail", stripes=4)), By(who="ann"))

    await ann.pause("mail")

    assert (await queue(store)).stripes == 4
    assert (await queue(store)).paused


async def test_two_changes_of_a_limit_stand(store: MemoryStore, bob: Operator) -> None:
    await bob.limits.set("bank", create=True, all=True, running=1, rate=2)
    ann = Operator(contended(store, lambda: bob.limits.change("bank", rate=9)), By(who="ann"))

    await ann.limits.change("bank", running=5)

    assert await bob.limits.get("bank") == Limit(name="bank", running=5, rate=9)


async def test_a_limit_that_is_removed_meanwhile_stays_removed(store: MemoryStore, bob: Operator) -> None:
    await bob.limits.set("bank", create=True, all=True, running=1)
    ann = Operator(contended(store, lambda: bob.limits.remove("bank")), By(who="ann"))

    with pytest.raises(NotFound):
        await ann.limits.change("bank", running=5)

    assert await bob.limits.list() == []


async def test_a_schedule_that_is_paused_while_it_is_replaced_stays_paused(
    store: MemoryStore, bob: Operator
) -> None:
    await bob.schedules.add("nightly", "report", "0 3 * * *")
    ann = Operator(contended(store, lambda: bob.schedules.pause("nightly")), By(who="ann"))

    await ann.schedules.add("nightly", "report", "0 4 * * *", instead=True)

    (found,) = (await store.records(Schedule, Page())).items
    assert (found.cron, found.paused) == ("0 4 * * *", True)


async def test_a_schedule_that_is_removed_while_it_is_paused_stays_removed(
    store: MemoryStore, bob: Operator
) -> None:
    await bob.schedules.add("nightly", "report", "0 3 * * *")
    ann = Operator(contended(store, lambda: bob.schedules.remove("nightly")), By(who="ann"))

    with pytest.raises(NotFound):
        await ann.schedules.pause("nightly")

    assert await bob.schedules.list() == []


async def test_an_operators_change_survives_a_deployment(store: MemoryStore, bob: Operator) -> None:
    app = App(contended(store, lambda: bob.pause("mail", create=True)))
    app.queue("mail", ageing="1m")

    await app.open()

    assert (await queue(store)).paused
    assert (await queue(store)).ordering.ageing is not None


async def test_endless_contention_is_reported(store: MemoryStore, bob: Operator) -> None:
    numbers = iter(range(1, 1000))
    await bob.pause("mail", create=True)
    busy = contended(store, lambda: bob.set_queue("mail", weights=None, stripes=next(numbers) % 60 + 1), 999)

    with pytest.raises(Conflict, match="queue 'mail' was changed"):
        await Operator(busy, By(who="ann")).pause("mail")

    assert busy.times == 999 - MAX_TRIES
