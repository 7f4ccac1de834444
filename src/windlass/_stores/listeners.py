"""Listeners: the callers on one event loop that wait for wakes. A ready task wakes a few of them, not all.

One task needs one worker: if ten thousand idle ones were woken, each would claim and all but one in vain. So
a few are woken, in turn. A claim that gets all it asked for wakes more, as there may be more tasks; one that
gets less ends the wave. If no claim follows, those that were woken are busy or gone, and more are woken after
a moment, until all have been.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import islice
from time import monotonic

from .._model.lease import Claim
from .._store.protocol import Wake

FEW = 2
"""Listeners to wake for a queue that has new ready tasks."""

GROWTH = 4
"""By which the number grows whenever more have to be woken."""

PATIENCE_SECONDS = 0.1
"""Time for a claim before more listeners are woken."""


class Listener:
    """A waiting caller: its queues, none for a keeper, and the hints received so far."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = frozenset(queues)
        self._hints: set[Wake] = set()
        self._changed = asyncio.Event()

    @property
    def is_woken(self) -> bool:
        """Whether there are hints to take."""
        return bool(self._hints)

    def add(self, wake: Wake) -> None:
        """Add a hint; equal ones are merged."""
        self._hints.add(wake)
        self._changed.set()

    async def hints(self) -> list[Wake]:
        """Wait for hints and take them."""
        await self._changed.wait()
        self._changed.clear()
        hints, self._hints = sorted(self._hints), set()
        return hints


class _Wave:
    """The listeners of a queue that have been woken since its tasks became ready."""

    __slots__ = ("began", "next", "timer")

    def __init__(self, began: float) -> None:
        self.began = began
        self.next = FEW  # how many to wake next
        self.timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Listeners:
    """The listeners of one event loop, woken in turn."""

    def __init__(self) -> None:
        self._keepers: set[Listener] = set()
        self._of_queue: dict[str, OrderedDict[Listener, None]] = {}
        self._waves: dict[str, _Wave] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    @property
    def queues(self) -> Collection[str]:
        """The queues that any of them listens to."""
        return self._of_queue.keys()

    def add(self, listener: Listener) -> None:
        self._number += 1
        if not listener.queues:
            self._keepers.add(listener)
        for queue in listener.queues:
            self._of_queue.setdefault(queue, OrderedDict())[listener] = None

    def remove(self, listener: Listener) -> None:
        self._number -= 1
        self._keepers.discard(listener)
        for queue in listener.queues:
            of_queue = self._of_queue[queue]
            del of_queue[listener]
            if not of_queue:
                del self._of_queue[queue]
                self._end_wave(queue)

    def close(self) -> None:
        """Wake nobody any more by itself."""
        for queue in list(self._waves):
            self._end_wave(queue)

    def wake(self, queue: str) -> None:
        """Wake a few of a queue's listeners: it has new ready tasks, or some that may start now."""
        of_queue = self._of_queue.get(queue)
        if of_queue is None:
            return
        self._end_wave(queue)
        if len(of_queue) <= FEW:
            for listener in of_queue:
                listener.add(Wake.READY)
            return
        self._waves[queue] = wave = _Wave(monotonic())
        self._wake_more(queue, wave)

    def wake_every_queue(self) -> None:
        """Wake a few listeners of each queue, and all keepers: hints may have been missed."""
        for queue in list(self._of_queue):
            self.wake(queue)
        self.wake_keepers()

    def wake_keepers(self) -> None:
        """Wake those that listen for no queue: a task is due soon."""
        for listener in self._keepers:
            listener.add(Wake.SCHEDULED)

    def note_claim(self, claim: Claim, claimed: int, began: float) -> None:
        """Take into account what a claim got that began at a time of `monotonic`."""
        if not self._waves:
            return
        is_full = claimed >= claim.limit
        for queue in claim.queues:
            wave = self._waves.get(queue)
            if wave is None or began < wave.began:  # or it may have missed the tasks that began the wave
                continue
            if is_full:
                self._wake_more(queue, wave)
            elif not claim.is_selective:
                self._end_wave(queue)

    def _wake_more(self, queue: str, wave: _Wave) -> None:
        """Wake the next listeners of the queue, and more after a moment unless a claim ends the wave."""
        of_queue = self._of_queue[queue]
        if wave.timer is not None:
            wave.timer.cancel()
        if wave.next >= len(of_queue):
            del self._waves[queue]
        else:
            again = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._wake_more, queue, wave)
            wave.timer = again
        for listener in list(islice(of_queue, wave.next)):
            listener.add(Wake.READY)
            of_queue.move_to_end(listener)
        wave.next *= GROWTH

    def _end_wave(self, queue: str) -> None:
        wave = self._waves.pop(queue, None)
        if wave is not None:
            wave.end()
