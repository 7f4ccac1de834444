"""Plain samples that unit tests vary."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from windlass._ids import new_id
from windlass._model.schedule import Schedule
from windlass._model.state import State
from windlass._model.task import Error, NewTask, Task
from windlass._policy.input.chain import Step
from windlass._store.json_codec import Decoder
from windlass.errors import InvalidOption, InvalidPayload

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ERROR = Error(type="ValueError", message="no")

_RUNNING = Task(
    id="t1",
    type="mail.send",
    payload=b"{}",
    root="t0",
    queue="mail",
    tenant="acme",
    priority=0,
    boost=0,
    state=State.RUNNING,
    attempt=1,
    max_attempts=3,
    fence=1,
    run_at=NOW,
    created_at=NOW,
    trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    enqueued_by="web",
)


def running(**changes: Any) -> Task:
    """A running task at its first of three attempts, but for these changes."""
    return replace(_RUNNING, **changes)


INVALID = (InvalidOption, InvalidPayload, msgspec.DecodeError)
NEW_TASKS = Decoder[NewTask](NewTask)
SCHEDULE = Schedule(name="s", type="t", cron="0 3 * * *", since=NOW)


def new(**changed: Any) -> NewTask:
    """A task to enqueue, but for these fields."""
    task_id = new_id()
    return NewTask(**{"id": task_id, "root": task_id, "type": "t", "payload": b"{}", **changed})


def step(**changed: Any) -> Step:
    """A step, but for these fields."""
    return Step(**{"id": new_id(), "type": "t", "payload": Raw(b"{}"), **changed})
