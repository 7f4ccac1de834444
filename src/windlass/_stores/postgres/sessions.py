"""Sessions: heartbeats, and the rescue of tasks whose session expired."""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

import msgspec

from ..._model.lease import CancelRequest, Claimed, Heartbeat, Lease
from ..._model.task import TaskId
from ..._model.transition import TaskTransition
from ..rules import refusals
from ..rules.questions import Rule
from ..rules.sessions import release_unacknowledged_claims
from .queue_layout import Environment
from .rows import Row, ids_of, read_leased
from .rule_player import transact
from .script import Query, Script, fetch, value
from .unit_of_work import UnitOfWork

_encoder = msgspec.json.Encoder()


def heartbeat(clock: datetime | None, beats: Sequence[Heartbeat]) -> Query:
    """Renew or open sessions, each named once, and read what they hold. No row of one: it is gone."""
    rows = [
        (beat.session, beat.worker.name, _encoder.encode(beat.worker).decode(), beat.lease_for, beat.opening)
        for beat in sorted(beats, key=attrgetter("session"))  # locked in the same order by all processes
    ]
    return Query("heartbeat", (clock, *map(list, zip(*rows, strict=True))))


def running(rows: Sequence[Row]) -> dict[Lease, CancelRequest | None]:
    """Return the leases in rows of heartbeat.sql or running_leases.sql, each with its request to cancel."""
    return {
        Lease(task_id, fence): CancelRequest(task_id, *asked) if cancel else None
        for task_id, fence, _, cancel, *asked in rows
    }


def release(env: Environment, beat: Heartbeat, ids: Sequence[TaskId]) -> Script[tuple[TaskTransition, ...]]:
    """Release claims that the worker cannot know of, as far as they are still unacknowledged."""

    def rule(unit: UnitOfWork) -> Rule[tuple[TaskTransition, ...]]:
        claims = {task_id: unit.number(task_id) for task_id in ids if unit.get(task_id) is not None}
        return release_unacknowledged_claims(unit, beat, claims)

    return transact(env, rule, ids)


def held(beat: Heartbeat) -> Query:
    """Read the running tasks that the worker holds a lease of, whichever session they belong to now."""
    return Query("running_leases", (ids_of(lease.task_id for lease in beat.held),))


def rescue(clock: datetime | None, session: str, limit: int) -> Script[list[Claimed]]:
    """Take over running tasks whose session is not alive, and delete expired sessions that hold nothing."""
    if (yield from value("live_worker", clock, session)) is None:
        raise refusals.session_lost(session)
    rows = yield from fetch("rescue", clock, session, max(limit, 0))
    yield from fetch("delete_sessions", clock)
    return [Claimed(read_leased(row)) for row in rows]
