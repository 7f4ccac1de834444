"""Unique tasks as programs declare and enqueue them: edited replays, chains, groups, fields and periods."""

from datetime import timedelta
from typing import Any

import pytest

from tests.loops.workers import drained, tasks
from windlass import RESULT, App, By, DuplicateTask, Fatal, InvalidOption, Refused, Retention, State, chain
from windlass.testing.clock import ManualClock

BY = By(who="ada", why="a test")
HOUR = timedelta(hours=1)


@pytest.fixture
def app(clocked_app: App) -> App:
    return clocked_app


# -- edited replays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("unique", [True, ("n",)])
async def test_a_fingerprint_follows_an_edited_payload(app: App, unique: Any) -> None:
    @app.task(name="u", unique=unique)
    async def u(n: int, note: str = "") -> None:
        raise Fatal("no")

    first = await u.aenqueue(n=1)
    await drained(app)

    await app.operator.replay_one(first.id, by=BY, payload=b'{"n": 2}')

    with pytest.raises(DuplicateTask) as refused:
        await u.aenqueue(n=2)
    assert refused.value.standing == first.id
    await u.aenqueue(n=1)


async def test_an_edited_replay_is_refused_while_an_equal_task_has_not_ended(app: App) -> None:
    @app.task(name="u", unique=True)
    async def u(n: int) -> None:
        raise Fatal("no")

    first = await u.aenqueue(n=1)
    await drained(app)
    await u.aenqueue(n=2)

    with pytest.raises(Refused, match="an equal task has not ended"):
        await app.operator.replay_one(first.id, by=BY, payload=b'{"n": 2}')
    assert await first.state() is State.DEAD


# -- chains and groups -----------------------------------------------------------------------------------


async def test_a_unique_step_is_cancelled_if_an_equal_task_stands(app: App) -> None:
    @app.task(name="a")
    async def a() -> int:
        return 50

    @app.task(name="u", unique=True, queue="later")
    async def u(n: int) -> None: ...

    @app.task(name="z", queue="later")
    async def z() -> None: ...

    for _ in range(2):
        await app.client.enqueue(chain(a.step(), u.step(n=RESULT), z.step()))
    await drained(app, queues=("default",), slots=1)

    first, second = [task for task in await tasks(app) if task.type == "u"]
    assert (first.state, second.state) == (State.READY, State.CANCELLED)
    assert (second.error.type, first.id in second.error.message) == ("Duplicate", True)
    await drained(app, queues=("later",))
    assert [task.state for task in await tasks(app) if task.type == "z"] == [State.COMPLETED]
    assert [task.state for task in await tasks(app) if task.type == "a"] == [State.COMPLETED] * 2


async def test_steps_differ_by_the_result_they_take(app: App) -> None:
    @app.task(name="a")
    async def a(n: int) -> int:
        return n

    @app.task(name="u", unique=True, queue="later")
    async def u(n: int) -> None: ...

    for number in (1, 2):
        await app.client.enqueue(chain(a.step(n=number), u.step(n=RESULT)))
    await drained(app, queues=("default",), slots=1)

    assert [task.state for task in await tasks(app) if task.type == "u"] == [State.READY] * 2


async def test_a_step_can_be_unique_though_its_type_is_not(app: App) -> None:
    @app.task(name="a")
    async def a() -> None: ...

    @app.task(name="u", queue="later")
    async def u(n: int, note: str) -> None: ...

    for note in ("one", "two"):
        step = u.using(unique=("n",), unique_for="1h").step(n=1, note=note)
        await app.client.enqueue(chain(a.step(), step))
    await drained(app, queues=("default",), slots=1)

    states = [task.state for task in await tasks(app) if task.type == "u"]
    assert states == [State.READY, State.CANCELLED]


@pytest.mark.parametrize("place", ["member", "then"])
async def test_a_group_with_a_duplicate_is_refused_whole(app: App, place: str) -> None:
    @app.task(name="a")
    async def a() -> None: ...

    @app.task(name="u", unique=True)
    async def u(n: int) -> None: ...

    standing = await u.aenqueue(n=1)
    members, then = ([u.step(n=1)], a.step()) if place == "member" else ([a.step()], u.step(n=1))

    with pytest.raises(DuplicateTask) as refused:
        await app.client.enqueue_group(members, then)

    assert refused.value.standing == standing.id
    assert [task.id for task in await tasks(app)] == [standing.id]


