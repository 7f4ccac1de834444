"""Sessions: heartbeats, and the rescue of tasks whose session expired."""

import msgspec

from ..._model.lease import RESCUED, Claimed, Heartbeat, HeartbeatReply, Lease
from ..rules.sessions import heartbeat_reply, release_unacknowledged_claims
from .rows import instant, listed
from .rule_player import run
from .settle import alive, lease_out
from .transaction import Transaction

_encoder = msgspec.json.Encoder()


def heartbeat(tx: Transaction, beat: Heartbeat) -> HeartbeatReply:
    """Renew the session and release unacknowledged claims; report lost leases and requests to stop."""
    session = {
        "session": beat.session,
        "worker": beat.worker.name,
        "about": _encoder.encode(beat.worker).decode(),
        "now": tx.at,
        "expires_at": instant(tx.now + beat.lease_for),
    }
    if not tx.run("open_session" if beat.opening else "keep_session", session):
        return HeartbeatReply(alive=False)
    claims = tx.rows("granted", {"session": beat.session, "through": beat.through})
    held = set(beat.held)
    if unacknowledged := {
        task_id: number for task_id, fence, number in claims if Lease(task_id, fence) not in held
    }:
        run(tx, release_unacknowledged_claims(tx, beat, unacknowledged))
    for reported in beat.progress:
        lease, progress = reported.lease, reported.progress
        parameters = {"id": lease.task_id, "fence": lease.fence}
        tx.run("report", {**parameters, "fraction": progress.fraction, "message": progress.message})
    return _reply(tx, beat)


def _reply(tx: Transaction, beat: Heartbeat) -> HeartbeatReply:
    ids = listed(lease.task_id for lease in beat.held)
    rows = tx.rows("held", {"ids": ids}) if beat.held else ()
    return heartbeat_reply(beat, {Lease(task_id, fence): cancel == 1 for task_id, fence, cancel in rows})


def rescue(tx: Transaction, session: str, limit: int) -> list[Claimed]:
    """Take over running tasks whose session is not alive, and delete expired sessions that hold nothing."""
    alive(tx, session)
    rowids = listed(row[0] for row in tx.rows("silent", {"now": tx.at, "limit": max(limit, 0)}))
    rescued = lease_out(tx, "rescue", rowids, {"session": session, "number": RESCUED})
    tx.run("forget_sessions", {"now": tx.at})
    return rescued
