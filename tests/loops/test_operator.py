"""The operator: replay, discard, cancel and pause tasks; each change is in the audit log."""

import asyncio
import math
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.loops.workers import drained, tasks
from windlass import (
    RESULT,
    App,
    Filter,
    InvalidOption,
    InvalidPayload,
    NotFound,
    Page,
    Refused,
    State,
    TaskFinished,
)
from windlass._client.tasks import batches
from windlass._model.filter import By, CancelTasks, Dimension

ANN = By(who="ann", why="the API is back")


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.fixture
async def dead(app: App) -> list[str]:
    """Six dead letters of two types; odd numbers work when they are replayed."""

    @app.task(name="mail", max_attempts=1)
    async def mail(n: int) -> int:
        if n < 10:
            raise ValueError(f"no mail {n}")
        return n

    @app.task(name="sms", max_attempts=1)
    async def sms(n: int) -> int:
        if n < 10:
            raise TimeoutError(f"no sms {n}")
        return n

    handles = [await (mail if n % 2 else sms).aenqueue(n) for n in range(6)]
    await drained(app, slots=1)
    return [handle.id for handle in handles]


async def test_replaying_by_filter_brings_back_what_matches_with_all_attempts(
    app: App, dead: list[str]
) -> None:
    number = await app.operator.replay(Filter(types=("mail",), states=(State.DEAD,)), by=ANN)

    ready = await tasks(app, State.READY)
    assert number == 3
    assert {(task.type, task.attempt, task.finished_at) for task in ready} == {("mail", 0, None)}
    audit = await app.operator.audit()
    assert {(line.who, line.why, line.action) for line in audit.items} == {
        ("ann", "the API is back", "replay")
    }


async def test_replaying_by_error_and_with_a_limit(app: App, dead: list[str]) -> None:
    assert await app.operator.replay(Filter(error="no sms"), by=ANN, limit=2) == 2
    assert len(await tasks(app, State.READY)) == 2


@pytest.mark.parametrize("pace", [{"per_second": 0.1}, {"spread": "1m"}, {"spread": 60}])
async def test_a_replay_can_be_spread_over_time(
    app: App, dead: list[str], monkeypatch: pytest.MonkeyPatch, pace: dict[str, float]
) -> None:
    """In batches that each go on where the one before stopped."""
    monkeypatch.setattr(batches, "BATCH", 2)

    number = await app.operator.replay(by=ANN, **pace)

    replayed = [*await tasks(app, State.READY), *await tasks(app, State.SCHEDULED)]
    assert number == len(replayed) == 6
    due = [(task.run_at - replayed[0].run_at).total_seconds() for task in replayed]
    assert [round(seconds) for seconds in due] == [0, 10, 20, 30, 40, 50]
    audit = await app.operator.audit()
    assert all("run_at" in line.detail for line in audit.items)


async def test_a_spread_is_over_those_that_are_replayed(app: App, dead: list[str]) -> None:
    assert await app.operator.replay(by=ANN, limit=3, spread="1m") == 3

    later = await tasks(app, State.SCHEDULED)
    assert (later[1].run_at - later[0].run_at).total_seconds() == 20


async def test_a_replay_has_one_pace_that_can_be_kept(app: App, dead: list[str]) -> None:
    for pace in ({"per_second": 0}, {"spread": -1}, {"per_second": 1, "spread": "1m"}):
        with pytest.raises(InvalidOption, match=r"per_second|spread"):
            await app.operator.replay(by=ANN, **pace)
    assert len(await tasks(app, State.DEAD)) == 6


async def test_an_edited_payload_is_for_one_task_and_must_be_one(app: App, dead: list[str]) -> None:
    with pytest.raises(InvalidOption, match="an edited payload needs exactly one task id"):
        await app.operator.replay(by=ANN, payload=b"{}")
    for wrong in (b"[1]", b"{", b'{"n": NaN}', b"\xff"):
        with pytest.raises(InvalidPayload):
            await app.operator.replay(Filter(ids=(dead[0],)), by=ANN, payload=wrong)
    assert len(await tasks(app, State.DEAD)) == 6

    await app.operator.replay_one(dead[0], by=ANN, payload=b'{"n": 11}')
    await drained(app)

    task = await app.operator.task(dead[0])
    assert (task.state, task.result) == (State.COMPLETED, b"11")
    assert (await app.operator.audit()).items[0].detail.endswith('"edited":true}')


async def test_only_what_may_be_replayed_or_discarded_is(app: App, dead: list[str]) -> None:
    await app.operator.replay_one(dead[0], by=ANN, payload=b'{"n": 11}')
    await drained(app)

    with pytest.raises(Refused, match="only dead or cancelled tasks can be replayed"):
        await app.operator.replay_one(dead[0], by=ANN)
    with pytest.raises(Refused, match="only dead tasks can be discarded"):
        await app.operator.discard_one(dead[0], by=ANN)
    with pytest.raises(TaskFinished, match="has already ended"):
        await app.operator.cancel_one(dead[0], by=ANN)
    with pytest.raises(NotFound):
        await app.operator.cancel_one("01900000-0000-7000-8000-000000000000", by=ANN)


