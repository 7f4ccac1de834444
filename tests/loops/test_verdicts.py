"""From what a handler does to what becomes of its task: signals, backoff, chains and groups."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.loops.workers import assert_nothing_held, drained, eventually, tasks, watched, working
from windlass import RESULT, App, Backoff, Context, Fatal, Filter, Retry, Snooze, State, TaskCancelled, chain
from windlass._model.filter import By
from windlass.testing.faults import Fault


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=Backoff(base=0, jitter=0))


async def test_retry_after_takes_the_delay_that_the_handler_asked_for(app: App) -> None:
    @app.task
    async def busy() -> None:
        raise Retry("the API is busy", after=90)

    handle = await busy.aenqueue()
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.SCHEDULED, 1)
    assert 85 < (task.run_at - task.created_at).total_seconds() < 95
    assert task.error is not None
    assert task.error.message == "the API is busy"


async def test_retry_without_a_delay_follows_the_backoff(app: App) -> None:
    @app.task(max_attempts=3)
    async def busy() -> None:
        raise Retry

    handle = await busy.aenqueue()
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.DEAD, 3)


async def test_a_snooze_gives_its_attempt_back(app: App) -> None:
    seen: list[tuple[int, int]] = []

    @app.task(max_attempts=1)
    async def not_yet(*, ctx: Context) -> str:
        seen.append((ctx.attempt, ctx.fence))
        if len(seen) < 4:
            raise Snooze(0)
        return "now"

    handle = await not_yet.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert await handle.result(timeout=1) == "now"
    assert seen == [(1, 1), (1, 2), (1, 3), (1, 4)]
    lines = await app.operator.attempts(handle.id)
    assert [line.outcome for line in lines] == ["snoozed"] * 3 + ["returned"]


@pytest.mark.parametrize("delay", [timedelta.max, timedelta(days=-1), timedelta.min])
async def test_an_absurd_delay_is_the_failure_of_who_asks_for_it(app: App, delay: timedelta) -> None:
    @app.task
    async def absurd(kind: str) -> None:
        raise Snooze(delay) if kind == "snooze" else Retry(after=delay)

    handles = [await absurd.using(max_attempts=2).aenqueue(kind=kind) for kind in ("snooze", "retry")]
    await drained(app)

    for handle in handles:
        task = await handle.task()
        assert (task.state, task.attempt) == (State.DEAD, 2)
        assert task.error is not None
        assert "from 0 to ten years" in task.error.message


async def test_fatal_and_declared_exceptions_kill_at_once(app: App) -> None:
    @app.task
    async def hopeless() -> None:
        raise Fatal("no such user")

    @app.task(fatal=(LookupError,))
    async def declared() -> None:
        raise KeyError("user")

    @app.task(fatal=(LookupError,))
    def in_thread() -> None:
        raise IndexError("user")

    handles = [await t.aenqueue() for t in (hopeless, declared, in_thread)]
    await drained(app)

    assert [(await h.task()).state for h in handles] == [State.DEAD] * 3
    assert [(await h.task()).attempt for h in handles] == [1, 1, 1]


async def test_a_backoff_function_decides_the_delay(app: App) -> None:
    asked: list[int] = []

    def rule(attempt: int, draw: float) -> timedelta:
        assert 0 <= draw < 1
        asked.append(attempt)
        return timedelta(0) if attempt < 3 else timedelta(minutes=5)

    @app.task(backoff=rule)
    async def failing() -> None:
        raise ValueError

    handle = await failing.aenqueue()
    await drained(app)

    task = await handle.task()
    # Opening the store asks too: it publishes the first delays, for keepers without the function.
    assert (asked[-3:], task.state, task.attempt) == ([1, 2, 3], State.SCHEDULED, 3)
    assert (task.run_at - task.created_at).total_seconds() > 290


@pytest.mark.parametrize("answer", [None, "soon", -1, 1e300, float("nan"), timedelta.max, ZeroDivisionError])
async def test_a_backoff_that_talks_nonsense_strands_no_task(app: App, answer: Any) -> None:
    def rule(_attempt: int, _draw: float) -> Any:
        if answer is ZeroDivisionError:
            raise answer
        return answer

    @app.task(backoff=rule)
    async def failing() -> None:
        raise ValueError("first")

    handle = await failing.aenqueue()
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.SCHEDULED, 1)
    assert 0.5 < (task.run_at - task.created_at).total_seconds() < 10
    await assert_nothing_held(app)


async def test_a_backoff_may_say_its_delay_in_seconds(app: App) -> None:
    @app.task(backoff=lambda _attempt, _draw: 90)  # type: ignore[arg-type,return-value]
    async def failing() -> None:
        raise ValueError

    handle = await failing.aenqueue()
    await drained(app)

    task = await handle.task()
    assert 85 < (task.run_at - task.created_at).total_seconds() < 95


async def test_a_task_out_of_attempts_is_a_dead_letter_with_its_last_error(app: App) -> None:
    @app.task(max_attempts=3)
    async def failing(*, ctx: Context) -> None:
        raise ValueError(f"failure {ctx.attempt}")

    handle = await failing.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.DEAD, 3)
    assert task.error is not None
    assert task.error.message == "failure 3"
    lines = await app.operator.attempts(handle.id)
    assert [(line.number, line.error.message if line.error else "") for line in lines] == [
        (1, "failure 1"),
        (2, "failure 2"),
        (3, "failure 3"),
    ]


async def test_a_chain_hands_each_result_on_and_shares_one_root_and_trace(app: App) -> None:
    @app.task
    async def fetch(url: str) -> dict[str, str]:
        return {"page": f"<{url}>"}

    @app.task
    def shout(page: dict[str, str], mark: str) -> str:
        return page["page"].upper() + mark

    @app.task
    async def keep(text: str) -> str:
        return text * 2

    steps = chain(fetch.step("a"), shout.step(RESULT, mark="!"), keep.step(text=RESULT))
    handle = await app.client.enqueue(steps)
    await drained(app)

    found = await tasks(app)
    assert [task.state for task in found] == [State.COMPLETED] * 3
    assert found[-1].result == b'"<A>!<A>!"'
    assert {task.root for task in found} == {handle.id}
    assert len({task.trace for task in found}) == 1


async def test_a_chain_stops_at_a_task_that_dies_and_goes_on_when_it_is_replayed(app: App) -> None:
    broken = True

    @app.task(max_attempts=1)
    async def first() -> int:
        if broken:
            raise ValueError
        return 1

    @app.task
    async def second(n: int) -> int:
        return n + 1

    handle = await app.client.enqueue(first.step().then(second.step(n=RESULT)))
    await drained(app)
    assert [task.state for task in await tasks(app)] == [State.DEAD]

    broken = False
    await app.operator.replay(by=By(who="ann"))
    await drained(app)

    found = await tasks(app)
    assert [(task.state, task.result) for task in found] == [(State.COMPLETED, b"1"), (State.COMPLETED, b"2")]
    assert found[1].root == handle.id


async def test_a_result_that_its_successor_cannot_take_kills_the_successor_only(app: App) -> None:
    @app.task
    async def first() -> str:
        return "not a number"

    @app.task
    async def second(n: int) -> int:
        return n

    await app.client.enqueue(first.step().then(second.step(n=RESULT)))
    await drained(app)

    one, two = await tasks(app)
    assert (one.state, two.state, two.attempt) == (State.COMPLETED, State.DEAD, 1)
    assert "does not fit" in two.error.message


async def test_a_group_is_followed_by_one_task_with_all_results_in_order(app: App) -> None:
    @app.task
    async def square(n: int) -> int:
        return n * n

    @app.task
    def total(numbers: list[int], plus: int) -> int:
        return sum(numbers) + plus + numbers[0]

    handles = await app.client.enqueue_group(
        [square.step(n) for n in (5, 2, 3)], total.step(RESULT, plus=100)
    )
    assert await handles[-1].state() is State.WAITING
    await drained(app)

    assert await handles[-1].result(timeout=1) == 25 + 4 + 9 + 100 + 25
    assert {task.root for task in await tasks(app)} == {handles[0].id}


async def test_a_group_waits_while_one_of_it_is_dead(app: App) -> None:
    @app.task(max_attempts=1)
    async def part(n: int) -> int:
        return 1 // n

    @app.task
    async def last(parts: list[int]) -> int:
        return sum(parts)

    handles = await app.client.enqueue_group([part.step(1), part.step(0)], last.step(RESULT))
    await drained(app)
    assert [await handle.state() for handle in handles] == [State.COMPLETED, State.DEAD, State.WAITING]

    await app.operator.replay(Filter(ids=(handles[1].id,)), by=By(who="ann"), payload=b'{"n":1}')
    await drained(app)

    assert await handles[-1].result(timeout=1) == 2


async def test_a_groups_last_task_replayed_alone_does_not_run_without_its_predecessors_results(
    app: App,
) -> None:
    @app.task
    async def part() -> int:
        return 1

    @app.task
    async def last(parts: list[Any]) -> int:
        return len(parts)

    handles = await app.client.enqueue_group([part.step(), part.step()], last.step(RESULT))
    await handles[0].cancel()
    await app.operator.replay_one(handles[-1].id, by=By(who="ann"))
    await drained(app)

    task = await handles[-1].task()
    assert task.state is State.DEAD
    assert task.error is not None
    assert f"{handles[0].id} has no result: it is cancelled" in task.error.message


async def test_what_waits_for_a_cancelled_task_is_cancelled_with_it(app: App) -> None:
    @app.task
    async def part() -> None: ...

    handles = await app.client.enqueue_group([part.step(), part.step()], part.step())
    await handles[0].cancel(why="no longer wanted")
    await drained(app)

    assert [await handle.state() for handle in handles] == [State.CANCELLED, State.COMPLETED, State.CANCELLED]
    with pytest.raises(TaskCancelled, match=handles[0].id):
        await handles[-1].result(timeout=1)


async def test_a_cancelled_first_task_has_no_successors(app: App) -> None:
    ran: list[str] = []

    @app.task
    async def step(name: str) -> None:
        ran.append(name)

    handle = await app.client.enqueue(chain(step.step("one"), step.step("two")))
    await handle.cancel()
    await drained(app)

    assert ran == []
    assert [task.state for task in await tasks(app)] == [State.CANCELLED]


async def test_an_outage_while_results_are_gathered_costs_the_last_task_no_attempt() -> None:
    app, watch = watched()

    @app.task
    async def part() -> int:
        return 2

    @app.task(max_attempts=1)
    async def last(parts: list[int]) -> int:
        return sum(parts)

    handles = await app.client.enqueue_group([part.step(), part.step()], last.step(RESULT))
    watch.then("find", Fault.BEFORE)
    async with working(app, keeper=True):
        await eventually(lambda: watch.calls["find"] >= 1)

        assert await handles[-1].result(timeout=5) == 4
        assert (await handles[-1].task()).attempt == 1


async def test_a_signal_raised_within_a_task_group_is_understood(app: App) -> None:
    async def stop() -> None:
        raise Fatal("no such customer")

    @app.task
    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(stop())

    handle = await grouped.aenqueue()
    await drained(app)

    task = await handle.task()
    assert task.state is State.DEAD
    assert task.attempt == 1
    assert task.error is not None
    assert task.error.message == "no such customer"
