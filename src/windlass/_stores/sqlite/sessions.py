"""Sessions: kept alive by heartbeats, and what becomes of the tasks of one that fell silent."""

import msgspec
from msgspec.structs import replace

from ..._model.lease import RESCUED, Claimed, Heartbeat, Lease, Pulse
from ..._model.state import State, Verb
from .rows import instant
from .settle import alive, lease_out
from .statements import listed
from .successors import abandon
from .transaction import Transaction

_encoder = msgspec.json.Encoder()


def heartbeat(tx: Transaction, beat: Heartbeat) -> Pulse:
    """Renew the session; hand back strangers; report losses and requests to stop."""
    session = {
        "session": beat.session,
        "worker": beat.worker.name,
        "about": _encoder.encode(beat.worker).decode(),
        "now": tx.at,
        "expires_at": instant(tx.now + beat.lease_for),
    }
    if not tx.run("open_session" if beat.opening else "keep_session", session):
        return Pulse(alive=False)
    _hand_back_strangers(tx, beat)
    for reported in beat.progress:
        lease, progress = reported.lease, reported.progress
        told = {"fraction": progress.fraction, "message": progress.message}
        tx.run("report", {"id": lease.task_id, "fence": lease.fence, **told})
    return _pulse(tx, beat)


def _pulse(tx: Transaction, beat: Heartbeat) -> Pulse:
    if not beat.held:
        return Pulse(alive=True)
    rows = tx.rows("held", {"ids": listed(lease.task_id for lease in beat.held)})
    cancelled = {Lease(task_id, fence): cancel == 1 for task_id, fence, cancel in rows}
    return Pulse(
        alive=True,
        lost=tuple(lease for lease in beat.held if lease not in cancelled),
        cancel=tuple(lease.task_id for lease in beat.held if cancelled.get(lease)),
    )


def _hand_back_strangers(tx: Transaction, beat: Heartbeat) -> None:
    """Release what was granted to this session in a reply that it never got.

    What it claimed never ran and is not counted; what it rescued did run, and its attempt stays counted.
    """
    known = set(beat.held)
    for task_id, fence, number in tx.rows("granted", {"session": beat.session, "through": beat.through}):
        if Lease(task_id, fence) not in known:
            _hand_back(tx, task_id, counted=number == RESCUED)


def _hand_back(tx: Transaction, task_id: str, *, counted: bool) -> None:
    task = tx.get(task_id)
    assert task is not None
    # The fence rises, so that whoever might still hold the old lease cannot settle with it.
    freed = replace(task, fence=task.fence + 1, session=None)
    tx.keep(task, freed)
    if task.cancel_requested:
        tx.move(freed, Verb.CANCEL, State.CANCELLED, finished_at=tx.now)
        abandon(tx, task.id, "was cancelled")
    else:
        tx.move(freed, Verb.POSTPONE, State.READY, attempt=task.attempt - (0 if counted else 1))


def rescue(tx: Transaction, session: str, limit: int) -> list[Claimed]:
    """Take over the running tasks of sessions that are not alive; forget those that hold nothing."""
    alive(tx, session)
    rowids = [row[0] for row in tx.rows("silent", {"now": tx.at, "limit": max(limit, 0)})]
    rescued = lease_out(tx, "rescue", rowids, {"session": session, "number": RESCUED}) if rowids else []
    tx.run("forget_sessions", {"now": tx.at})
    return rescued