async def test_discarding_demands_a_reason_and_is_for_ever(app: App, dead: list[str]) -> None:
    for why in ("", "  "):
        with pytest.raises(InvalidOption, match="give a reason"):
            await app.operator.discard(Filter(), by=By(who="ann", why=why))
    assert len(await tasks(app)) == 6

    number = await app.operator.discard(Filter(types=("sms",)), by=By(who="ann", why="customer left"))

    assert number == 3
    assert {task.type for task in await tasks(app)} == {"mail"}
    audit = await app.operator.audit()
    assert sorted(line.task_id for line in audit.items) == sorted(dead[::2])


async def test_cancelling_by_filter_is_audited_and_tells_how_many(app: App, dead: list[str]) -> None:
    for n in range(3):
        await app.client.send("mail", {"n": n}, delay=60)
    number = await app.operator.cancel(Filter(types=("mail",)), by=ANN, limit=2)

    assert number == 2
    assert len(await tasks(app, State.CANCELLED)) == 2
    assert len(await tasks(app, State.SCHEDULED)) == 1


async def test_cancelling_a_pending_task_says_so_at_once(app: App, dead: list[str]) -> None:
    handle = await app.client.send("mail", {"n": 1})

    assert await app.operator.cancel_one(handle.id, by=ANN) is State.CANCELLED


async def test_every_task_is_found_page_by_page(app: App) -> None:
    await app.open()
    for n in range(7):
        await app.client.send("mail", {"n": n}, queue="mail" if n % 2 else "post")

    first = await app.operator.find(page=Page(limit=3))
    assert len(first.items) == 3
    assert len([task async for task in app.operator.every()]) == 7
    counts = await app.operator.count(by=[Dimension.QUEUE, Dimension.STATE])
    assert [(count.values, count.number) for count in counts] == [
        (("mail", "ready"), 3),
        (("post", "ready"), 4),
    ]
    for limit in (0, 1001):
        with pytest.raises(InvalidOption, match="a page holds"):
            await app.operator.find(page=Page(limit=limit))


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_tasks_are_counted_by_dimensions_or_their_names(scheme: str, tmp_path: Path) -> None:
    app = App("memory://" if scheme == "memory" else f"sqlite:///{tmp_path}/tasks.db")
    await app.client.send("mail", {"n": 1}, queue="post")
    by_name = await app.operator.count(by=("state", "queue"))

    assert by_name == await app.operator.count(by=(Dimension.STATE, Dimension.QUEUE))
    assert [one.values for one in by_name] == [("ready", "post")]
    for wrong in ("status", 1, None):
        with pytest.raises(
            InvalidOption, match="by must be one of state, queue, type, tenant, failure, got "
        ):
            await app.operator.count(by=(wrong,))  # type: ignore[arg-type]  # as a program without types
    for text in ("state", Dimension.STATE):
        with pytest.raises(InvalidOption, match=r"by must be a list of dimensions, as in \['state'\], got"):
            await app.operator.count(by=text)
    await app.close()


async def test_a_misspelt_queue_is_refused_and_not_made(app: App) -> None:
    @app.task(queue="mail")
    async def welcome() -> None: ...

    await app.client.send("bill", queue="bills")
    operator = app.operator

    for act in (
        lambda: operator.set_queue("bils", ageing="5m"),
        lambda: operator.pause("bils"),
        lambda: operator.resume("bils"),
        lambda: operator.stripe("bils", 2),
    ):
        with pytest.raises(NotFound, match=r"no queue 'bils'; create=True .*; did you mean 'bills'\?$"):
            await act()
    assert list(await operator.queues()) == []

    await operator.set_queue("mail", ageing="5m")  # named by a type of this app
    await operator.pause("bills")  # named by a task
    await operator.pause("mail")
    await operator.set_queue("new", create=True, ageing="5m")
    assert [one.name for one in await operator.queues()] == ["bills", "mail", "new"]


async def test_pausing_is_remembered_over_a_declaration_of_the_queue(app: App) -> None:
    await app.operator.pause("mail", create=True)
    app.queue("mail", ageing="5m")
    await app.open()

    (settings,) = await app.operator.queues()
    assert settings.paused
    assert settings.ordering.ageing is not None


def test_blocking_operators_do_the_same(app: App) -> None:
    handle = app.sync_client.send("mail", {"n": 1})
    operator = app.sync_operator

    assert operator.task(handle.id).state is State.READY
    assert operator.cancel(Filter(), by=ANN) == 1
    assert operator.replay(Filter(ids=(handle.id,)), by=ANN) == 1
    operator.pause("mail", create=True)
    operator.resume("mail")
    assert [queue.paused for queue in operator.queues()] == [False]
    assert [count.number for count in operator.count()] == [1]
    assert {line.action for line in operator.audit().items} == {"cancel", "replay", "pause", "resume"}
    assert operator.discard(Filter(), by=ANN) == 0
    assert operator.workers() == []
    assert operator.attempts(handle.id) == ()
    assert operator.check()


