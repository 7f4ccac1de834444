"""Stripes: a queue in several lines loses nothing, whoever claims, and however their number changes. (S6)"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import asyncpg
import psycopg
import pytest
from click.testing import CliRunner

from tests.examples import sample
from tests.stores.schemas import Schemas
from windlass import App, InvalidOption
from windlass._cli.root import root
from windlass._model.lease import Claimed
from windlass._model.queue import QueueSettings
from windlass._model.task import NewTask
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres import queue_layout as layout
from windlass._stores.postgres.statements import in_schema
from windlass.testing.conformance.steps import ManualWorker, a_task, complete, some_tasks, worker_on

SERVERS = {"postgres15": "schemas15", "postgres": "schemas_newest", "pgbouncer": "schemas_pooled"}


@pytest.fixture(params=sample(["postgres"], ["postgres15", "pgbouncer"]))
async def store(request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    schemas: Schemas = request.getfixturevalue(SERVERS[request.param])
    with schemas.lent() as fresh:
        store = fresh(None)
        await store.open()
        yield store
        await store.close()


class Ageing:
    """The clock by which handles judge how old their knowledge of stripes is."""

    def __init__(self) -> None:
        self._passed = 0.0

    def __call__(self) -> float:
        return self._passed

    def pass_by(self, seconds: float = layout.FRESH_SECONDS) -> None:
        self._passed += seconds


@pytest.fixture(autouse=True)
def ageing(monkeypatch: pytest.MonkeyPatch) -> Ageing:
    ageing = Ageing()
    monkeypatch.setattr(layout, "monotonic", ageing)
    return ageing


async def stripe(store: PostgresStore, number: int, ageing: Ageing, queue: str = "default") -> None:
    """Give the queue so many stripes, and let everybody hear of it."""
    await store.put(QueueSettings(name=queue, stripes=number))
    ageing.pass_by()


async def stripes_of(store: PostgresStore, batch: Sequence[NewTask]) -> list[int]:
    """The stripe that each of these lies in."""
    sql = in_schema(
        "SELECT id::text, stripe FROM windlass.task WHERE id = ANY ($1::uuid[])", store.address.schema
    )
    connection = await asyncpg.connect(store.address.dsn, statement_cache_size=0)
    found = dict(await connection.fetch(sql, [new.id for new in batch]))
    await connection.close()
    return [found[new.id] for new in batch]


async def all_of(worker: ManualWorker, limit: int = 7, *queues: str) -> list[Claimed]:
    """Claim until nothing is left."""
    claimed: list[Claimed] = []
    while more := await worker.claim(limit, *queues):
        claimed += more
    return claimed


def ids(found: Sequence[Claimed] | Sequence[NewTask]) -> list[str]:
    return sorted(one.task.id if isinstance(one, Claimed) else one.id for one in found)


# -- claiming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 8, 64])
async def test_many_claimers_get_every_task_exactly_once(
    store: PostgresStore, ageing: Ageing, number: int
) -> None:
    await stripe(store, number, ageing)
    batch = some_tasks(400)
    await store.enqueue(batch)
    handles = [store.another() for _ in range(3)]
    workers = [await worker_on(handle) for handle in handles for _ in range(5)]

    claimed = await asyncio.gather(*(all_of(worker) for worker in workers))
    for handle in handles:
        await handle.close()

    assert ids([one for some in claimed for one in some]) == ids(batch)


async def test_completing_and_claiming_in_one_goes_through_all_stripes(
    store: PostgresStore, ageing: Ageing
) -> None:
    await stripe(store, 8, ageing)
    batch = some_tasks(100)
    await store.enqueue(batch)
    worker = await worker_on(store)

    held, done = await worker.claim(10), 0
    while held:
        settled = await store.settle([complete(one) for one in held], worker.next_claim(10))
        done += len(held)
        held = settled.claimed

    assert done == len(batch)


async def test_order_holds_within_a_stripe(store: PostgresStore, ageing: Ageing) -> None:
    await stripe(store, 4, ageing)
    batch = [task for priority in (0, 5, 2) for task in some_tasks(60, priority=priority)]
    await store.enqueue(batch)
    lies_in = dict(zip([new.id for new in batch], await stripes_of(store, batch), strict=True))
    worker = await worker_on(store)

    places: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for one in await all_of(worker):
        places[lies_in[one.task.id]].append((one.task.rank, one.task.id))

    assert len(places) == 4
    assert all(first < second for line in places.values() for first, second in pairwise(line))


async def test_a_claim_that_finds_its_stripe_empty_finds_the_others(
    store: PostgresStore, ageing: Ageing
) -> None:
    await stripe(store, 64, ageing)
    await store.enqueue(some_tasks(5))
    worker = await worker_on(store)

    found = [len(await worker.claim(1)) for _ in range(6)]

    assert found == [1, 1, 1, 1, 1, 0]


async def test_a_claim_takes_from_plain_and_striped_queues(store: PostgresStore, ageing: Ageing) -> None:
    await stripe(store, 8, ageing, "wide")
    batch = [*some_tasks(20, queue="wide"), *some_tasks(20, queue="plain")]
    await store.enqueue(batch)
    worker = await worker_on(store)

    claimed = await all_of(worker, 7, "wide", "plain")

    assert ids(claimed) == ids(batch)


async def test_a_paused_queue_gives_nothing_from_any_stripe(store: PostgresStore, ageing: Ageing) -> None:
    await stripe(store, 8, ageing)
    await store.enqueue(some_tasks(20))
    await store.put(QueueSettings(name="default", stripes=8, paused=True))
    worker = await worker_on(store)

    assert await worker.claim(20) == []


# -- changing their number ---------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(1, 8), (8, 1), (8, 3), (1, 64)])
async def test_another_number_of_stripes_strands_nothing(
    store: PostgresStore, ageing: Ageing, before: int, after: int
) -> None:
    await stripe(store, before, ageing)
    old, new = some_tasks(60), some_tasks(60)
    await store.enqueue(old)

    await stripe(store, after, ageing)
    await store.enqueue(new)

    assert max(await stripes_of(store, new)) < after
    other = store.another()
    assert ids(await all_of(await worker_on(other))) == ids([*old, *new])
    await other.close()


async def test_forgetting_a_queues_settings_strands_nothing(store: PostgresStore, ageing: Ageing) -> None:
    await stripe(store, 8, ageing)
    old, new = some_tasks(60), some_tasks(60)
    await store.enqueue(old)

    assert await store.remove(QueueSettings, "default")
    ageing.pass_by()
    await store.enqueue(new)

    assert {*await stripes_of(store, new)} == {0}
    assert not await store.remove(QueueSettings, "default")
    other = store.another()
    assert ids(await all_of(await worker_on(other))) == ids([*old, *new])
    await other.close()


async def test_what_comes_back_is_found_in_its_stripe(store: PostgresStore, ageing: Ageing) -> None:
    await stripe(store, 8, ageing)
    batch = some_tasks(30)
    await store.enqueue(batch)
    worker = await worker_on(store)
    held = await all_of(worker)

    await stripe(store, 1, ageing)
    await worker.beat(through=worker.claims)  # It knows of none of them: all are handed back.

    assert ids(await all_of(worker)) == ids(held)


async def test_other_handles_notice_a_change_when_what_they_know_is_old(
    store: PostgresStore, ageing: Ageing
) -> None:
    other = store.another()
    await other.enqueue(some_tasks(1))
    await store.put(QueueSettings(name="default", stripes=8))
    soon, later = some_tasks(100), some_tasks(100)

    ageing.pass_by(layout.FRESH_SECONDS * 0.9)
    await other.enqueue(soon)
    ageing.pass_by(layout.FRESH_SECONDS * 0.1)
    await other.enqueue(later)
    await other.close()

    assert {*await stripes_of(store, soon)} == {0}
    assert {*await stripes_of(store, later)} == set(range(8))


# -- filling -----------------------------------------------------------------------------------------

NUMBER = 100
Way = Callable[[PostgresStore], Awaitable[Sequence[NewTask]]]


async def one_by_one(store: PostgresStore) -> Sequence[NewTask]:
    batch = some_tasks(NUMBER)
    for new in batch:
        await store.enqueue([new])
    return batch


async def at_the_same_time(store: PostgresStore) -> Sequence[NewTask]:
    batch = some_tasks(NUMBER)
    await asyncio.gather(*(store.enqueue([new]) for new in batch))
    return batch


async def in_bulk(store: PostgresStore) -> Sequence[NewTask]:
    batch = some_tasks(1500)
    await store.enqueue(batch)
    return batch


async def with_keys(store: PostgresStore) -> Sequence[NewTask]:
    batch = [a_task(idempotency_key=f"k{n}", idempotency_digest="d") for n in range(NUMBER)]
    await store.enqueue(batch)
    return batch


async def as_successors(store: PostgresStore) -> Sequence[NewTask]:
    batch = some_tasks(NUMBER)
    await store.enqueue([a_task(queue="first")])
    worker = await worker_on(store)
    await store.settle([complete(await worker.claim_one("first"), None, *batch)])
    return batch


async def joined_by_asyncpg(store: PostgresStore) -> Sequence[NewTask]:
    batch = some_tasks(NUMBER)
    connection = await asyncpg.connect(store.address.dsn, statement_cache_size=0)
    async with connection.transaction():
        joined: Any = store.join(connection).enqueue(batch)
        await joined
    await connection.close()
    return batch


async def joined_by_psycopg(store: PostgresStore) -> Sequence[NewTask]:
    batch = some_tasks(NUMBER)
    with psycopg.connect(store.address.dsn, prepare_threshold=None) as connection:
        store.join(connection).enqueue(batch)
    return batch


WAYS = [one_by_one, at_the_same_time, in_bulk, with_keys, as_successors, joined_by_asyncpg, joined_by_psycopg]


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_enqueue_fills_the_stripes(store: PostgresStore, ageing: Ageing, way: Way) -> None:
    await stripe(store, 4, ageing)
    await store.enqueue([a_task(queue="other")])  # It has heard of the stripes.

    filled = Counter(await stripes_of(store, await way(store)))

    assert set(filled) == {0, 1, 2, 3}
    assert all(filled.total() / 12 < number < filled.total() / 2 for number in filled.values())


@pytest.mark.parametrize("way", [joined_by_asyncpg, joined_by_psycopg])
async def test_who_only_joins_fills_the_stripes_too(store: PostgresStore, ageing: Ageing, way: Way) -> None:
    await stripe(store, 4, ageing)
    other = store.another()

    batch = await way(other)
    await other.close()

    assert {*await stripes_of(store, batch)} == {0, 1, 2, 3}


# -- declaring and steering --------------------------------------------------------------------------


async def settings_of(app: App) -> dict[str, QueueSettings]:
    return {settings.name: settings for settings in await app.operator.queues()}


async def test_stripes_are_declared(store: PostgresStore) -> None:
    app = App(store)
    app.queue("mail", ageing="10m", stripes=8)

    await app.open()

    declared = (await settings_of(app))["mail"]
    assert (declared.stripes, declared.ordering.ageing is None) == (8, False)


async def test_an_operators_stripes_outlive_an_app_that_declares_none(store: PostgresStore) -> None:
    app = App(store)
    app.queue("mail", ageing="10m")
    await app.open()

    await app.operator.stripe("mail", 8)
    await app.operator.pause("mail")
    await app.open()

    kept = (await settings_of(app))["mail"]
    assert (kept.stripes, kept.paused, kept.ordering.ageing is None) == (8, True, False)


async def test_a_declared_number_takes_the_place_of_an_operators(store: PostgresStore) -> None:
    app = App(store)
    await app.operator.stripe("mail", 8, create=True)
    app.queue("mail", stripes=2)

    await app.open()

    assert (await settings_of(app))["mail"].stripes == 2


@pytest.mark.parametrize("number", [0, 65, 2.5])
async def test_a_senseless_number_is_refused_and_changes_nothing(store: PostgresStore, number: Any) -> None:
    app = App(store)
    await app.operator.stripe("mail", 8, create=True)

    with pytest.raises(InvalidOption, match="stripes must be a whole number from 1 to 64"):
        await app.operator.stripe("mail", number)
    with pytest.raises(InvalidOption, match="stripes must be a whole number from 1 to 64"):
        app.queue("mail", stripes=number)
    await app.open()

    assert (await settings_of(app))["mail"].stripes == 8


def test_a_queue_is_striped_on_the_command_line(schemas15: Schemas) -> None:
    def run(*arguments: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(root, [*arguments, "--store", url, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    with schemas15.lent() as fresh:
        address = fresh(None).address
        url = f"{address.dsn}?schema={address.schema}"
        run("migrate")

        (striped,) = run("queues", "stripe", "mail", "8", "--create")
        (listed,) = run("queues", "list")

    for queue in (striped, listed):
        assert (queue["queue"], queue["settings"]["stripes"]) == ("mail", 8)
