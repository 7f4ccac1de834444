"""Leases: settle, heartbeat, rescue and once."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from ..._model.lease import CancelRequest, Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.state import State
from ..._model.task import TaskId, may_need_results
from ..._model.verdict import Complete, Receipt, Settled, Settlement, last_reports
from ...errors import SessionLost, StoreError
from ..rules import refusals
from ..rules.sessions import heartbeat_reply, release_unacknowledged_claims
from ..rules.settlement import settle as settle_rule
from ..rules.settlement import settled
from .claim.claimer import CLAIMED_AT_ONCE, Claimer
from .connection.link import Argument
from .database import TRIES, Database
from .keys import packed, unpacked
from .rows import Stored, changing_part, encode, instant, microseconds, read_cancellation, version_of
from .rule_player import play
from .unit_of_work import UnitOfWork

# -- settle ------------------------------------------------------------------------------------------


async def settle(
    database: Database, claimer: Claimer, batch: Sequence[Settlement], claim: Claim | None
) -> Settled:
    """Apply the verdicts whose leases hold, and claim; in parts, so that no script takes long.

    Tasks that this handle has claimed need not be read, so each part is one round trip; the last one also
    claims, but no more than fit a script. All are under way at once: the server works on one while the next
    is prepared. If one fails, its error is raised once the others have ended.
    """
    if len(batch) <= CLAIMED_AT_ONCE:
        return await _settle_part(database, claimer, batch, claim)
    parts = [batch[at : at + CLAIMED_AT_ONCE] for at in range(0, len(batch), CLAIMED_AT_ONCE)]
    claims = [*[None] * (len(parts) - 1), claim]
    ended = await asyncio.gather(
        *(_settle_part(database, claimer, *part) for part in zip(parts, claims, strict=True)),
        return_exceptions=True,
    )
    settled: list[Settled] = []
    for part in ended:
        if isinstance(part, BaseException):
            raise part
        settled.append(part)
    return replace(
        settled[-1],
        receipts=tuple(receipt for part in settled for receipt in part.receipts),
        transitions=tuple(one for part in settled for one in part.transitions),
    )


async def _settle_part(
    database: Database, claimer: Claimer, batch: Sequence[Settlement], claim: Claim | None
) -> Settled:
    kept = claimer.take_kept([settlement.lease.task_id for settlement in batch])
    if (completed := await _complete(database, claimer, batch, kept, claim)) is not None:
        return completed
    for attempt in range(TRIES):
        unit = await database.begin(kept)
        settled = await _settle_batch(unit, batch)
        order = None if claim is None else claimer.in_order(unit.rules, unit.now, claim)
        if claim is not None and order is not None:
            reply = await database.commit("exchange", unit, *order)
            if reply[0]:
                claimed, may_claim_more = claimer.granted(reply, claim)
                return replace(settled, claimed=claimed or (), may_claim_more=may_claim_more)
        elif await database.commit_changes(unit):
            rows = () if claim is None else await _claim_if_possible(claimer, claim)
            return replace(settled, claimed=rows)
        kept = {}
        await database.pause(attempt)
    raise database.contended()


async def _complete(
    database: Database,
    claimer: Claimer,
    batch: Sequence[Settlement],
    kept: Mapping[TaskId, Stored],
    claim: Claim | None,
) -> Settled | None:
    """Complete tasks without a unit of work, and claim; None if one of them takes more."""
    rules = await database.rules()
    now = database.clock.now or await database.now()
    completed = completions(batch, kept, now)
    order = None if claim is None else claimer.in_order(rules.rules, now, claim)
    if completed is None or not (batch or order):
        return None
    reply = await database.run("complete", rules.version, *completed, *(order or ()))
    if not reply[0]:
        return None
    settled = Settled(receipts=(Receipt.APPLIED,) * len(batch))
    if claim is None:
        return settled
    if order is None:
        return replace(settled, claimed=await _claim_if_possible(claimer, claim))
    claimed, may_claim_more = claimer.granted(reply, claim)
    return replace(settled, claimed=claimed or (), may_claim_more=may_claim_more)


async def _settle_batch(unit: UnitOfWork, batch: Sequence[Settlement]) -> Settled:
    if not batch:
        return Settled()
    for report in last_reports(batch):
        task = (await unit.load([report.lease.task_id])).get(report.lease.task_id)
        if task is not None and task.state is State.RUNNING and task.fence == report.lease.fence:
            unit.update(task, progress=report.progress)
    return await play(unit, settle_rule(unit, batch))


async def _claim_if_possible(claimer: Claimer, claim: Claim) -> tuple[Claimed, ...]:
    """Claim after tasks were settled, which whoever settled them must hear of, also if that fails."""
    try:
        return await claimer.claim(claim)
    except (SessionLost, StoreError):  # The next request will tell.
        return ()


# -- sessions ----------------------------------------------------------------------------------------


async def heartbeat(database: Database, beat: Heartbeat, worker: bytes) -> HeartbeatReply:
    """Renew the session and release unacknowledged claims; report lost leases and requests to stop."""
    arguments: list[Argument] = [
        *(database.clock.argument, database.keys.prefix, beat.session, "1" if beat.opening else ""),
        *(beat.worker.name, worker, microseconds(beat.lease_for), beat.through, len(beat.held)),
    ]
    for lease in beat.held:
        arguments += (packed(lease.task_id), lease.fence)
    arguments.append(len(beat.progress))
    for report in beat.progress:
        arguments += (packed(report.lease.task_id), report.lease.fence, encode(report.progress))
    alive, leases, unknown, workers = await database.client.run("heartbeat", [database.keys.meta], arguments)
    if not alive:
        return HeartbeatReply(alive=False)
    running = {
        lease: _request(lease, found) for lease, found in zip(beat.held, leases, strict=True) if found != 0
    }
    claims = {unpacked(unknown[at]): int(unknown[at + 1]) for at in range(0, len(unknown), 2)}
    if not claims:
        return heartbeat_reply(beat, running, workers=workers)
    transitions = await database.transact(
        lambda unit: play(unit, release_unacknowledged_claims(unit, beat, claims))
    )
    return heartbeat_reply(beat, running, transitions, workers=workers)


def _request(lease: Lease, found: object) -> CancelRequest | None:
    if not isinstance(found, bytes):
        return None
    return CancelRequest(lease.task_id, *read_cancellation(found))


async def rescue(database: Database, claimer: Claimer, session: str, limit: int) -> tuple[Claimed, ...]:
    """Take over running tasks whose session is not alive, and delete expired sessions that hold nothing."""
    arguments = [database.clock.argument, database.keys.prefix, session, max(limit, 0)]
    reply = await database.client.run("rescue", [database.keys.meta], arguments)
    if reply == -1:
        raise refusals.session_lost(session)
    return claimer.claimed(reply[0]) or ()


async def once(database: Database, lease: Lease, key: str) -> bool:
    """Mark a key; return whether this lease was the first to. Raises LeaseLost."""

    async def mark(unit: UnitOfWork) -> bool:
        task = (await unit.load([lease.task_id])).get(lease.task_id)
        if task is None or task.state is not State.RUNNING or task.fence != lease.fence:
            raise refusals.lease_lost(lease, key)
        marks = unit.keys.marks(lease.task_id)
        marked = (await unit.guarded(marks, [key])).get(key)
        if marked is None:
            unit.run("HSET", marks, key, lease.fence)
        return marked is None or int(marked) == lease.fence

    return await database.transact(mark)


# -- completions in the round trip that claims the next tasks ------------------------------------------
# The rule of settlements decides what becomes of a task; of what follows from that, there is nothing to do
# for most tasks. So one script writes these, instead of a unit of work.


def completions(
    batch: Sequence[Settlement], kept: Mapping[TaskId, Stored], now: datetime
) -> list[Argument] | None:
    """Return what `complete` takes of these settlements; None if one of them takes more.

    `kept`: the tasks as they were claimed. The script refuses if one has changed.
    """
    if len(kept) < len(batch):
        return None
    arguments: list[Argument] = [instant(now), len(batch)]
    for settlement in batch:
        stored = kept[settlement.lease.task_id]
        if not _is_simple(settlement, stored):
            return None
        _, _, fields = settled(stored.task, settlement, now)
        task = replace(stored.task, state=State.COMPLETED, unhandled_since=None, **fields)
        changing = changing_part(task, stored.due, settlement.outcome)
        arguments += (packed(task.id), version_of(stored), changing)
    return arguments


def _is_simple(settlement: Settlement, stored: Stored) -> bool:
    """Whether a task completes by this, and only its row and the indexes of every task change."""
    verdict, task = settlement.verdict, stored.task
    return (
        type(verdict) is Complete
        and not verdict.successors
        and settlement.notes is None
        and settlement.progress is None
        and task.fence == settlement.lease.fence
        and not stored.has_dependents
        and not may_need_results(task)
        and task.fingerprint is None
        and task.expires_at is None
    )