async def test_cancelling_no_state_cancels_nothing(app: App) -> None:
    @app.task(name="standing")
    async def standing() -> None: ...

    await standing.aenqueue()

    assert await app.operator.cancel(Filter(states=()), by=ANN) == 0
    assert [task.state for task in await tasks(app)] == [State.READY]


# -- edited payloads ---------------------------------------------------------------------------------


async def test_an_edited_payload_is_checked_against_the_handler() -> None:
    app = App("memory://")

    @app.task(name="pay", aliases=("charge",), max_attempts=1)
    async def pay(amount: int) -> int:
        raise ValueError

    handles = [await app.client.send(name, {"amount": 1}) for name in ("pay", "charge")]
    unknown = await app.client.send("unknown", max_attempts=1)
    await drained(app)
    await app.store.apply(CancelTasks(by=ANN), Filter(ids=(unknown.id,)), 1)

    for handle in handles:
        for wrong in (b'{"amount": "one"}', b"{}", b'{"amount": 1, "amuont": 2}'):
            with pytest.raises(InvalidPayload, match="does not fit pay"):
                await app.operator.replay_one(handle.id, by=ANN, payload=wrong)
        assert await handle.state() is State.DEAD
        await app.operator.replay_one(handle.id, by=ANN, payload=b'{"amount": 2}')
        assert (await handle.task()).payload == b'{"amount":2}'
    await app.operator.replay_one(unknown.id, by=ANN, payload=b'{"anything": 1}')


async def test_an_edited_payload_is_given_as_that_of_an_enqueue() -> None:
    app = App("memory://")

    @app.task(name="report", max_attempts=1)
    async def report(day: date, amount: int = 1) -> int:
        raise ValueError

    handle = await report.aenqueue(day=date(2026, 1, 2))
    unknown = await app.client.send("unknown", {"a": 1}, max_attempts=1)
    await drained(app)
    await app.store.apply(CancelTasks(by=ANN), Filter(ids=(unknown.id,)), 1)

    wrong: Any
    for wrong in (
        {"day": "someday"},
        {"amount": 1},
        {"day": date(2026, 1, 3), "amuont": 2},
        [1],
        5,
        "x",
        object(),
    ):
        with pytest.raises(InvalidPayload):
            await app.operator.replay_one(handle.id, by=ANN, payload=wrong)
    for wrong in ({"a": object()}, {"a": math.nan}, {1: 2}, [1]):
        with pytest.raises(InvalidPayload):
            await app.operator.replay_one(unknown.id, by=ANN, payload=wrong)
    assert await handle.state() is State.DEAD

    await app.operator.replay_one(handle.id, by=ANN, payload={"day": date(2026, 1, 3), "amount": 2})
    await app.operator.replay_one(unknown.id, by=ANN, payload={"anything": [1]})
    assert (await handle.task()).payload == b'{"day":"2026-01-03","amount":2}'
    assert (await unknown.task()).payload == b'{"anything":[1]}'
    await drained(app)

    await asyncio.to_thread(
        app.sync_operator.replay, Filter(ids=(handle.id,)), by=ANN, payload={"day": date(2026, 1, 4)}
    )
    assert (await handle.task()).payload == b'{"day":"2026-01-04"}'


async def test_what_is_sent_by_name_is_a_mapping(app: App) -> None:
    @app.task(name="mail")
    async def mail(n: int) -> None: ...

    wrong: Any = [1]
    for name in ("unknown", "mail"):
        with pytest.raises(InvalidPayload, match="must be a mapping of parameters, got a list"):
            await app.client.send(name, wrong)


async def test_a_result_that_is_added_later_may_be_missing_in_an_edited_payload() -> None:
    app = App("memory://")

    @app.task(name="one")
    async def one() -> int:
        return 1

    @app.task(name="sum", max_attempts=1)
    async def total(parts: list[int], tax: int) -> int:
        raise ValueError

    group = [one.step()]
    *_, last = await app.client.enqueue_group(group, total.step(parts=RESULT, tax=1))
    await drained(app)

    with pytest.raises(InvalidPayload):
        await app.operator.replay_one(last.id, by=ANN, payload=b'{"tax": "one"}')
    await app.operator.replay_one(last.id, by=ANN, payload={"tax": 2})
    assert (await last.task()).payload == b'{"tax":2}'


async def test_a_large_payload_is_checked_beside_the_event_loop(app: App) -> None:
    task_id = (await app.client.send("t", {}, max_attempts=1)).id
    await app.operator.cancel_one(task_id, by=By(who="ann"))
    large = b'{"names": [' + b",".join([b'"x"'] * 20_000) + b"]}"

    await app.operator.replay_one(task_id, by=By(who="ann"), payload=large)

    assert (await app.operator.task(task_id)).payload == large.replace(b" ", b"")
    with pytest.raises(InvalidPayload, match="twice"):
        await app.operator.replay_one(task_id, by=By(who="ann"), payload=b'{"a":1,"a":2}' + b" " * 20_000)
