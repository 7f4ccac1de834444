"""Sessions: kept alive by heartbeats, and what becomes of the tasks of one that fell silent."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ..._model.lease import RESCUED, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.state import State, Verb
from ..._model.task import TaskId
from ..rules import refusals
from .rows import Row, columns_of, ids_of, read_leased
from .script import Ask, Script, ask, value
from .successors import abandon
from .unit_of_work import UnitOfWork

_encoder = msgspec.json.Encoder()


def heartbeat(clock: datetime | None, beat: Heartbeat) -> Ask:
    """Renew the session, and see what it holds: one round trip."""
    about = _encoder.encode(beat.worker).decode()
    parameters = (clock, beat.session, beat.worker.name, about, beat.lease_for, beat.opening)
    return Ask("beat", parameters)


def report(beat: Heartbeat) -> Ask:
    """How far the session's tasks have come, as far as their leases hold."""
    rows = [
        (told.lease.task_id, told.lease.fence, told.progress.fraction, told.progress.message)
        for told in beat.progress
    ]
    return Ask("report", tuple(columns_of(rows, 4)))


def strangers(beat: Heartbeat, rows: Sequence[Row]) -> list[TaskId]:
    """What was granted to this session in a reply that it never got."""
    known = set(beat.held)
    return [
        task_id
        for task_id, fence, number, _ in rows
        if number is not None and number <= beat.through and Lease(task_id, fence) not in known
    ]


def pulse(beat: Heartbeat, rows: Sequence[Row]) -> HeartbeatReply:
    """What the worker is to hear."""
    cancelled = {Lease(task_id, fence): cancel for task_id, fence, _, cancel in rows}
    return HeartbeatReply(
        alive=True,
        lost=tuple(lease for lease in beat.held if lease not in cancelled),
        cancel=tuple(lease.task_id for lease in beat.held if cancelled.get(lease)),
    )


def hand_back(clock: datetime | None, beat: Heartbeat, ids: Sequence[TaskId]) -> Script[None]:
    """Release them. What was claimed never ran and is not counted; what was rescued did, and stays so."""
    work = UnitOfWork((yield from value("now", clock)))
    known = set(beat.held)
    yield from work.load(ids)
    for task_id in ids:
        task = work.get(task_id)
        if task is None or task.session != beat.session or task.state is not State.RUNNING:
            continue
        if work.number(task_id) > beat.through or Lease(task_id, task.fence) in known:
            continue
        # The fence rises, so that whoever might still hold the old lease cannot settle with it.
        freed = replace(task, fence=task.fence + 1, session=None)
        if task.cancel_requested:
            work.move(freed, Verb.CANCEL, State.CANCELLED, finished_at=work.now)
            yield from abandon(work, task.id, "was cancelled")
        else:
            uncounted = 0 if work.number(task_id) == RESCUED else 1
            work.move(freed, Verb.POSTPONE, State.READY, attempt=task.attempt - uncounted)
    yield from work.flush()
    yield from work.wake()


def held(beat: Heartbeat) -> Ask:
    """The leases that the worker names, whoever's they are."""
    return Ask("held", (ids_of(lease.task_id for lease in beat.held),))


def rescue(clock: datetime | None, session: str, limit: int) -> Script[list[Claimed]]:
    """Take over the running tasks of sessions that are not alive; forget those that hold nothing."""
    if (yield from value("alive", clock, session)) is None:
        raise refusals.session_lost(session)
    rows = yield from ask("rescue", clock, session, max(limit, 0))
    yield from ask("forget_sessions", clock)
    return [Claimed(read_leased(row)) for row in rows]
