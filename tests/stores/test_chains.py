"""Chains and groups as a worker runs them, on every store."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.loops.workers import drained, tasks, working
from windlass import RESULT, App, Backoff, By, Fatal, Filter, Handle, Retention, chain
from windlass._ids import new_id
from windlass._model.state import State
from windlass._policy.input.chain import MAX_LEVELS
from windlass._store.protocol import Store
from windlass.errors import InvalidOption, NotFound
from windlass.tasktype import TaskType
from windlass.testing.clock import ManualClock

LONG = MAX_LEVELS + 1

Adds = TaskType[[Any], int, int]
Sums = TaskType[[Any], int, int]


@pytest.fixture
def app(store: Store) -> App:
    return App(store)


@pytest.fixture
def add(app: App) -> Adds:
    @app.task(name="add")
    def add(n: Any) -> int:
        return int(n) + 1

    return add


@pytest.fixture
def total(app: App) -> Sums:
    @app.task(name="total")
    def total(numbers: Any) -> int:
        return sum(numbers)

    return total


async def test_the_longest_chain_runs_to_its_end(app: App, add: Adds) -> None:
    steps = [add.step(n=0), *(add.step(n=RESULT) for _ in range(LONG - 1))]

    handle = await app.client.enqueue(chain(*steps))
    await drained(app)

    ended = {task.id: task for task in await tasks(app)}
    assert [ended[id].state for id in (handle.id, *handle.following)] == [State.COMPLETED] * LONG
    assert ended[handle.following[-1]].result == str(LONG).encode()


async def test_a_chain_that_is_too_large_is_refused(app: App, add: Adds) -> None:
    large = add.step(n="9" * 1_000_000)

    with pytest.raises(InvalidOption, match="more than the limit of 4,194,304"):
        await app.client.enqueue(add.step(n=0).then(*[large] * 59))

    assert await tasks(app) == []


async def test_every_task_of_a_chain_has_the_tenant_of_the_first(app: App, add: Adds) -> None:
    one = add.using(tenant="acme").step(n=0)
    other = add.using(tenant="beta").step(n=RESULT)

    await app.client.enqueue(chain(one, add.step(n=RESULT), add.step(n=RESULT)))
    await app.client.enqueue(chain(one, other, add.step(n=RESULT)))
    await add.using(tenant="acme", next=add.step(n=RESULT)).aenqueue(5)
    await drained(app)

    found = [(task.tenant, task.result) for task in await tasks(app, State.COMPLETED)]
    assert sorted(found) == [
        ("acme", b"1"),
        ("acme", b"1"),
        ("acme", b"2"),
        ("acme", b"3"),
        ("acme", b"6"),
        ("acme", b"7"),
        ("beta", b"2"),
        ("beta", b"3"),
    ]


async def test_the_last_task_of_a_group_has_the_tenant_that_all_share(
    app: App, add: Adds, total: Sums
) -> None:
    acme, beta = add.using(tenant="acme").step(n=0), add.using(tenant="beta").step(n=0)

    *_, shared = await app.client.enqueue_group([acme, acme], total.step(numbers=RESULT))
    *_, mixed = await app.client.enqueue_group([acme, beta], total.step(numbers=RESULT))
    *_, given = await app.client.enqueue_group([acme, acme], total.using(tenant="beta").step(numbers=RESULT))

    assert [(await one.task()).tenant for one in (shared, mixed, given)] == ["acme", "", "beta"]


async def test_the_last_task_of_a_group_waits_for_the_ends_of_its_chains(
    app: App, add: Adds, total: Sums
) -> None:
    three = chain(add.step(n=0), add.step(n=RESULT), add.step(n=RESULT))
    forked = add.step(n=10).then(add.step(n=RESULT), chain(add.step(n=RESULT), add.step(n=RESULT)))

    *members, last = await app.client.enqueue_group(
        [three, add.step(n=100), forked], total.step(numbers=RESULT)
    )
    await drained(app)

    ended = await last.task()
    assert json.loads(ended.result or b"") == 3 + 101 + 12 + 13
    assert ended.after == tuple(member.id for member in members)
    assert [len(member.following) for member in members] == [2, 0, 3]
    assert {task.root for task in await tasks(app)} == {members[0].id}


async def test_a_chain_of_a_group_that_dies_is_waited_for_until_its_replay(
    app: App, add: Adds, total: Sums
) -> None:
    broken = chain(add.step(n=0), add.using(max_attempts=1).step(n="x"), add.step(n=RESULT))
    head, last = await app.client.enqueue_group([broken], total.step(numbers=RESULT))
    await drained(app)
    assert await last.state() is State.WAITING

    await app.operator.replay_one(head.following[0], payload=b'{"n": 41}', by=By(who="ada"))
    await drained(app)

    assert json.loads((await last.task()).result or b"") == 43


async def test_a_chain_of_a_group_that_is_cancelled_cancels_the_last(
    app: App, add: Adds, total: Sums
) -> None:
    slow = chain(add.step(n=0), add.using(delay="1h").step(n=RESULT))
    head, _, last = await app.client.enqueue_group([slow, add.step(n=1)], total.step(numbers=RESULT))
    await drained(app)
    assert await last.state() is State.WAITING

    await (await app.client.get(head.following[0])).cancel(why="not today")

    task = await last.task()
    assert (task.state, task.error and head.following[0] in task.error.message) == (State.CANCELLED, True)


async def test_many_workers_end_the_chains_of_many_groups_at_once(app: App, add: Adds, total: Sums) -> None:
    long = chain(add.step(n=0), *[add.step(n=RESULT)] * 3)
    ends = [(await app.client.enqueue_group([long] * 8, total.step(numbers=RESULT)))[-1] for _ in range(5)]

    await asyncio.gather(*(working_until(app, ends, name) for name in ("a", "b", "c")))

    assert [await end.result() for end in ends] == [32] * 5
    assert {task.state for task in await tasks(app)} == {State.COMPLETED}


async def working_until(app: App, ends: list[Handle[Any]], name: str) -> None:
    async with working(app, name=name):
        for end in ends:
            await end.wait(timeout=60)


async def test_a_diamond(app: App, add: Adds, total: Sums) -> None:
    top = await add.using(tenant="acme").aenqueue(0)
    left = await add.using(after=[top]).aenqueue(10)
    right = await app.client.enqueue(add.step(n=20), after=[top.id])
    bottom = await total.using(after=[left, right.id]).aenqueue(numbers=RESULT)
    assert [await one.state() for one in (top, left, right, bottom)] == ["ready", *["waiting"] * 3]

    await drained(app)

    assert await bottom.result() == 11 + 21
    assert {(task.root, task.tenant) for task in await tasks(app)} == {(top.id, "acme")}
    assert (await bottom.task()).after == (left.id, right.id)


async def test_a_task_can_wait_for_others_that_have_ended(app: App, add: Adds, total: Sums) -> None:
    done, other = await add.aenqueue(1), await add.aenqueue(2)
    await drained(app)
    gone = await add.aenqueue(3)
    await gone.cancel()

    after = await total.using(after=[done, other]).aenqueue(RESULT)
    never = await app.client.send("add", {"n": 4}, after=[done, gone])
    await drained(app)

    assert await after.result() == 5
    assert (await after.task()).root == after.id, "it waits for two that have nothing in common"
    ended = await never.task()
    assert (ended.state, ended.error and ended.error.message) == (
        State.CANCELLED,
        f"task {gone.id}, which it waited for, had been cancelled",
    )


async def test_an_unknown_task_to_wait_for_is_not_found_and_nothing_is_stored(app: App, add: Adds) -> None:
    known = await add.aenqueue(1)

    for enqueued in (
        lambda: add.using(after=[known, new_id()]).aenqueue(2),
        lambda: app.client.enqueue(add.step(n=2), after=[new_id()]),
        lambda: app.client.send("add", {"n": 2}, after=[new_id()]),
        lambda: add.using(after=[new_id()]).aenqueue_many([{"n": 2}, {"n": 3}]),
    ):
        with pytest.raises(NotFound, match=r"there is no task .* to wait for"):
            await enqueued()

    assert [task.id for task in await tasks(app)] == [known.id]


async def test_many_can_wait_for_one(app: App, add: Adds, total: Sums) -> None:
    first = await add.using(tenant="acme").aenqueue(1)

    many = await total.using(after=[first]).aenqueue_many([{"numbers": RESULT}, {"numbers": [5]}])
    more = await add.using(after=[first]).aenqueue_many([{"n": 5}, {"n": 6}])
    await drained(app)

    assert [await one.result() for one in (*many, *more)] == [2, 5, 6, 7]
    assert {(task.root, task.tenant) for task in await tasks(app)} == {(first.id, "acme")}


def test_blocking_callers_wait_for_tasks_too() -> None:
    app = App("memory://")

    @app.task
    def add(n: int) -> int:
        return n + 1

    first = add.enqueue(1)
    second = add.using(after=[first]).enqueue(2)
    third = app.sync_client.enqueue(add.step(n=3), after=[first.id, second])
    fourth = app.sync_client.send("add", {"n": 4}, after=(third,))

    assert [one.task().after for one in (second, third, fourth)] == [
        (first.id,),
        (first.id, second.id),
        (third.id,),
    ]


def test_a_task_can_wait_for_one_of_the_same_transaction(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/windlass.db")

    @app.task
    def add(n: int) -> int:
        return n + 1

    committed = add.enqueue(1)
    with closing(sqlite3.connect(tmp_path / "windlass.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        first = add.using(within=connection, tenant="acme").enqueue(2)
        second = add.using(within=connection, after=[first]).enqueue(3)
        third = app.sync_client.enqueue(add.step(n=4), within=connection, after=[committed.id])
        connection.execute("COMMIT")

    assert [one.state() for one in (first, second, third)] == ["ready", "waiting", "waiting"]
    assert (second.task().root, second.task().tenant) == (first.id, "acme")


async def test_a_duplicate_step_in_a_chain_of_a_group_cancels_the_last(
    app: App, add: Adds, total: Sums
) -> None:
    standing = await add.using(unique=True, delay="1h").aenqueue(7)
    doubled = chain(add.step(n=0), add.using(unique=True).step(n=7), add.step(n=RESULT))

    head, last = await app.client.enqueue_group([doubled], total.step(numbers=RESULT))
    await drained(app)

    ended = await last.task()
    assert (ended.state, ended.error and head.following[0] in ended.error.message) == (State.CANCELLED, True)
    assert await standing.state() is State.SCHEDULED


NOTHING_KEPT = Retention(completed=timedelta(0), cancelled=timedelta(0))
REPLAYED = ["replayed", "edited", "spread"]
LATER = ["paused", "retried", "cancelled", "after the fact", *REPLAYED]


@pytest.mark.parametrize("how", LATER)
async def test_a_join_is_called_with_results_that_are_past_their_retention(
    app: App, clock: ManualClock, add: Adds, how: str
) -> None:
    errors: list[Exception] = [ValueError()] if how == "retried" else [Fatal()] if how in REPLAYED else []
    taken: list[Any] = []

    @app.task(name="join", queue="joins", backoff=Backoff(base=0, jitter=0))
    def join(results: Any, note: str = "") -> None:
        if errors:
            raise errors.pop()
        taken.append((results, note))

    async def prune() -> None:
        clock.advance(timedelta(days=1))
        await app.operator.prune(NOTHING_KEPT)

    await app.operator.pause("joins", create=True)
    last = await enqueued_join(app, add, join.step(results=RESULT), how)
    await drained(app)
    await prune()
    by = By(who="ada")
    if how == "cancelled":
        await last.cancel()
        await app.operator.replay_one(last.id, by=by)
    await app.operator.resume("joins")
    await drained(app)
    if how in REPLAYED:
        assert await last.state() is State.DEAD
        await prune()
        if how == "edited":
            await app.operator.replay_one(last.id, by=by, payload=b'{"note": "again"}')
        else:
            spread = "1h" if how == "spread" else None
            await app.operator.replay(Filter(queues=("joins",)), by=by, spread=spread)
        await drained(app)

    assert taken == [([3, 12], "again" if how == "edited" else "")]
    assert await last.state() is State.COMPLETED
    await prune()
    assert await tasks(app) == []


async def enqueued_join(app: App, add: Adds, join: Any, how: str) -> Handle[Any]:
    """Enqueue a chain and a task, and a last one that takes the results of both ends."""
    if how == "after the fact":
        done = [await add.aenqueue(2), await add.aenqueue(11)]
        await drained(app)
        return await app.client.enqueue(join, after=done)
    steps = [chain(add.step(n=1), add.step(n=RESULT)), add.step(n=11)]
    return (await app.client.enqueue_group(steps, join))[-1]


class TestOnFailure:
    """What follows a task that dies."""

    @pytest.fixture
    def fail(self, app: App) -> TaskType[[int], int, int]:
        @app.task(name="fail", max_attempts=2, backoff=Backoff(base=0, jitter=0))
        def fail(n: int) -> int:
            raise ValueError(f"no {n}")

        return fail

    @pytest.fixture
    def seen(self, app: App) -> list[Any]:
        return []

    @pytest.fixture
    def refund(self, app: App, seen: list[Any]) -> TaskType[[int, Any], None, None]:
        @app.task(name="refund")
        def refund(order: int, failure: Any) -> None:
            seen.append((order, failure))

        return refund

    async def test_it_is_told_what_the_task_died_of(
        self, app: App, add: Adds, fail: Any, refund: Any, seen: list[Any]
    ) -> None:
        step = refund.step(order=7, failure=RESULT)
        dead = await fail.using(on_failure=step, next=add.step(n=RESULT)).aenqueue(n=1)
        fine = await add.using(on_failure=step).aenqueue(1)
        await drained(app)

        error = {"type": "ValueError", "message": "no 1"}
        assert seen == [(7, {"id": dead.id, "type": "fail", "error": error})]
        assert (await dead.state(), await fine.state()) == (State.DEAD, State.COMPLETED)
        assert fine.following == ()
        assert len(await tasks(app)) == 3

    async def test_it_follows_whichever_step_of_a_chain_dies(
        self, app: App, add: Adds, fail: Any, refund: Any, seen: list[Any]
    ) -> None:
        steps = add.step(n=1), fail.step(n=2), add.step(n=RESULT)
        first = await app.client.enqueue(chain(*steps, on_failure=refund.step(order=7, failure=RESULT)))
        await drained(app)

        assert [(order, failure["id"]) for order, failure in seen] == [(7, first.following[0])]
        assert {task.root for task in await tasks(app)} == {first.id}

    async def test_a_group_does_not_wait_for_it(
        self, app: App, add: Adds, fail: Any, total: Sums, refund: Any, seen: list[Any]
    ) -> None:
        step = refund.step(order=7, failure=RESULT)
        members = [fail.using(on_failure=step).step(n=1), add.using(on_failure=step).step(n=1)]
        *_, last = await app.client.enqueue_group(members, total.step(numbers=RESULT))
        await drained(app)
        assert await last.state() is State.WAITING
        assert len(seen) == 1

    async def test_it_follows_only_the_first_death(
        self, app: App, fail: Any, refund: Any, seen: list[Any]
    ) -> None:
        dead = await fail.using(on_failure=refund.step(order=7, failure=RESULT)).aenqueue(n=1)
        await drained(app)
        await app.operator.replay_one(dead.id, by=By(who="ada"))
        await drained(app)

        assert await dead.state() is State.DEAD
        assert len(seen) == 1
