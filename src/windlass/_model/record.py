"""Records that stores keep beside tasks: sessions, the audit log, declarations."""

from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import Struct

from .alert import Alert, AlertState
from .key import ApiKey, Login
from .limit import Limit, Quota, Usage
from .options import DeclaredType
from .queue import QueueSettings
from .schedule import Schedule, Tick
from .task import TaskId


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


class Audit(Struct, frozen=True, gc=False, kw_only=True):
    """Who did what to a task, or to the record that `subject` names ("queue mail"), and why."""

    id: str
    at: datetime
    who: str
    why: str
    action: str
    task_id: TaskId | None = None
    detail: str = ""
    subject: str = ""


ARCHIVE_NAME = "history"


class Archive(Struct, frozen=True, gc=False, kw_only=True):
    """While a store has this record, archiving is on: only tasks that ended before `until` are pruned.

    Every one of them was written to a file. `directory` is where, on the host that wrote the last one.
    """

    name: str = ARCHIVE_NAME
    until: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    directory: str = ""


class Declaration(Struct, frozen=True, gc=False, kw_only=True):
    """What programs last declared for a queue or limit, to detect an operator's change."""

    name: str  # kind and name of the subject
    body: str  # JSON: the options that were given


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
}

Record: TypeAlias = QueueSettings | Session | Audit | Usage | StoredRecord
"""Sessions, audits and usages are written by the store itself."""
