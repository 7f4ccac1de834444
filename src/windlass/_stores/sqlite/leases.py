"""Leases: claim, settle, heartbeat and rescue. Plain completions are one statement, the rest are rules."""

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from ..._model.lease import (
    RESCUED,
    CancelRequest,
    Claim,
    Claimed,
    Heartbeat,
    HeartbeatReply,
    Lease,
    ProgressReport,
)
from ..._model.verdict import Complete, Receipt, Settled, Settlement, last_reports
from ..._policy.order.windows import open_queues
from ..rules import refusals
from ..rules.claim_planner import earliest
from ..rules.sessions import heartbeat_reply, release_unacknowledged_claims, unacknowledged_claims
from ..rules.settlement import follow_up, successors_in
from ..rules.settlement import settle as settle_rule
from .claim.queries import LaneRotation, pick
from .rows import as_json, instant, listed, read_leased, read_tasks
from .rule_player import run
from .transaction import Transaction

# -- claim -------------------------------------------------------------------------------------------

_MANY = 16  # queues: of more, a claim first finds out which have ready tasks


def claim(tx: Transaction, wish: Claim, rotation: LaneRotation) -> list[Claimed]:
    """Lease ready tasks to a live session. Raises SessionLost if it is not alive."""
    return _grant(tx, wish, _alive(tx, wish.session), rotation)


def _alive(tx: Transaction, session: str) -> str:
    """Return the worker's name of a live session. Raises SessionLost if it is not alive."""
    worker = _worker(tx, session)
    if worker is None:
        raise refusals.session_lost(session)
    return worker


def _worker(tx: Transaction, session: str) -> str | None:
    found: str | None = tx.value("session", {"session": session, "now": tx.at})
    return found


def _grant(tx: Transaction, wish: Claim, worker: str, rotation: LaneRotation) -> list[Claimed]:
    queues, wait = open_queues(wish.queues, tx.queue_rules.settings, tx.now)
    rowids = _first_in_fifo(tx, queues, wish)
    if rowids is None:
        if len(queues) > _MANY:
            queues = [row[0] for row in tx.rows("queues_with_ready", {"queues": listed(queues)})]
        rowids = listed(pick(tx, queues, wish, rotation))
    tx.wakes.wait = earliest(tx.wakes.wait, wait)
    lease = {"session": wish.session, "worker": worker, "number": wish.number, "now": tx.at}
    return _lease(tx, "claim", rowids, lease)


def _first_in_fifo(tx: Transaction, queues: Sequence[str], wish: Claim) -> str | None:
    """Return the rowids of the first tasks over all queues; None if lanes, limits or a level decide."""
    rules = tx.queue_rules
    if wish.level is not None or not all(map(rules.is_fifo, queues)):
        return None
    if rules.relayouts and not rules.relayouts.isdisjoint(queues):
        return None
    limit = max(wish.limit, 0)
    if wish.types is not None:
        return _first_of_types(tx, queues, wish.types, limit)
    if len(queues) == 1:
        rowids: str = tx.value("ready_rowids", {"queue": queues[0], "limit": limit, "now": tx.at})
        return rowids
    if len(queues) > _MANY:
        named = {"queues": listed(dict.fromkeys(queues)), "limit": limit, "now": tx.at}
        queues = [row[0] for row in tx.rows("first_heads", named)]
    heads = [tx.rows("ready", {"queue": queue, "limit": limit, "now": tx.at}) for queue in queues]
    return listed(row[2] for row in islice(merge(*heads), limit))


def _first_of_types(tx: Transaction, queues: Sequence[str], types: Sequence[str], limit: int) -> str:
    """Return the rowids of the first tasks of these types over all queues, past tasks of other types."""
    if len(queues) > _MANY:
        queues = [row[0] for row in tx.rows("queues_with_ready", {"queues": listed(queues)})]
    of_types = {"types": listed(types), "limit": limit, "now": tx.at}
    heads = [tx.rows("ready_of_types", {"queue": queue, **of_types}) for queue in queues]
    return listed(row[2] for row in islice(merge(*heads), limit))


def _lease(tx: Transaction, verb: str, rowids: str, lease: dict[str, object]) -> list[Claimed]:
    """Lease the rows of this JSON list by a statement; return the tasks in this order, as they then are."""
    changed = tx.run(verb, {**lease, "rowids": rowids})
    if not changed:
        return []
    tasks = read_leased(
        tx.value("leased", {"rowids": rowids}),
        rowids,
        lambda rest: read_tasks(tx.rows("tasks", {"rowids": listed(rest)})),
    )
    assert changed == len(tasks), f"{changed} of {len(tasks)} tasks could be changed by {verb}"
    return list(map(Claimed, tasks))


# -- settle ------------------------------------------------------------------------------------------


