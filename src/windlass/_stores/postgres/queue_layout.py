"""What a handle knows of queues that are not simply one line: stripes, lanes and limits. (S6, F2-F5)

Several stripes keep many claimers from meeting at one end of the index; order holds within each. Lanes are
for those that take turns. What is known may be some seconds old. So a task may come in where it no longer
belongs; claims find it there, and put it right. Limits hold all the same: where one applies, only a claim
that has asked for all of them is given anything.
"""

import random
from collections.abc import Mapping, Sequence
from time import monotonic

import msgspec
from msgspec import Struct

from ..._model.limit import Limit
from ..._model.queue import QueueSettings
from ..._model.task import NewTask
from ..._policy.order.lanes import lane_of
from ..._policy.order.limits import Subject, limit_key, limits_in_queue
from .claim.arms import Arm
from .script import Row

FRESH_FOR = 2.0
"""Seconds for which what is known is taken to be true."""

LANED = -1
"""The stripe of tasks that have a lane."""

ALL = ""
"""In the table of queues: all of them."""

_settings = msgspec.json.Decoder(QueueSettings)
_limit = msgspec.json.Decoder(Limit)


class Place(Struct, frozen=True):
    """Where a task goes: a stripe of its queue, or a lane and key."""

    stripe: int = 0
    lane: str | None = None
    key: str | None = None


_FRONT = Place()


class Layout:
    """What a handle knows of queues with stripes, lanes or limits."""

    def __init__(self) -> None:
        self._fill: Mapping[str, int] = {}  # stripes that new tasks go to
        self._look: Mapping[str, int] = {}  # stripes that may hold any: they may have been more once
        self._laned: frozenset[str] = frozenset()
        self._guarded: frozenset[str] = frozenset()
        self.settings: Mapping[str, QueueSettings] = {}
        self.limits: Sequence[Limit] = ()
        self._is_plain = True
        self._known_at = -FRESH_FOR

    @property
    def is_stale(self) -> bool:
        """Whether it is time to ask again."""
        return monotonic() - self._known_at >= FRESH_FOR

    def asking(self) -> None:
        """Somebody is asking: the others need not."""
        self._known_at = monotonic()

    def learn(self, rows: Sequence[Row]) -> None:
        """The rows of layout.sql."""
        queues = [row for row in rows if row[0] is not None]
        self._fill = {name: fill for name, fill, *_ in queues if fill > 1}
        self._look = {name: look for name, _, look, *_ in queues if look > 1}
        self._laned = frozenset(row[0] for row in queues if row[3])
        self._guarded = frozenset(row[0] for row in queues if row[4])
        self.settings = {row[0]: read_settings(row[5]) for row in queues if row[5] is not None}
        self.limits = tuple(read_limit(row[5]) for row in rows if row[0] is None)
        self._is_plain = not self._laned and not self._fill

    # -- enqueueing ----------------------------------------------------------------------------------

    def place(self, new: NewTask) -> Place:
        """Where a new task goes."""
        if self._is_plain:
            return _FRONT
        if self.is_laned(new.queue):
            subject = Subject(new.queue, new.type, new.tenant, new.payload)
            return self.lane(subject, new.priority)
        number = self._fill.get(new.queue, 1)
        # By its id, so that a repeat goes to the same stripe.
        return Place(int(new.id[-6:], 16) % number) if number > 1 else _FRONT

    def lane(self, task: Subject, priority: int) -> Place:
        """The lane and key of a task in a queue that has lanes."""
        lane = lane_of(self.settings.get(task.queue), task.tenant, priority)
        return Place(LANED, lane, limit_key(limits_in_queue(self.limits, task.queue), task))

    # -- claiming ------------------------------------------------------------------------------------

    def is_laned(self, queue: str) -> bool:
        """Whether claims look into its lanes."""
        return bool(self._laned) and (queue in self._laned or ALL in self._laned)

    def is_guarded(self, queue: str) -> bool:
        """Whether a limit applies to its tasks, or they are being put into other lanes."""
        return bool(self._guarded) and (queue in self._guarded or ALL in self._guarded)

    def is_striped(self, queues: Sequence[str]) -> bool:
        """Whether any of these has more than one stripe to look into."""
        return bool(self._look) and any(queue in self._look for queue in queues)

    def one_each(self, queues: Sequence[str]) -> list[Arm]:
        """One stripe of each queue, by chance."""
        return [Arm(queue, random.randrange(self._look.get(queue, 1))) for queue in queues]

    def all_of(self, queues: Sequence[str]) -> list[Arm]:
        """Every stripe of every queue."""
        return [Arm(queue, stripe) for queue in queues for stripe in range(self._look.get(queue, 1))]


def read_settings(text: str) -> QueueSettings:
    """A queue's settings as they were kept."""
    return _settings.decode(text)


def read_limit(text: str) -> Limit:
    """A limit as it was kept."""
    return _limit.decode(text)
