"""Reserved slots: kept for their level of priority, and used by no other."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tests.loops.workers import (
    SOON,
    assert_nothing_held,
    drained,
    eventually,
    pause,
    settings,
    tasks,
    watched,
    working,
)
from windlass import App, InvalidOption, State
from windlass._model.lease import Claim
from windlass._model.queue import Level
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault

PRIORITY = {Level.HIGH: 10, Level.MEDIUM: 0, Level.LOW: -10}


class Crowd:
    """An app whose tasks stay until they are let go, and that counts who is in at a time."""

    def __init__(self, app: App | None = None) -> None:
        self.app = app or App("memory://")
        self.inside: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self.seen: list[Counter[str]] = []
        self.let_go = asyncio.Event()

        async def stay(level: str, moment: float | None = None) -> None:
            self.inside[level] += 1
            self.started[level] += 1
            self.seen.append(Counter(self.inside))
            try:
                await (self.let_go.wait() if moment is None else pause(moment))
            finally:
                self.inside[level] -= 1

        self.stay = self.app.task(name="stay")(stay)

    async def add(self, level: Level, number: int = 1, moment: float | None = None) -> None:
        steps = [self.stay.using(priority=PRIORITY[level]).step(str(level), moment) for _ in range(number)]
        await self.app.client.enqueue_many(steps)


async def test_a_low_task_starts_at_once_beside_a_crowd_of_high_ones() -> None:
    crowd = Crowd()
    await crowd.add(Level.HIGH, 50)

    async with working(crowd.app, slots=4, reserve={"low": 1}):
        await eventually(lambda: crowd.inside["high"] == 3)
        await crowd.add(Level.LOW)
        await eventually(lambda: crowd.inside["low"] == 1)
        assert crowd.inside["high"] == 3
        crowd.let_go.set()
        await eventually(lambda: crowd.started["high"] == 50)


async def test_without_a_reserve_it_waits() -> None:
    crowd = Crowd()
    await crowd.add(Level.HIGH, 50)

    async with working(crowd.app, slots=4):
        await eventually(lambda: crowd.inside["high"] == 4)
        await crowd.add(Level.LOW)
        await eventually(lambda: tasks(crowd.app, State.READY))
        await pause(0.5)  # more than two polls
        assert crowd.started["low"] == 0
        crowd.let_go.set()


async def test_tasks_of_the_level_use_the_other_slots_as_well() -> None:
    crowd = Crowd()
    await crowd.add(Level.LOW, 10)

    async with working(crowd.app, slots=4, reserve={"low": 1}):
        await eventually(lambda: crowd.inside["low"] == 4)
        crowd.let_go.set()
        await eventually(lambda: crowd.started["low"] == 10)


async def test_slots_can_be_kept_for_any_level_and_for_several() -> None:
    crowd = Crowd()
    await crowd.add(Level.LOW, 10)
    await crowd.add(Level.MEDIUM, 10)

    async with working(crowd.app, slots=5, reserve={"medium": 2, "high": 2}):
        await eventually(lambda: crowd.inside["medium"] == 3)  # theirs, and the one that is kept for nobody
        assert crowd.inside["low"] == 0
        await crowd.add(Level.HIGH, 3)
        await eventually(lambda: crowd.inside["high"] == 2)
        assert crowd.inside == {"medium": 3, "high": 2}
        crowd.let_go.set()
        await eventually(lambda: crowd.started.total() == 23)


async def test_a_worker_whose_slots_are_all_kept_runs_nothing_else() -> None:
    crowd = Crowd()
    crowd.let_go.set()
    for level in Level:
        await crowd.add(level, 3)

    await drained(crowd.app, slots=2, reserve={"low": 1, "high": 1})

    assert crowd.started == {"low": 3, "high": 3}
    assert len(await tasks(crowd.app, State.READY)) == 3


async def test_draining_with_a_reserve_runs_everything_and_what_follows() -> None:
    crowd = Crowd()
    crowd.let_go.set()
    for _ in range(10):
        after = crowd.stay.using(priority="low").step("low")
        await crowd.stay.using(priority="high", next=after).aenqueue("high")

    await drained(crowd.app, slots=3, reserve={"low": 1})

    assert crowd.started == {"low": 10, "high": 10}
    await assert_nothing_held(crowd.app)


class Mute(MemoryStore):
    """A store that wakes nobody."""

    async def wakes(self, queues: Any) -> Any:
        await asyncio.Event().wait()
        yield


async def test_draining_sees_what_becomes_ready_at_another_level() -> None:
    crowd = Crowd(App(Mute()))
    crowd.let_go.set()
    for _ in range(10):
        after = crowd.stay.using(priority="high").step("high")
        await crowd.stay.using(priority="low", next=after).aenqueue("low")

    await drained(crowd.app, slots=2, reserve={"low": 1, "high": 1})

    assert crowd.started == {"low": 10, "high": 10}


class Slow(MemoryStore):
    """A store whose answers take a while, so that both round trips are under way."""

    async def settle(self, batch: Any, claim: Claim | None = None) -> Any:
        answer = await super().settle(batch, claim)
        await pause(0.003)
        return answer


@pytest.mark.parametrize("seed", range(8))
async def test_never_more_of_the_others_than_slots_that_are_not_kept(seed: int) -> None:
    dice = random.Random(seed)
    slots = dice.randint(2, 8)
    low = dice.randint(1, slots - 1)
    high = dice.randint(0, slots - 1 - low)
    reserve = {level: number for level, number in (("low", low), ("high", high)) if number}
    crowd = Crowd(App(Slow()))

    async with working(crowd.app, slots=slots, reserve=reserve):
        for _ in range(20):
            level = dice.choice(list(Level))
            await crowd.add(level, dice.randint(1, 10), moment=dice.choice([0.0, 0.001, 0.01]))
            await pause(dice.choice([0.0, 0.005]))
        await eventually(lambda: not crowd.inside.total() and _nothing_is_ready(crowd.app))

    shared = slots - low - high
    for inside in crowd.seen:
        kept = max(inside["low"] - low, 0) + max(inside["high"] - high, 0) + inside["medium"]
        assert kept <= shared, f"{inside} in {slots} slots with {reserve}"
        assert inside.total() <= slots
    await assert_nothing_held(crowd.app)


async def _nothing_is_ready(app: App) -> bool:
    return not await tasks(app, State.READY, State.RUNNING)


class Listener(MemoryStore):
    """A store that notes the claims it is asked for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: list[Claim] = []

    async def settle(self, batch: Any, claim: Claim | None = None) -> Any:
        if claim is not None:
            self.asked.append(claim)
        return await super().settle(batch, claim)


