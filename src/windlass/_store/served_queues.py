"""The queues that a worker claims from: those it was given or, with `all_queues`, all that have ready tasks.

Queues that have more ready tasks than one claim took are served in turn, so that a long one does not keep
the others waiting: it has claims of its own, and several short ones share a claim that can take all their
tasks. Otherwise one claim covers all queues that are known. New queues are found at intervals.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from time import monotonic

from .._model.filter import Dimension, Filter
from .._model.lease import Claimed
from .._model.state import State
from ..errors import StoreError
from .outage import Outage
from .protocol import Store, Wake
from .wakes import listen_for_wakes

logger = logging.getLogger("windlass.worker")

FIND_EVERY = 1.0
"""Seconds after which a worker for all queues looks for new ones, at least."""

_SHARE = 20  # Looking for queues takes up one part in this many of the time.
_NAMED = 20  # queues in a line of the log
_READY = Filter(states=(State.READY,))


class ServedQueues:
    """Which queues to claim from next."""

    def __init__(self, store: Store, names: Sequence[str], *, is_open: bool) -> None:
        self._store = store
        self.is_open = is_open  # to queues that are not known yet
        self.names = tuple(names)
        self._busy: deque[str] = deque()  # have more ready tasks, as far as is known; the next one first
        self._ready: dict[str, int] = {}  # how many each of them has, as last counted or guessed
        self._look_at_all = False
        self._changed = asyncio.Event()
        self._finding = asyncio.Lock()
        self._due = 0.0  # when to look for new queues again, by the monotonic clock

    def next(self, limit: int) -> tuple[str, ...]:
        """Return the queues for the next claim, of up to `limit` tasks."""
        if not self._busy or self._look_at_all:
            self._look_at_all = False
            return self.names
        turn: list[str] = []
        while self._busy and (not turn or self._ready[self._busy[0]] <= limit):
            limit -= self._ready[self._busy[0]]
            turn.append(self._busy.popleft())
        self._busy.extend(turn)
        return tuple(turn)

    def wake(self) -> None:
        """Look at all known queues in the next claim: any of them may have new tasks."""
        self._look_at_all = True

    def note_claim(self, queues: Sequence[str], claimed: Sequence[Claimed], *, is_short: bool) -> bool:
        """Take a claim into account; return whether another one may succeed at once."""
        if self.is_open:
            found = Counter(one.task.queue for one in claimed)
            if is_short:
                self._drop(queues)
            else:
                for queue, number in found.items():
                    # If their number is not known, there may be as many again.
                    self._ready[queue] = self._ready.get(queue, 2 * number) - number
                self._drop([queue for queue in found if self._ready[queue] <= 0])
                known = set(self._busy)
                self._busy.extendleft(one for one in found if one in self._ready and one not in known)
        return not is_short or bool(self._busy)

    def _drop(self, queues: Iterable[str]) -> None:
        """Take these for empty."""
        for queue in queues:
            self._ready.pop(queue, None)
        self._busy = deque(queue for queue in self._busy if queue in self._ready)

    # -- new queues ----------------------------------------------------------------------------------

    async def find(self) -> bool:
        """Find the queues that have ready tasks; return whether there are any."""
        began = monotonic()
        counts = await self._store.count(_READY, (Dimension.QUEUE,))
        self._ready = {count.values[0]: count.number for count in counts if count.number}
        known = dict.fromkeys(one for one in self._busy if one in self._ready)
        self._busy = deque([*known, *(one for one in self._ready if one not in known)])
        new = sorted(self._ready.keys() - set(self.names))
        if new:
            logger.info("serving new queues: %s", listed(new))
            self.names = (*self.names, *new)
            self._changed.set()
        self._due = monotonic() + max(FIND_EVERY, (monotonic() - began) * _SHARE)
        return bool(self._ready)

    async def find_if_due(self) -> None:
        """Find queues unless that was done a short time ago; concurrent calls share one look."""
        async with self._finding:
            if monotonic() >= self._due:
                await self.find()

    async def keep_finding(self, on_found: Callable[[], None]) -> None:
        """Look for queues with ready tasks at intervals, until cancelled."""
        while True:
            try:
                if await self.find():
                    on_found()
            except StoreError:
                self._due = monotonic() + FIND_EVERY  # Claims report it.
            await asyncio.sleep(self._due - monotonic())

    async def listen(self, on_wake: Callable[[Wake], None], outage: Outage) -> None:
        """Listen for wakes of all known queues, until cancelled."""
        while True:
            self._changed.clear()
            listening = asyncio.create_task(listen_for_wakes(self._store, self.names, on_wake, outage))
            try:
                await self._changed.wait()
            finally:
                listening.cancel()
                await asyncio.wait([listening])


def listed(queues: Sequence[str]) -> str:
    """Return the names for a log line; of very many the first ones, and the number of the others."""
    names = ", ".join(islice(queues, _NAMED))
    return names if len(queues) <= _NAMED else f"{names} and {len(queues) - _NAMED:,} more"
