"""Where a claim begins to look, while old transactions keep the dead from being buried.

A claim looks for the lowest rank, and the entries of tasks that were claimed before lie just there. Vacuum
takes them away, unless somebody's open transaction pins it; then every claim walks past all of them, and gets
slower and slower. A claim that begins where the one before began does not. But it would also miss
what is more urgent than that, so this is done only while it pays, and the whole is looked at now and then.
"""

from collections.abc import Sequence

from ...._model.lease import Claimed
from ...._model.task import TaskId
from .arms import FLOOR

SLOWER = 3.0  # than at best: then a floor is tried
_PAYS = 0.6
_SMOOTH = 0.2
_FEWEST = 50  # so many tasks a claim must be about to tell anything
_REST = 5.0  # seconds before the next trial, when a floor did not help
_SHARE = 10.0  # looks at the whole take up this fraction of the time
_LEAST, _MOST = 0.05, 1.0  # seconds between them


class Floors:
    """What one handle has learnt about its queues."""

    def __init__(self) -> None:
        self._lowest: dict[str, tuple[int, TaskId]] = {}  # of the last claim, by queue
        self._best: float | None = None  # seconds a task
        self._whole = 0.0  # the same, lately, looking from the beginning
        self._active = False
        self._trial = False
        self._next_look = 0.0
        self._next_trial = 0.0

    def of(self, queues: Sequence[str], now: float) -> list[tuple[int, TaskId]]:
        """From which rank and id on to look in each of these."""
        floored = self._trial or (self._active and now < self._next_look)
        return [self._lowest.get(queue, FLOOR) if floored else FLOOR for queue in queues]

    def learn(
        self, claimed: Sequence[Claimed], number: int, seconds: float, *, floored: bool, now: float
    ) -> None:
        """A claim was answered in full: it was about so many tasks and took so long."""
        lowest: dict[str, tuple[int, TaskId]] = {}
        for one in claimed:
            if one.task.queue not in lowest:
                lowest[one.task.queue] = (one.task.rank, one.task.id)
        self._lowest.update(lowest)
        if number < _FEWEST:
            return
        pace = seconds / number
        if floored:
            self._learn_floored(pace, now)
        else:
            self._learn_whole(pace, seconds, now)

    def _learn_whole(self, pace: float, seconds: float, now: float) -> None:
        self._whole = pace if not self._whole else self._whole + (pace - self._whole) * _SMOOTH
        self._best = self._whole if self._best is None else min(self._best * 1.001, self._whole)
        if self._active:
            self._next_look = now + min(max(seconds * _SHARE, _LEAST), _MOST)
            self._active = pace > self._best / _PAYS
        elif self._whole > self._best * SLOWER and now >= self._next_trial:
            self._trial = True

    def _learn_floored(self, pace: float, now: float) -> None:
        if not self._trial:
            return
        self._trial = False
        self._active = pace < self._whole * _PAYS
        self._next_look = now + _LEAST
        if not self._active:
            self._next_trial = now + _REST
