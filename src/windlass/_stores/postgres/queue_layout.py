"""How queues are laid out, as far as a store knows: stripes, lanes, limits and ageing.

Several stripes keep concurrent claims from meeting at one end of the index; order holds within each stripe.
Lanes are for queues whose tenants or priorities take turns. What a store knows may be a few seconds old, so a
task may be enqueued into a stripe where it no longer belongs; claims find it there and move it. Limits hold
nevertheless: from a queue with a limit only a claim that has counted all permits gets a task.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic

from msgspec import Struct, field

from ..._model.limit import Limit
from ..._model.queue import STRICT_MS, QueueSettings
from ..._model.task import NewTask, TaskId
from ..._policy.order.lanes import lane_of
from ..._policy.order.limits import Subject, limit_key, limits_in_queue
from ..._policy.order.windows import Opening, opening
from ..records import readable, reader
from .rows import Row

FRESH_SECONDS = 2.0
"""How long a layout is used before it is read again."""

_MARGIN = 0.05
"""Seconds by which the estimated time may be ahead of the database's."""

_LANE_STRIPE = -1
"""The column `stripe` of tasks that are in a lane."""

_ALL_QUEUES = ""
"""The column `name` of the row in the table `queue` that applies to all queues."""

START: tuple[int, TaskId] = (-(2**63), "00000000-0000-0000-0000-000000000000")
"""Lower than any rank and id."""

read_settings = reader(QueueSettings)
read_limit = reader(Limit)


class Stripe(Struct, frozen=True):
    """A stripe of a queue to claim from, and the rank and id to start at."""

    queue: str
    number: int = 0
    start: tuple[int, TaskId] = START


class Placement(Struct, frozen=True):
    """Where a task goes, as the table holds it: a stripe of its queue, or a lane and key (see `in_lane`).

    `boost` is the head start of its priority there, in milliseconds.
    """

    stripe: int = 0
    lane: str | None = None
    key: str | None = None
    boost: int = 0


_FIRST_STRIPE = Placement()


def in_lane(lane: str, key: str, boost: int = 0) -> Placement:
    """Return the placement of a task in a lane."""
    return Placement(_LANE_STRIPE, lane, key, boost)


def stored_names(queues: Iterable[str | None]) -> list[str]:
    """Return the names under which the table `queue` holds these queues; None means all queues."""
    return sorted({_ALL_QUEUES if queue is None else queue for queue in queues})


def queue_of(stored: str) -> str | None:
    """Return the queue that a row of the table `queue` is about; None means all queues."""
    return None if stored == _ALL_QUEUES else stored


