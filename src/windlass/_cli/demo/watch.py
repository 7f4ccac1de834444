"""Watching the store: how many tasks are where, a few times a second, and waits for that to change."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable

from msgspec import Struct

from ... import App, Dimension, Filter, State
from ..._model.state import ENDED

EVERY = 0.25
RATE_OVER = 2.0  # seconds that a rate is taken over


class Seen(Struct, frozen=True, kw_only=True):
    """One look."""

    seconds: float  # since the demo began
    counts: Counter[tuple[str, str]]  # by queue and state
    running: Counter[str]  # by worker
    rate: float = 0.0

    def of(self, *states: State) -> int:
        """Tasks in these states."""
        return sum(number for (_, state), number in self.counts.items() if State(state) in states)

    @property
    def ended(self) -> int:
        """Tasks that have ended."""
        return self.of(*ENDED)

    @property
    def total(self) -> int:
        """All there are."""
        return sum(self.counts.values())


class Watch:
    """Looks until it is cancelled."""

    def __init__(self, app: App, show: Callable[[Seen], None]) -> None:
        self._app = app
        self._show = show
        self._changed = asyncio.Condition()
        self._history: deque[tuple[float, int]] = deque()
        self.began = time.monotonic()
        self.seen = Seen(seconds=0.0, counts=Counter(), running=Counter())

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self.began

    async def run(self) -> None:
        """Look, tell, and look again."""
        while True:
            self.seen = await self._look()
            self._show(self.seen)
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(EVERY)

    async def until(self, condition: Callable[[Seen], bool]) -> Seen:
        """Wait for a look that shows this."""
        async with self._changed:
            await self._changed.wait()  # what was seen before the question does not count
            while not condition(self.seen):
                await self._changed.wait()
        return self.seen

    async def _look(self) -> Seen:
        counted = await self._app.operator.count(by=(Dimension.QUEUE, Dimension.STATE))
        running = Counter(
            [task.worker or "" async for task in self._app.operator.every(Filter(states=(State.RUNNING,)))]
        )
        counts = Counter({(count.values[0], count.values[1]): count.number for count in counted})
        seen = Seen(seconds=self.seconds, counts=counts, running=running)
        return Seen(seconds=seen.seconds, counts=counts, running=running, rate=self._rate(seen))

    def _rate(self, seen: Seen) -> float:
        self._history.append((seen.seconds, seen.ended))
        while seen.seconds - self._history[0][0] > RATE_OVER:
            self._history.popleft()
        (first_at, first), (last_at, last) = self._history[0], self._history[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0