def settle(
    tx: Transaction,
    batch: Sequence[Settlement],
    wish: Claim | None = None,
    rotation: LaneRotation | None = None,
) -> Settled:
    """Apply the verdicts whose leases hold, then claim."""
    receipts = _settle_batch(tx, batch)
    if wish is None or rotation is None or (worker := _worker(tx, wish.session)) is None:
        return Settled(receipts=receipts, transitions=tuple(tx.transitions))
    claimed = tuple(_grant(tx, wish, worker, rotation))
    return Settled(receipts=receipts, claimed=claimed, transitions=tuple(tx.transitions))


def _settle_batch(tx: Transaction, batch: Sequence[Settlement]) -> tuple[Receipt, ...]:
    if not batch:
        return ()
    _report(tx, last_reports(batch))
    completions = [settlement for settlement in batch if _is_quick(settlement)]
    once_each = len({settlement.lease.task_id for settlement in batch}) == len(batch)
    if not completions or not once_each or not _complete(tx, completions):
        return run(tx, settle_rule(tx, batch)).receipts
    if len(completions) == len(batch):
        return (Receipt.APPLIED,) * len(batch)
    others = [settlement for settlement in batch if not _is_quick(settlement)]
    receipts = iter(run(tx, settle_rule(tx, others)).receipts)
    return tuple([Receipt.APPLIED if _is_quick(s) else next(receipts) for s in batch])


def _is_quick(settlement: Settlement) -> bool:
    """Whether it is a completion whose attempt needs no record of its own."""
    return isinstance(settlement.verdict, Complete) and settlement.notes is None


def _complete(tx: Transaction, batch: Sequence[Settlement]) -> bool:
    """Complete all of these if every lease holds, as it nearly always does; otherwise change nothing."""
    ids = [settlement.lease.task_id for settlement in batch]
    held = tx.caps_held(ids)
    given = {
        s.lease.task_id: (s.lease.fence, s.duration, s.outcome, _text(s.verdict.result))
        for s in batch
        if isinstance(s.verdict, Complete)
    }
    if not tx.run_exactly(len(batch), "complete", {"now": tx.at, "settlements": as_json(given)}):
        return False
    tx.wakes.freed.update(held)
    is_joined = tx.value("any_dependency") is not None
    if is_joined:
        tx.run("forget_dependencies", {"successors": listed(ids)})
    if is_joined or successors_in(batch):
        run(tx, follow_up(tx, ids, batch))
    return True


def _text(result: bytes | None) -> str | None:
    return None if result is None else result.decode()


def once(tx: Transaction, lease: Lease, key: str) -> bool:
    """Mark a key; return whether this lease was the first to."""
    held = {"id": lease.task_id, "fence": lease.fence}
    if tx.value("is_held", held) is None:
        raise refusals.lease_lost(lease, key)
    tx.run("mark", {**held, "key": key})
    marked_by: int = tx.value("marked_by", {"id": lease.task_id, "key": key})
    return marked_by == lease.fence


# -- sessions ----------------------------------------------------------------------------------------


def heartbeat(tx: Transaction, beat: Heartbeat) -> HeartbeatReply:
    """Renew the session and release unacknowledged claims; report lost leases and requests to stop."""
    session = {
        "session": beat.session,
        "worker": beat.worker.name,
        "about": as_json(beat.worker),
        "now": tx.at,
        "expires_at": instant(tx.now + beat.lease_for),
    }
    if not tx.run("open_session" if beat.opening else "keep_session", session):
        return HeartbeatReply(alive=False)
    granted = tx.rows("granted", {"session": beat.session, "through": beat.through})
    if unacknowledged := unacknowledged_claims(beat, granted):
        run(tx, release_unacknowledged_claims(tx, beat, unacknowledged))
    _report(tx, beat.progress)
    rows = tx.rows("held", {"ids": listed(lease.task_id for lease in beat.held)}) if beat.held else ()
    running = {
        Lease(task_id, fence): CancelRequest(task_id, *asked) if cancel == 1 else None
        for task_id, fence, cancel, *asked in rows
    }
    workers = tx.value("count_sessions")
    return heartbeat_reply(beat, running, tuple(tx.transitions), workers=workers)


def _report(tx: Transaction, reports: Sequence[ProgressReport]) -> None:
    """Write the progress of tasks whose leases hold."""
    for reported in reports:
        lease, progress = reported.lease, reported.progress
        parameters = {"id": lease.task_id, "fence": lease.fence}
        tx.run("report", {**parameters, "fraction": progress.fraction, "message": progress.message})


def rescue(tx: Transaction, session: str, limit: int) -> list[Claimed]:
    """Take over running tasks whose session is not alive, and delete expired sessions that hold nothing."""
    _alive(tx, session)
    rowids = listed(row[0] for row in tx.rows("silent", {"now": tx.at, "limit": max(limit, 0)}))
    rescued = _lease(tx, "rescue", rowids, {"session": session, "number": RESCUED})
    tx.run("forget_sessions", {"now": tx.at})
    return rescued