# -- fields and periods ----------------------------------------------------------------------------------


async def test_unique_by_fields_ignores_the_other_fields_and_the_priority(app: App) -> None:
    @app.task(name="u", unique=("user_id",))
    async def u(user_id: int, note: str = "") -> None: ...

    first = await u.aenqueue(user_id=1, note="a")
    for options in ({}, {"priority": "high"}):
        with pytest.raises(DuplicateTask) as refused:
            await u.using(**options).aenqueue(user_id=1, note="b")
        assert refused.value.standing == first.id

    await u.aenqueue(user_id=2)
    await u.using(tenant="acme").aenqueue(user_id=1)
    await u.using(unique=True).aenqueue(user_id=1, note="b")
    await u.using(unique=False).aenqueue(user_id=1)
    with pytest.raises(DuplicateTask):
        await u.aenqueue_many([{"user_id": 7, "note": "a"}, {"user_id": 7, "note": "b"}])


async def test_unique_for_a_period_outlives_the_task_and_its_record(app: App, clock: ManualClock) -> None:
    @app.task(name="u", unique_for="1h")
    async def u(n: int) -> None: ...

    first = await u.aenqueue(n=1)
    await drained(app)
    clock.advance(HOUR - timedelta(seconds=1))
    assert await app.operator.prune(Retention(completed=timedelta(0))) == 1

    with pytest.raises(DuplicateTask, match="unique for a period that has not passed") as refused:
        await u.aenqueue(n=1)
    assert refused.value.standing == first.id
    await u.using(unique_for=None).aenqueue(n=1)
    await drained(app)
    clock.advance(1)
    await u.aenqueue(n=1)


async def test_clients_take_the_options_too(app: App) -> None:
    @app.task(name="u")
    async def u(n: int, note: str = "") -> None: ...

    first = await app.client.enqueue(u.step(n=1), unique=["n"], unique_for=60)
    sent = {"unique": ("n",), "unique_for": timedelta(minutes=1)}
    with pytest.raises(DuplicateTask) as refused:
        await app.client.send("u", {"n": 1, "note": "x"}, **sent)
    assert refused.value.standing == first.id


def test_an_unknown_field_is_refused_where_it_is_written() -> None:
    app = App("memory://")

    with pytest.raises(InvalidOption, match=r"'user', which the handler of 'u' does not have.*user_id"):

        @app.task(name="u", unique=("user",))
        async def wrong(user_id: int) -> None: ...

    @app.task(name="v")
    async def right(user_id: int, note: str = "") -> None: ...

    @app.task(name="w", unique=("anything",))
    async def any_fields(**fields: int) -> None: ...

    right.using(unique=("note",)).step(user_id=1, note=RESULT)
    with pytest.raises(InvalidOption, match="'user', which the payload does not have"):
        right.using(unique=("user",)).step(user_id=1)
    with pytest.raises(InvalidOption, match="'user', which the payload does not have"):
        app.sync_client.send("x", {"user_id": 1}, unique=["user"])
    with pytest.raises(InvalidOption, match="'user', which the payload does not have"):
        app.sync_client.enqueue(right.step(user_id=1), unique=["user"])


async def test_a_schedule_skips_ticks_within_the_period(app: App, clock: ManualClock) -> None:
    @app.task(name="u", unique_for="1h", schedule="30m")
    async def u() -> None: ...

    await app.publish()
    first = await app.operator.schedules.trigger("u")
    await drained(app)

    with pytest.raises(DuplicateTask, match="unique for a period") as refused:
        await app.operator.schedules.trigger("u")
    assert refused.value.standing == first


async def test_another_program_sends_by_what_was_published(app: App) -> None:
    @app.task(name="u", unique=("n",), unique_for="1h")
    async def u(n: int, note: str = "") -> None: ...

    await app.publish()
    first = await u.aenqueue(n=1)
    await drained(app)
    other = App(app.store.inner)

    with pytest.raises(DuplicateTask) as refused:
        await other.client.send("u", {"n": 1, "note": "x"})

    assert refused.value.standing == first.id
