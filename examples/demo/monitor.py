"""Polls the store a few times a second: tasks by queue and state; and waits for conditions on them."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from windlass import App, Dimension, Filter, State

EVERY = 0.25
ENDED = (State.COMPLETED, State.CANCELLED, State.DEAD)
RATE_SNAPSHOTS = 8  # over which the rate is measured


class Snapshot(Struct, frozen=True, kw_only=True):
    """The store at one moment."""

    seconds: float  # since the demo began
    counts: Counter[tuple[str, str]]  # by queue and state
    running: Counter[str]  # by worker
    rate: float = 0.0  # tasks ended per second

    def count(self, *states: State) -> int:
        """The number of tasks in these states."""
        return sum(number for (_, state), number in self.counts.items() if State(state) in states)

    @property
    def ended(self) -> int:
        """The number of tasks that have ended."""
        return self.count(*ENDED)

    @property
    def total(self) -> int:
        """The number of all tasks."""
        return sum(self.counts.values())


class Monitor:
    """Takes snapshots until it is cancelled, and shows each."""

    def __init__(self, app: App, show: Callable[[Snapshot], None]) -> None:
        self._app = app
        self._show = show
        self._history: deque[Snapshot] = deque(maxlen=RATE_SNAPSHOTS)
        self._taken = asyncio.Event()  # set by the next snapshot
        self._began = time.monotonic()
        self.latest = Snapshot(seconds=0.0, counts=Counter(), running=Counter())

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    async def run(self) -> None:
        """Take and show snapshots, for ever."""
        running = Filter(states=(State.RUNNING,))
        while True:
            counted = await self._app.operator.count(by=(Dimension.QUEUE, Dimension.STATE))
            workers = [task.worker or "" async for task in self._app.operator.every(running)]
            snapshot = Snapshot(
                seconds=self.seconds,
                counts=Counter({(count.values[0], count.values[1]): count.number for count in counted}),
                running=Counter(workers),
            )
            self.latest = replace(snapshot, rate=self._rate(snapshot))
            self._show(self.latest)
            self._taken.set()
            self._taken = asyncio.Event()
            await asyncio.sleep(EVERY)

    async def until(self, condition: Callable[[Snapshot], bool]) -> None:
        """Wait for a snapshot, taken from now on, that meets the condition."""
        await self._taken.wait()
        while not condition(self.latest):
            await self._taken.wait()

    def _rate(self, snapshot: Snapshot) -> float:
        self._history.append(snapshot)
        first = self._history[0]
        elapsed = snapshot.seconds - first.seconds
        ended = max(snapshot.ended - first.ended, 0)  # fewer if dead letters were replayed or discarded
        return ended / elapsed if elapsed else 0.0