async def test_the_numbers_of_claims_rise_whatever_level_they_are_for() -> None:
    store = Listener()
    crowd = Crowd(App(store))
    for level in Level:
        await crowd.add(level, 20, moment=0.001)

    await drained(crowd.app, slots=4, reserve={"low": 1, "high": 1})

    numbers = [claim.number for claim in store.asked]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {claim.level for claim in store.asked} == {None, Level.LOW, Level.HIGH}


async def test_without_a_reserve_no_claim_names_a_level() -> None:
    store = Listener()
    crowd = Crowd(App(store))
    await crowd.add(Level.LOW, 20, moment=0.0)

    await drained(crowd.app, slots=4)

    assert {claim.level for claim in store.asked} == {None}


async def test_room_is_not_lost_with_lost_replies() -> None:
    app, watch = watched()
    crowd = Crowd(app)
    for level in Level:
        await crowd.add(level, 20, moment=0.001)
    watch.then("settle", *(random.Random(7).choice([None, Fault.BEFORE, Fault.AFTER]) for _ in range(12)))

    async with working(app, slots=4, reserve={"low": 1, "high": 1}):
        await eventually(lambda: _all_ended(app, 60), within=2 * SOON)

    assert all(inside["medium"] + max(inside["low"] - 1, 0) <= 2 for inside in crowd.seen)
    await assert_nothing_held(app)


async def _all_ended(app: App, number: int) -> bool:
    return len(await tasks(app, State.COMPLETED)) == number


async def test_at_shutdown_nothing_is_left_behind() -> None:
    crowd = Crowd()
    for level in Level:
        await crowd.add(level, 10)

    async with working(crowd.app, slots=4, reserve={"low": 2}, grace=0):
        await eventually(lambda: crowd.inside.total() == 4)

    await assert_nothing_held(crowd.app)
    assert len(await tasks(crowd.app, State.READY)) == 30


@pytest.mark.parametrize(
    ("reserve", "message"),
    [
        ({"lowest": 1}, "one of high, medium, low"),
        ({"low": 0}, "must be 1 or more"),
        ({"low": True}, "must be 1 or more"),
        ({"low": "2"}, "must be 1 or more"),
        ({"low": 3, "high": 2}, "cannot reserve 5 slots of 4"),
        ("low=1", "reserve must map levels to numbers of slots"),
    ],
)
def test_a_senseless_reserve_is_refused(reserve: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        settings(slots=4, reserve=reserve)