class QueueLayout:
    """The queues with stripes, lanes or limits, as last read from the database."""

    def __init__(self, clock: Callable[[], datetime | None] = lambda: None) -> None:
        self._clock = clock  # a test's; otherwise that of the database, as last read
        self._filled: Mapping[str, int] = {}  # stripes that new tasks go to
        self._read: Mapping[str, int] = {}  # stripes that may hold tasks: there may have been more once
        self._laned: frozenset[str | None] = frozenset()  # None: all queues
        self._guarded: frozenset[str | None] = frozenset()
        self.settings: Mapping[str, QueueSettings] = {}
        self.limits: Sequence[Limit] = ()
        self._head_starts: Mapping[str, int] | None = None  # of queues with ageing; None: not read yet
        self._reranked: set[str] = set()
        self._openings: dict[str, Opening] = {}  # of queues with windows
        self._bodies: dict[str, str] = {}  # their settings, as stored
        self._now, self._now_at = datetime.min.replace(tzinfo=UTC), 0.0  # when they were read, by two clocks
        self._is_plain = True
        self._read_at = -FRESH_SECONDS

    @property
    def is_stale(self) -> bool:
        """Whether it is time to read the layout again, or to store the next opening of a queue."""
        if monotonic() - self._read_at >= FRESH_SECONDS:
            return True
        return bool(self._openings) and any(
            opening.closes_at <= self._present() for opening in self._openings.values()
        )

    def mark_fresh(self) -> None:
        """Note that the layout is being read, so that concurrent calls need not read it too."""
        self._read_at = monotonic()

    def update(self, rows: Sequence[Row]) -> None:
        """Take over the rows of layout.sql."""
        queues = [(queue_of(row[0]), *row[1:]) for row in rows if row[0] is not None]
        named = [row for row in queues if row[0] is not None]
        self._filled = {row[0]: row[1] for row in named if row[1] > 1}
        self._read = {row[0]: row[2] for row in named if row[2] > 1}
        self._laned = frozenset(row[0] for row in queues if row[3])
        self._guarded = frozenset(row[0] for row in queues if row[4])
        stored = [(row[0], read_settings(row[5])) for row in named if row[5] is not None]
        self.settings = {name: settings for name, settings in stored if settings is not None}
        self.limits = tuple(readable(read_limit, (row[5] for row in rows if row[0] is None)))
        windowed = [row for row in named if row[7] is not None]
        self._openings = {row[0]: Opening(row[7], row[8]) for row in windowed}
        self._bodies = {row[0]: row[5] for row in windowed}
        if windowed:
            self._now, self._now_at = windowed[0][9], self._read_at
        self._note_head_starts({row[0]: row[6] for row in named if row[6] is not None})
        self._is_plain = not self._laned and not self._filled

    # -- windows -------------------------------------------------------------------------------------

    def roll_openings(self) -> list[tuple[str, str, Opening]]:
        """Replace openings that are over by the next ones; return queue, settings and opening, to store."""
        rolled = []
        for queue, known in self._openings.items():
            found = opening(self.settings[queue].windows, self._present())
            if found != known:
                self._openings[queue] = found
                rolled.append((queue, self._bodies[queue], found))
        return rolled

    def seconds_to_opening(self, queues: Sequence[str]) -> float | None:
        """Return the seconds until the first of these queues opens that are closed now; None if none is."""
        if not self._openings:
            return None
        now = self._present()
        openings = [self._openings[queue].opens_at for queue in queues if queue in self._openings]
        waits = [(opens_at - now).total_seconds() for opens_at in openings if opens_at > now]
        return min(waits) + _MARGIN if waits else None

    def _present(self) -> datetime:
        return self._clock() or self._now + timedelta(seconds=monotonic() - self._now_at)

    # -- ranks ---------------------------------------------------------------------------------------

    def _note_head_starts(self, found: Mapping[str, int]) -> None:
        """Note queues whose ageing has changed: this store may have ranked tasks by the old one meanwhile."""
        if self._head_starts is not None:
            names = {*found, *self._head_starts}
            self._reranked |= {name for name in names if found.get(name) != self._head_starts.get(name)}
        self._head_starts = found

    def take_reranked(self) -> set[str]:
        """Return the queues whose ageing has changed since the last call."""
        reranked, self._reranked = self._reranked, set()
        return reranked

    def head_start(self, queue: str) -> int:
        """Return the head start of one priority in a queue, in milliseconds."""
        return (self._head_starts or {}).get(queue, STRICT_MS)

    # -- enqueue -------------------------------------------------------------------------------------

    def placement(self, new: NewTask) -> Placement:
        if self._is_plain and not new.priority:
            return _FIRST_STRIPE
        boost = new.priority * self.head_start(new.queue) if new.priority else 0
        if self.has_lanes(new.queue):
            task = Subject(new.queue, new.type, new.tenant, new.payload)
            lane = lane_of(self.settings.get(task.queue), task.tenant, new.priority)
            return in_lane(lane, limit_key(limits_in_queue(self.limits, task.queue), task), boost)
        number = self._filled.get(new.queue, 1)
        # By its id, so that a retry goes to the same stripe.
        return Placement(int(new.id[-6:], 16) % number if number > 1 else 0, boost=boost)

    # -- claim ---------------------------------------------------------------------------------------

    def has_lanes(self, queue: str) -> bool:
        return bool(self._laned) and (queue in self._laned or None in self._laned)

    def is_guarded(self, queue: str) -> bool:
        """Whether a limit applies to the queue's tasks, or they are being moved to other lanes."""
        return bool(self._guarded) and (queue in self._guarded or None in self._guarded)

    def is_striped(self, queues: Sequence[str]) -> bool:
        """Whether any of these queues has more than one stripe to claim from."""
        return bool(self._read) and any(queue in self._read for queue in queues)

    def random_stripes(self, queues: Sequence[str]) -> list[Stripe]:
        return [Stripe(queue, random.randrange(self._read.get(queue, 1))) for queue in queues]

    def all_stripes(self, queues: Sequence[str]) -> list[Stripe]:
        return [Stripe(queue, number) for queue in queues for number in range(self._read.get(queue, 1))]


class Environment(Struct, frozen=True, kw_only=True):
    """What statements depend on besides their parameters; `clock` is a test's (None: the database's)."""

    schema: str
    clock: datetime | None = None
    layout: QueueLayout = field(default_factory=QueueLayout)
    awaits_standbys: bool = False  # A commit is acknowledged only after a synchronous standby has it.

    @property
    def near_now(self) -> datetime:
        """The time by a test's clock or this machine's, for bounds of years: it costs no round trip."""
        return self.clock or datetime.now(UTC)
