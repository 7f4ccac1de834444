"""Leaders die while they fire schedules, at any point, and every tick has one task all the same. (T3)"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from time import monotonic

import pytest

from tests.examples import FULL
from windlass._keeper import chores as chores_module
from windlass._keeper import schedules as schedules_module
from windlass._keeper.keeper import Keeper
from windlass._model.filter import MAX_PAGE, Filter, Page
from windlass._model.schedule import Schedule, Tick
from windlass._policy.ticks import ticks
from windlass._store.protocol import Store
from windlass.testing.clock import ManualClock
from windlass.testing.faults import Fault, FaultyStore

EVERY = timedelta(seconds=10)
SOON = 30.0


class Doom:
    """Cuts a keeper off from its store for good, in the middle of firing: a plan for FaultyStore."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._left = dice.randint(1, 16)
        self.end: tuple[str, Fault] | None = None

    def __call__(self, verb: str) -> Fault | None:
        if self.end is not None:
            return Fault.BEFORE
        if verb in {"enqueue", "put"}:
            self._left -= 1
            if self._left == 0:
                self.end = verb, self._dice.choice([*Fault])
                return self.end[1]
        return None


class Watch:
    """Two keepers, and another in the place of each that dies."""

    def __init__(self, store: Store, dice: Random) -> None:
        self._store = store
        self._dice = dice
        self._alive: list[tuple[Doom, asyncio.Task[None]]] = []
        self.ends: Counter[str] = Counter()

    async def bury(self) -> None:
        """Replace who was cut off. They say no last words: their store does not hear them."""
        for doom, run in [*self._alive]:
            if doom.end is not None:
                await self._stop(doom, run)
                self.ends[" ".join(doom.end)] += 1
        while len(self._alive) < 2:
            doom = Doom(self._dice)
            keeper = Keeper(FaultyStore(self._store, doom), lease=timedelta(seconds=0.06))
            self._alive.append((doom, asyncio.create_task(keeper.run())))

    async def close(self) -> None:
        for doom, run in [*self._alive]:
            await self._stop(doom, run)

    async def _stop(self, doom: Doom, run: "asyncio.Task[None]") -> None:
        self._alive.remove((doom, run))
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr(chores_module, "_RETRY_AFTER", 0.01)
    monkeypatch.setattr(schedules_module, "RELOAD_EVERY", 0.003)  # the clock is turned faster than it runs


ENDS = {"enqueue before", "enqueue after", "put before", "put after"}
"""Where leaders are killed: before or after what they tell the store."""


@pytest.mark.more
@pytest.mark.parametrize(
    ("factory", "at_least", "kills"),
    [
        ("memory", 2_000 if FULL else 300, 200 if FULL else 30),
        ("sqlite", 400 if FULL else 150, 40 if FULL else 15),
        ("postgres", 400 if FULL else 100, 40 if FULL else 10),
    ],
    indirect=["factory"],
)
async def test_leaders_are_killed_at_random_and_every_tick_is_fired_once(
    store: Store,
    clock: ManualClock,
    at_least: int,
    kills: int,
    record_property: Callable[[str, object], None],
) -> None:
    began, start, dice = monotonic(), clock.now(), Random(7)
    schedule = Schedule(name="s", type="t", every=EVERY, since=start)
    await store.put(schedule)
    watch, fired = Watch(store, dice), 0
    await watch.bury()

    while fired < at_least or watch.ends.total() < kills or len(watch.ends) < len(ENDS):
        clock.advance(dice.choice([1, 1, 1, 2, 3]) * EVERY)
        due = [*ticks(schedule, start, clock.now())]
        await _reached(store, clock, watch, due[-1])
        fired = len(due)
    await watch.close()

    due = [*ticks(schedule, start, clock.now())]
    keys = await _keys(store)
    record_property("ticks", fired)
    record_property("killed", dict(watch.ends))
    record_property("seconds", round(monotonic() - began, 1))
    assert len(keys) == len(set(keys))
    assert sorted(keys) == sorted(f"\x1fschedule:s:{tick.isoformat()}" for tick in due)
    assert set(watch.ends) == ENDS


async def _reached(store: Store, clock: ManualClock, watch: Watch, last: datetime) -> None:
    """Wait until it has come that far. Time goes on meanwhile: a dead leader's lead must run out."""
    deadline, never = monotonic() + SOON, asyncio.Event()
    while True:
        (tick,) = (await store.records(Tick, Page())).items or (
            Tick(name="", at=datetime(1970, 1, 1, tzinfo=UTC)),
        )
        if tick.at >= last:
            return
        assert monotonic() < deadline, f"stuck at {tick.at}"
        await watch.bury()
        clock.advance(0.01)
        with suppress(TimeoutError):
            await asyncio.wait_for(never.wait(), 0.002)


async def _keys(store: Store) -> list[str]:
    keys: list[str] = []
    page = Page(limit=MAX_PAGE)
    while True:
        found = await store.find(Filter(), page)
        keys += [task.idempotency_key or "" for task in found.items]
        if found.cursor is None:
            return keys
        page = Page(limit=MAX_PAGE, cursor=found.cursor)
