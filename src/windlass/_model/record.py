"""Records that stores keep beside tasks: sessions, the audit log, declarations, endpoints, history."""

from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import Struct

from .alert import Alert, AlertState
from .brief import Brief
from .key import ApiKey, Login
from .limit import Limit, Quota, Usage
from .options import DeclaredType
from .queue import QueueSettings
from .schedule import Schedule, Tick
from .task import TaskId

MAX_STUCK = 100
"""Stuck handlers that a worker lists at most."""
MAX_PLACE = 300
"""Characters of the place of a stuck handler."""


class StuckHandler(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """A handler that runs on after its timeout; `overrun` is by how many seconds, when its worker said so.

    `place`: the line where it was found, "" if that cannot be seen. `replaced`: its slot is used again, and
    its attempt has ended as timed out, but its thread still runs.
    """

    task_id: TaskId
    type: str
    attempt: int
    overrun: float
    place: str = ""
    replaced: bool = False


class Worker(Struct, frozen=True, gc=False, kw_only=True):
    """A worker process, as it describes itself; or the leading keeper, which holds what it rescues."""

    name: str
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    all_queues: bool = False  # It serves every queue, and names none.
    slots: int = 0
    busy: int = 0
    version: str = ""
    keeper: bool = False
    types: tuple[str, ...] | None = None  # that it has handlers for, aliases included; None: not known
    stuck: tuple[StuckHandler, ...] = ()  # at most MAX_STUCK

    def serves(self, queue: str) -> bool:
        """Whether it claims tasks of this queue."""
        return self.all_queues or queue in self.queues

    def handles(self, type_name: str) -> bool:
        """Whether it has a handler for this type, as far as is known."""
        return self.types is None or type_name in self.types


class Session(Struct, frozen=True, gc=False, kw_only=True):
    """One run of a worker process. It holds the leases of all its tasks until `expires_at`."""

    id: str
    worker: Worker
    started_at: datetime
    beat_at: datetime
    expires_at: datetime


class Audit(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """Who did what to a task, or to the record that `subject` names ("queue mail"), and why."""

    id: str
    at: datetime
    who: str
    why: str
    action: str
    task_id: TaskId | None = None
    detail: str = ""
    subject: str = ""


class AuditFilter(Struct, frozen=True, gc=False, kw_only=True):
    """Which entries of the audit log: every field that is set must match, whatever the case of letters.

    `who` is a part of the name; `action` is the whole of it; `subject` is a task's id or a part of the
    subject.
    """

    who: str = ""
    action: str = ""
    subject: str = ""

    def matches(self, entry: Audit) -> bool:
        """Whether an entry is one of them."""
        subject = self.subject.casefold()
        return (
            self.who.casefold() in entry.who.casefold()
            and self.action.casefold() in ("", entry.action)
            and (subject in entry.subject.casefold() or subject == entry.task_id)
        )


ARCHIVE_NAME = "history"


class Archive(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """While a store has this record, archiving is on: only tasks that ended before `until` are pruned.

    Every one of them was written to a file. `directory` is where, on the host that wrote the last one.
    """

    name: str = ARCHIVE_NAME
    until: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    directory: str = ""


class Declaration(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """What programs last declared for a queue or limit, to detect an operator's change."""

    name: str  # kind and name of the subject: "queue/mail"
    body: str  # JSON: the options that were given

    @property
    def kind(self) -> str:
        """What is declared: "queue", "limit", "alert" or "schedule"."""
        return self.name.partition("/")[0]

    @property
    def subject(self) -> str:
        """The name of the queue, limit, alert or schedule."""
        return self.name.partition("/")[2]


class DisabledEndpoint(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """An endpoint that responded with 410 Gone to a task of this tenant: nothing more is sent to it for it.

    `name` is a digest of both. `endpoint` is what may be shown of it: its name in the settings, or the scheme
    and host of a URL.
    """

    name: str
    endpoint: str
    tenant: str
    at: datetime
    task_id: TaskId


Histogram: TypeAlias = tuple[int, ...]
"""Durations: the number of a cell, how many are in it, the next cell, …; see _policy/history/histogram.py."""


class HistorySeries(Struct, frozen=True, gc=False, kw_only=True, array_like=True):
    """What happened to the tasks of one queue and type in one bucket of time.

    `retried` and `buried` are failed attempts. `wait` is the time from due to claimed of attempts that have
    ended, `run` the time that they ran. `depth` is the number of ready tasks and `oldest` the seconds that
    the first of them had been due, when the keeper counted them; of several counts, the highest.
    """

    queue: str
    type: str
    completed: int = 0
    retried: int = 0
    buried: int = 0
    cancelled: int = 0
    expired: int = 0
    wait: Histogram = ()
    run: Histogram = ()
    depth: int = 0
    oldest: float = 0.0


class HistoryBucket(Struct, frozen=True, gc=False, kw_only=True):
    """A bucket of time, or the part of one that a single process counted.

    `name` tells which, and sorts by time; see _policy/history/buckets.py. `parts` are the ids of the parts
    that were merged into the bucket. `measured`: whether depths were counted.
    """

    name: str
    series: tuple[HistorySeries, ...] = ()
    parts: tuple[str, ...] = ()
    measured: bool = False


class QueueRoute(Struct, frozen=True, gc=False, kw_only=True):
    """The shards of a queue: the tasks of each tenant go to one of them or, not `by_tenant`, all to one."""

    over: tuple[str, ...]
    by_tenant: bool = False


class Routes(Struct, frozen=True, gc=False, kw_only=True):
    """Which shard new tasks go to: that of their queue's own route, else one of those that are `open`."""

    open: tuple[str, ...]
    queues: dict[str, QueueRoute] = {}


SHARD_MAP_NAME = "map"
MAX_SHARDS = 64


class ShardMap(Struct, frozen=True, gc=False, kw_only=True):
    """The shards of a store, and what is on which of them. Every shard has a copy; the newest counts.

    `id` is that of the whole store. `home` has the records that belong to no queue. `former` are earlier
    routes, the newest first, by which tasks may still be where `routes` would not put them. New tasks follow
    `routes` from `effective_at` on, by the clock of the home shard (None: at once), and the newest of
    `former` until then. `on` is the shard that has this copy: its URL may lead to another by mistake.
    """

    id: str
    version: int
    home: str
    shards: tuple[str, ...]
    routes: Routes
    former: tuple[Routes, ...] = ()
    effective_at: datetime | None = None
    on: str = ""
    name: str = SHARD_MAP_NAME


class ShardStatus(Brief, Struct, frozen=True, kw_only=True):
    """A shard: `state` is open, draining or unavailable; `stray` tasks are of queues that are elsewhere."""

    name: str
    state: str
    home: bool = False
    tasks: int = 0
    unfinished: int = 0
    stray: int = 0
    error: str = ""


StoredRecord: TypeAlias = (
    ApiKey
    | Login
    | Limit
    | Quota
    | Schedule
    | Tick
    | Alert
    | AlertState
    | Archive
    | Declaration
    | DeclaredType
    | DisabledEndpoint
    | HistoryBucket
    | ShardMap
)
"""Records that a store only stores, and need not interpret."""

KINDS: dict[object, str] = {
    ApiKey: "key",
    Login: "login",
    Limit: "limit",
    Quota: "quota",
    Schedule: "schedule",
    Tick: "tick",
    Alert: "alert",
    AlertState: "alarm",
    Archive: "archive",
    Declaration: "declaration",
    DeclaredType: "type",
    DisabledEndpoint: "endpoint",
    HistoryBucket: "history",
    ShardMap: "shards",
}

Record: TypeAlias = QueueSettings | Session | Audit | Usage | StoredRecord
"""Sessions, audits and usages are written by the store itself."""
