"""Queues that are spread over stripes, so that many claimers do not meet at one end of the index. (S6)

Order holds within a stripe. A claim reaches into one of them, and into all where that was not enough.
"""

import random
from collections.abc import Mapping, Sequence
from time import monotonic

from .arms import Arm
from .scripts import Row

FRESH_FOR = 5.0
"""Seconds for which what is known about stripes is taken to be true."""


class Striping:
    """What a handle knows of queues that have more than one stripe."""

    def __init__(self) -> None:
        self.fill: Mapping[str, int] = {}  # stripes that new tasks go to
        self._look: Mapping[str, int] = {}  # stripes that may hold any: they may have been more once
        self._known_at = -FRESH_FOR

    @property
    def is_stale(self) -> bool:
        """Whether it is time to ask again."""
        return monotonic() - self._known_at >= FRESH_FOR

    def asking(self) -> None:
        """Somebody is asking: the others need not."""
        self._known_at = monotonic()

    def learn(self, rows: Sequence[Row]) -> None:
        """The rows of stripes.sql: queue, stripes to fill, stripes to look into."""
        self.fill = {queue: fill for queue, fill, _ in rows if fill > 1}
        self._look = {queue: look for queue, _, look in rows if look > 1}

    def is_striped(self, queues: Sequence[str]) -> bool:
        """Whether any of these has more than one stripe to look into."""
        return bool(self._look) and any(queue in self._look for queue in queues)

    def one_each(self, queues: Sequence[str]) -> list[Arm]:
        """One stripe of each queue, by chance."""
        return [Arm(queue, random.randrange(self._look.get(queue, 1))) for queue in queues]

    def all_of(self, queues: Sequence[str]) -> list[Arm]:
        """Every stripe of every queue."""
        return [Arm(queue, stripe) for queue in queues for stripe in range(self._look.get(queue, 1))]
