"""Prune on Postgres: the rules that its statements apply, and how much of the history they scan."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._model.options import DeclaredType
from windlass._model.queue import QueueSettings, Retention
from windlass._model.state import ENDED, State
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.connection.address import parse
from windlass._stores.postgres.script import Query
from windlass._stores.postgres.upkeep import partitions, prune
from windlass._stores.postgres.upkeep.prune import KeepRule, keep_rules
from windlass._stores.rules.retention import RetentionRules
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    a_task,
    all_tasks,
    complete,
    enqueue_and_settle,
    worker_on,
)

DAY = timedelta(days=1)
names = st.sampled_from(["a", "b", "c"])
periods = st.sampled_from([None, timedelta(0), DAY, 30 * DAY])
retentions = st.builds(Retention, completed=periods, cancelled=periods, dead=periods)
owners = st.dictionaries(names, retentions)


def applies(rule: KeepRule, queue: str, type_name: str) -> bool:
    """What the statements ask of a row."""
    return (queue in rule.queues) == rule.in_queues and (type_name in rule.types) == rule.in_types


@given(default=retentions, queues=owners, types=owners)
def test_exactly_one_rule_applies_to_a_task_and_has_its_retention(
    default: Retention, queues: dict[str, Retention], types: dict[str, Retention]
) -> None:
    retention = RetentionRules(
        default,
        [QueueSettings(name=name, retention=kept) for name, kept in queues.items()],
        [DeclaredType(name=name, retention=kept) for name, kept in types.items()],
    )
    rules = keep_rules(retention)

    for state in ENDED:
        for queue in "abcd":
            for type_name in "abcd":
                (only,) = [one for one in rules if one.state is state and applies(one, queue, type_name)]
                assert only.keep_for == retention.of(queue, type_name).period(state)


def test_hundreds_of_types_of_one_app_need_one_rule_for_each_state() -> None:
    types = [DeclaredType(name=f"t{n}", retention=Retention(dead=None)) for n in range(300)]

    assert len(keep_rules(RetentionRules(Retention(), [], types))) == 6


# -- what is scanned ---------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(parse(url), clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_what_was_pruned_is_scanned_again_by_days_and_not_whole(
    store: PostgresStore, clock: ManualClock
) -> None:
    """Tasks that ended long before the last prune are found when a process starts, or the rules change."""
    short = Retention(completed=DAY)

    async def ended(ago: timedelta) -> None:
        clock.advance(-ago)
        await enqueue_and_settle(store, await worker_on(store, lease_for=2 * DAY), complete)
        clock.advance(ago)

    assert (await store.prune(short, 10)).number == 0
    await ended(40 * DAY)  # as if it had only now been committed
    await ended(DAY + timedelta(hours=2))

    assert (await store.prune(short, 10)).number == 0
    clock.advance(timedelta(hours=1))
    assert (await store.prune(short, 10)).number == 1
    await store.put(DeclaredType(name="other", retention=Retention(completed=9 * DAY)))
    assert (await store.prune(short, 10)).number == 1


async def test_a_task_that_was_locked_is_pruned_later_however_long_ago_it_ended(
    store: PostgresStore, clock: ManualClock
) -> None:
    """Who enqueues a task that needs another's result holds that one, of whatever age, until the commit."""
    done = await enqueue_and_settle(store, await worker_on(store, lease_for=2 * DAY), complete)
    clock.advance(40 * DAY)
    short, connections = Retention(completed=DAY, cancelled=None), store.connections
    other = await connections.unpooled()
    async with other.transaction():
        lock = f"SELECT FROM {connections.address.schema}.history WHERE id = $1 FOR KEY SHARE"
        await other.execute(lock, done.task.id)

        assert (await store.prune(short, 10)).number == 0
    await other.close()

    assert (await store.prune(short, 10)).number == 1


@pytest.mark.parametrize("most", [1, 2])
async def test_a_task_that_was_needed_is_pruned_once_it_is_not_however_long_ago_it_ended(
    store: PostgresStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Meanwhile it is looked up by its id; the history is scanned for it only if too many are left."""
    monkeypatch.setattr(prune, "MOST_LEFT", most)
    worker = await worker_on(store, lease_for=400 * DAY)
    done = [(await enqueue_and_settle(store, worker, complete)).task.id for _ in range(2)]
    await store.enqueue([a_task(after=(one,), result_into="results") for one in done])
    clock.advance(40 * DAY)
    short = Retention(completed=DAY, cancelled=None)  # so that no day is dropped

    assert (await store.prune(short, 10)).number == 0

    (reached,) = [one for rule, one in store._pruner._reached.items() if rule.state is State.COMPLETED]
    assert (reached.before == clock.now() - DAY, sorted(reached.left)) == (most == 2, done[: most // 2 * 2])
    for _ in done:
        await store.settle([complete(await worker.claim_one())])
        assert (await store.prune(short, 10)).number == 1
        assert (await store.prune(short, 10)).number == 0


async def test_a_day_is_kept_while_it_may_hold_a_task_that_its_type_keeps(
    store: PostgresStore, clock: ManualClock
) -> None:
    await store.put(DeclaredType(name="long", retention=Retention(completed=90 * DAY)))
    await store.prune(Retention(), 10)  # creates the days around now
    worker = await worker_on(store, lease_for=400 * DAY)
    for name in ("long", "short"):
        await enqueue_and_settle(store, worker, complete, type=name)
    day = clock.now().date()

    clock.advance(30 * DAY)
    assert (await store.prune(Retention(), 10)).number == 1
    (kept,) = await all_tasks(store)
    assert kept.type == "long"
    assert day in await partitions.existing(store.connections)

    clock.advance(62 * DAY)
    assert (await store.prune(Retention(), 10)).number == 1
    assert day not in await partitions.existing(store.connections)


async def test_tasks_in_the_default_partition_are_pruned_although_it_is_never_dropped(
    store: PostgresStore, clock: ManualClock
) -> None:
    clock.advance(-30 * DAY)  # A day without a partition, as after days without a keeper.
    worker = await worker_on(store, lease_for=400 * DAY)
    for _ in range(3):
        await enqueue_and_settle(store, worker, complete)
    assert await rows_in(store, partitions.REST) == 3

    clock.advance(7 * DAY)
    assert (await store.prune(Retention(), 10)).number == 0
    clock.advance(1)
    assert (await store.prune(Retention(completed=None), 10)).number == 0
    assert [(await store.prune(Retention(), 2)).number for _ in range(3)] == [2, 1, 0]
    assert await rows_in(store, partitions.REST) == 0


async def test_a_day_that_is_kept_longer_from_now_on_is_scanned_from_its_beginning(
    store: PostgresStore, clock: ManualClock
) -> None:
    """How far the default partition was pruned says nothing about the days."""
    await store.prune(Retention(), 10)  # creates the days around now
    await enqueue_and_settle(store, await worker_on(store, lease_for=400 * DAY), complete)
    clock.advance(7 * DAY + timedelta(hours=3))
    assert (await store.prune(Retention(), 10)).number == 0  # Its day is not over yet.
    clock.advance(1)

    await store.put(DeclaredType(name="other", retention=Retention(completed=90 * DAY)))
    assert (await store.prune(Retention(), 10)).number == 1


async def rows_in(store: PostgresStore, table: str) -> int:
    schema = store.connections.address.schema
    ((number,),) = await store.connections.fetch(Query("", sql=f"SELECT count(*) FROM {schema}.{table}"))
    return int(number)
