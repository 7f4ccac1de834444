"""Replays at a pace, on every store: tasks of a queue with windows are due only while it is open."""

from datetime import UTC, datetime, timedelta

import pytest

from windlass import By, Refused
from windlass._client.operator import Operator
from windlass._client.tasks import replays as replays_module
from windlass._client.tasks.replays import Pace, replay_in_batches
from windlass._model.filter import Filter, Replay
from windlass._model.queue import QueueSettings, Window
from windlass._model.state import State
from windlass._store.protocol import Store
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import all_tasks, bury, settle_now, some_tasks, worker_on

ANN = By(who="ann")
HOUR = timedelta(hours=1)
FROM_TWO = (Window(opens=120, closes=180),)  # 02:00-03:00 UTC
TWICE = (Window(opens=120, closes=180), Window(opens=300, closes=330))
"""Also 05:00-05:30."""


async def dead_letters(store: Store, number: int, queue: str = "reports") -> None:
    await store.enqueue(some_tasks(number, queue=queue))
    worker = await worker_on(store)
    await settle_now(store, *map(bury, await worker.claim(number, queue)))


async def spread(store: Store, pace: Pace, where: Filter | None = None, limit: int | None = None) -> int:
    return await replay_in_batches(store, Replay(by=ANN), where or Filter(), limit, pace)


async def hours(store: Store, clock: ManualClock, queue: str = "reports") -> list[float]:
    """When the tasks of a queue are due, in hours from midnight."""
    midnight = datetime.combine(clock.now().date(), datetime.min.time(), UTC)
    due = [task.run_at for task in await all_tasks(store, Filter(queues=(queue,)))]
    return sorted(round((one - midnight) / HOUR, 3) for one in due)


async def test_a_spread_into_a_closed_queue_begins_when_it_opens(store: Store, clock: ManualClock) -> None:
    await dead_letters(store, 4)
    await store.put(QueueSettings(name="reports", windows=FROM_TWO))

    assert await spread(store, Pace(spread="20m")) == 4
    clock.advance(HOUR)
    early = await store.promote(10)
    clock.advance(HOUR)
    at_opening = await store.promote(10)
    clock.advance(timedelta(minutes=5))
    later = await store.promote(10)

    assert (early.number, at_opening.number, later.number) == (0, 1, 1)
    worker = await worker_on(store)
    assert len(await worker.claim(10, "reports")) == 2
    assert {task.state for task in await all_tasks(store)} == {State.RUNNING, State.SCHEDULED}


async def test_what_does_not_fit_goes_on_at_the_same_pace_from_the_next_openings(
    store: Store, clock: ManualClock
) -> None:
    await dead_letters(store, 8)
    await store.put(QueueSettings(name="reports", windows=TWICE))

    await spread(store, Pace(per_second=1 / 900))  # every 15 minutes

    assert await hours(store, clock) == [2.0, 2.25, 2.5, 2.75, 5.0, 5.25, 26.0, 26.25]


async def test_a_queue_that_closes_during_the_spread(store: Store, clock: ManualClock) -> None:
    await dead_letters(store, 4)
    await store.put(QueueSettings(name="reports", windows=FROM_TWO))
    clock.advance(2.5 * 3600)

    await spread(store, Pace(spread="1h"))

    assert await hours(store, clock) == [2.5, 2.75, 26.0, 26.25]


async def test_queues_without_windows_are_not_delayed_and_all_together_keep_the_pace(
    store: Store, clock: ManualClock
) -> None:
    await dead_letters(store, 2)
    await dead_letters(store, 4, queue="mail")
    await store.put(QueueSettings(name="reports", windows=FROM_TWO))

    assert await spread(store, Pace(spread="1h")) == 6

    assert await hours(store, clock, "mail") == [0.0, 0.25, 0.5, 0.75]
    assert await hours(store, clock) == [2.0, 2.5]


async def test_other_tasks_of_the_queue_keep_their_times_and_go_first_by_rank(
    store: Store, clock: ManualClock
) -> None:
    await dead_letters(store, 2)
    await store.put(QueueSettings(name="reports", windows=FROM_TWO))
    await spread(store, Pace(spread="20m"))
    (other,) = some_tasks(1, queue="reports")
    await store.enqueue([other])

    clock.advance(2 * HOUR)
    await store.promote(10)
    claimed = await (await worker_on(store)).claim(10, "reports")

    assert [one.task.id == other.id for one in claimed] == [True, False]


async def test_a_spread_task_can_be_cancelled_and_replayed_again(store: Store, clock: ManualClock) -> None:
    await dead_letters(store, 3)
    await store.put(QueueSettings(name="reports", windows=FROM_TWO))
    await spread(store, Pace(spread="30m"))
    operator = Operator(store, ANN)

    assert await operator.cancel(Filter(states=(State.SCHEDULED,)), by=ANN) == 3
    clock.advance(timedelta(seconds=1))
    assert await spread(store, Pace(spread="30m"), Filter(states=(State.CANCELLED,))) == 3

    assert await hours(store, clock) == [2.0, 2.167, 2.333]


@pytest.mark.parametrize("pace", [{}, {"spread": "1m"}])
async def test_a_filter_leaves_out_cancelled_tasks_unless_it_names_them(
    store: Store, clock: ManualClock, pace: dict[str, str]
) -> None:
    """Somebody decided that they should not run."""
    await dead_letters(store, 2)
    cancelled = some_tasks(2, queue="reports")
    await store.enqueue(cancelled)
    operator = Operator(store, ANN)
    await operator.cancel(Filter(ids=tuple(one.id for one in cancelled)), by=ANN)
    clock.advance(timedelta(seconds=1))

    assert await operator.replay(Filter(queues=("reports",)), by=ANN, limit=1, **pace) == 1
    assert await operator.replay(Filter(queues=("reports",)), by=ANN, **pace) == 1
    assert await operator.replay(Filter(), by=ANN, **pace) == 0
    assert {(await operator.task(one.id)).state for one in cancelled} == {State.CANCELLED}

    await operator.replay_one(cancelled[0].id, by=ANN)
    assert (await operator.task(cancelled[0].id)).state is State.READY
    named = Filter(queues=("reports",), states=(State.CANCELLED,))
    assert await operator.replay(named, by=ANN, **pace) == 1


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_limit_and_small_batches(
    store: Store, clock: ManualClock, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays_module, "BATCH", 2)
    await dead_letters(store, 5)
    await store.put(QueueSettings(name="reports", windows=FROM_TWO))

    assert await spread(store, Pace(per_second=1 / 600), limit=limit) == limit

    due = [2.0, 2.167, 2.333][:limit]
    replayed = await all_tasks(store, Filter(states=(State.SCHEDULED,)))
    assert sorted(round((one.run_at.hour * 60 + one.run_at.minute) / 60, 3) for one in replayed) == due


async def test_a_spread_into_a_paused_queue_is_refused_and_changes_nothing(
    store: Store, clock: ManualClock
) -> None:
    """Nobody knows when it is resumed: all that is due by then would start at once."""
    await dead_letters(store, 3)
    await dead_letters(store, 2, queue="mail")
    operator = Operator(store, ANN)
    await operator.pause("reports")
    clock.advance(timedelta(seconds=1))

    for pace in (Pace(spread="20m"), Pace(per_second=2)):
        with pytest.raises(
            Refused, match=r"queue 'reports' is paused: 3 tasks .* Resume queue 'reports' first"
        ):
            await spread(store, pace)
    assert {task.state for task in await all_tasks(store)} == {State.DEAD}

    assert await spread(store, Pace(spread="20m"), Filter(queues=("mail",))) == 2
    await operator.resume("reports")
    assert await spread(store, Pace(spread="1h")) == 3
    due = [task.run_at - clock.now() for task in await all_tasks(store, Filter(queues=("reports",)))]
    assert sorted(due) == [HOUR / 3 * step for step in range(3)]


async def test_a_paused_queue_without_dead_letters_does_not_hold_up_a_spread(store: Store) -> None:
    await dead_letters(store, 2)
    await Operator(store, ANN).pause("mail", create=True)

    assert await spread(store, Pace(spread="20m")) == 2
