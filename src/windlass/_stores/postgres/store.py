"""The store's verbs on a Postgres database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import asyncpg
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..._model.attempt import Attempt
from ..._model.filter import Action, By, Count, Dimension, Filter, LoggedAction, Page, Rewrite, Slice, page_of
from ..._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.limit import Usage
from ..._model.queue import STRICT_MS, QueueSettings, Retention
from ..._model.record import KINDS, Record, Session, StoredRecord
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.transition import Applied, Pruned, TaskTransition
from ..._model.verdict import Receipt, Settled, Settlement, last_reports
from ..._store.clock import Clock
from ..._store.protocol import Capability, Finding, Join, Migration, Promoted, Transaction, Wake
from ...errors import DuplicateTask
from ..rules import refusals
from ..rules.actions import applicable
from ..rules.admission import check_due, is_plain
from ..rules.audit import audited_prune, is_about_tasks, logged
from ..rules.claim_planner import earliest
from ..rules.sessions import heartbeat_reply, unacknowledged_claims
from . import actions, schema, sessions, settle
from .claim import relayout
from .claim.claimer import Claimer
from .connection.address import Address
from .database import Database
from .enqueue import copy, plain
from .enqueue.coalesce import Coalescer
from .join.detect import join
from .notify import WakeHub
from .own_transaction import OwnTransaction
from .read import count, find, sizes
from .rows import Row
from .rule_player import enqueue, write_audit
from .script import Query
from .settle import Grant
from .upkeep import checks
from .upkeep.prune import Pruner

R = TypeVar("R", bound=Record)

_FEW_SESSIONS = 100
_COUNT_SECONDS = 5.0  # between two counts of more sessions

_SPARE = 500
"""Tasks found beyond the limit of an action, because some will have changed by the time it is applied."""


class PostgresStore(Database):
    """A store in a Postgres database, for any number of processes, threads and event loops."""

    capabilities = Capability.JOIN | Capability.SHARE | Capability.MIGRATE | Capability.STRIPE

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        super().__init__(address, clock=clock)
        self._claimer = Claimer(self)
        self._pruner = Pruner()
        self._sessions = 0, 0.0  # how many there were, and when that was counted

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        if not batch:
            return []
        if self.layout.is_stale:
            await self.refresh_layout()
        if not all(map(is_plain, batch)):
            return await self._enqueue_by_rules(batch)
        check_due(batch, self.env.near_now)
        loop = asyncio.get_running_loop()
        coalescer = self._enqueues.get(loop)
        if coalescer is None:
            coalescer = self._enqueues[loop] = Coalescer(self._enqueue_plain)
        return await coalescer.send(batch)

    async def _enqueue_by_rules(self, batch: Sequence[NewTask]) -> list[Enqueued]:
        try:
            return await self.play(lambda: enqueue(self.env, batch))
        except DuplicateTask:
            if self.connections.awaits_standbys:  # or a failover may lose the task that this one equals
                await self.fetch(Query("await_standbys"))
            raise

    async def _enqueue_plain(self, batch: Sequence[NewTask]) -> list[Enqueued]:
        if len(batch) >= copy.MIN_TASKS and await self._copy(batch):
            return [Enqueued(id=new.id, created=True) for new in batch]
        if len(batch) >= copy.MIN_TASKS or not self._recent_ids.is_first(batch):
            return await self.play(lambda: plain.insert_again(self.env, batch))
        rows = await self.fetch(plain.insert_statement(self.env, batch))
        if len(rows) < len(batch) and self.connections.awaits_standbys:
            return await self.play(lambda: plain.insert_again(self.env, batch))
        return plain.enqueued(batch, {row[0] for row in rows})

    async def _copy(self, batch: Sequence[NewTask]) -> bool:
        """Insert many tasks by COPY; return False if an id may already exist or occurs twice."""
        await self._ensure_open()
        with self.connections.translated_errors():
            try:
                async with self.connections.one() as connection, self.connections.transaction(connection):
                    return await copy.copy(connection, self.env, batch)
            except (asyncpg.UniqueViolationError, copy.AlreadyEnded):
                return False

    def join(self, connection: object) -> Join:
        """Join the caller's transaction on a connection of one of the drivers in join/."""
        return join(connection, self.env, self.home)

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        grant = await self._settle_and_claim((), claim)
        if not grant.alive:
            raise refusals.session_lost(claim.session)
        return grant.claimed

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply the verdicts whose leases hold, then claim; usually in one round trip."""
        if not settle.is_quick(batch):
            return await self._settle_by_rules(batch, claim)
        if not batch and claim is None:
            return Settled()
        if reports := last_reports(batch):
            await self.fetch(settle.put_progress(reports))
        grant = await self._settle_and_claim(batch, claim)
        if grant.done is None:
            return Settled(receipts=(Receipt.APPLIED,) * len(batch), claimed=tuple(grant.claimed))
        done = set(grant.done)
        rest = [settlement for settlement in batch if settlement.lease.task_id not in done]
        settled = await self._settle_by_rules(rest, claim)
        receipts = iter(settled.receipts)
        return Settled(
            receipts=tuple(Receipt.APPLIED if s.lease.task_id in done else next(receipts) for s in batch),
            claimed=settled.claimed,
            transitions=settled.transitions,
        )

    async def _settle_and_claim(self, batch: Sequence[Settlement], claim: Claim | None) -> Grant:
        if self.layout.is_stale:
            await self.refresh_layout()
        began = monotonic()
        grant = await self._claimer.settle_and_claim(batch, claim)
        if grant.done is None:
            self._note_claim(claim, grant, began)
        return grant

    async def _settle_by_rules(self, batch: Sequence[Settlement], claim: Claim | None) -> Settled:
        if self.layout.is_stale:
            await self.refresh_layout()
        fifo, laned = ([], []) if claim is None else self._claimer.divide(claim)
        stripes = [] if laned else self.layout.all_stripes(fifo)
        began = monotonic()
        settled, grant = await self.play(lambda: settle.settle(self.env, batch, claim, stripes))
        if claim is not None and (grant is None or grant.guarded):
            grant = await self._settle_and_claim((), claim)
        else:
            self._note_claim(claim, grant, began)
        return settled if grant is None else replace(settled, claimed=tuple(grant.claimed))

    def _note_claim(self, claim: Claim | None, grant: Grant | None, began: float) -> None:
        hub = self._hubs.get(asyncio.get_running_loop())
        if hub is not None and claim is not None and grant is not None and claim.limit > 0:
            hub.note_claim(claim, len(grant.claimed), began)
            wait = earliest(grant.wait, self.layout.seconds_to_opening(claim.queues))
            if wait is not None:
                hub.hint_in(wait)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        loop = asyncio.get_running_loop()
        coalescer = self._heartbeats.get(loop)
        if coalescer is None:
            coalescer = self._heartbeats[loop] = Coalescer(self._send_heartbeats)
        [rows] = await coalescer.send([beat])
        if not rows:
            return HeartbeatReply(alive=False)
        if beat.progress:
            await self.fetch(settle.put_progress(beat.progress))
        holding = [row for row in rows if row[0] is not None]
        claims = [(row[0], row[1], row[2]) for row in holding if row[2] is not None]
        unacknowledged = list(unacknowledged_claims(beat, claims))
        transitions: tuple[TaskTransition, ...] = ()
        if unacknowledged:
            if self.layout.is_stale:
                await self.refresh_layout()
            transitions = await self.play(lambda: sessions.release(self.env, beat, unacknowledged))
        workers = await self._session_count()
        reply = heartbeat_reply(beat, sessions.running(holding), transitions, workers=workers)
        if not reply.lost:
            return reply
        # Another session may hold one of them under the same fence; usually they are lost.
        running = sessions.running(await self.fetch(sessions.held(beat)))
        return heartbeat_reply(beat, running, transitions, workers=workers)

    async def _send_heartbeats(self, beats: Sequence[Heartbeat]) -> list[list[Row]]:
        """Renew the sessions in one statement; return the rows of each."""
        if len({beat.session for beat in beats}) < len(beats):
            return [(await self._send_heartbeats([beat]))[0] for beat in beats]
        rows: dict[str, list[Row]] = {beat.session: [] for beat in beats}
        for session, *row in await self.fetch(sessions.heartbeat(self._now, beats)):
            rows[session].append(row)
        return list(rows.values())

    async def _session_count(self) -> int:
        """Count the sessions; of many, not at every heartbeat."""
        number, counted_at = self._sessions
        if number < _FEW_SESSIONS or monotonic() - counted_at > _COUNT_SECONDS:
            self._sessions = number, monotonic()
            number = (await self.fetch(Query("count_sessions")))[0][0]
            self._sessions = number, monotonic()
        return number

    def transaction(self) -> Transaction:
        """Open a transaction on a connection that claims and settlements do not use."""
        return OwnTransaction(self._untuned, self._psycopg)

    async def once(self, lease: Lease, key: str) -> bool:
        rows = await self.fetch(Query("mark_once", (lease.task_id, lease.fence, key)))
        if not rows:
            raise refusals.lease_lost(lease, key)
        return bool(rows[0][0])

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        await self._ensure_open()
        loop = asyncio.get_running_loop()
        hub = self._hubs.get(loop)
        if hub is None:
            hub = self._hubs[loop] = WakeHub(self.connections)
        async with hub.listen(queues) as listener:
            while True:
                for wake in await listener.hints():
                    yield wake

    # -- keep ----------------------------------------------------------------------------------------

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        lead = Query("lead", (self._now, holder, lease_for)) if lease_for else Query("resign", (holder,))
        return bool(await self.fetch(lead))

    async def promote(self, limit: int) -> Promoted:
        ((number, next_at),) = await self.fetch(Query("promote", (self._now, max(limit, 0), STRICT_MS)))
        return Promoted(number=number, next_at=next_at)

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        return await self.play(lambda: sessions.rescue(self._now, session, limit))

    async def prune(self, default: Retention, limit: int, by: By | None = None) -> Pruned:
        """Delete what retention no longer covers: daily partitions whole, the rest row by row."""
        now = await self.now()
        if by is not None:
            entry = audited_prune(default, by, now)
            await self.play(lambda: write_audit([entry]))
        pruned = await self._pruner.prune(self, default, now, limit)
        await relayout.tidy(self)
        return pruned

    # -- read ----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        await self._ensure_open()
        return await find.find(self, where, page)

    async def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool = False) -> Sequence[Count]:
        """Count the tasks that match; an estimate if too many would have to be read, unless `sized`."""
        await self._ensure_open()
        return await (sizes.measure if sized else count.count)(self, where, by)

    async def ended(self, ids: Sequence[TaskId]) -> Sequence[TaskId]:
        await self._ensure_open()
        return await find.ended(self, ids)

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        await self._ensure_open()
        return await find.attempts(self, task_id)

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        """Apply an action to the tasks that match and allow it.

        They are found first, and checked again by the transaction that acts; a second one is needed only if
        very many of those found have changed by then.
        """
        await self._ensure_open()
        if self.layout.is_stale:
            await self.refresh_layout()
        if isinstance(action, LoggedAction):
            return await self._log(action, where, limit)
        if isinstance(action, Rewrite):
            return await self.play(lambda: actions.rewrite(self._now, action))
        where, cursor = applicable(action, where), None
        done = Applied()
        while len(done.ids) < limit:
            page = Page(limit=min(limit - len(done.ids), 10_000) + _SPARE, cursor=cursor)
            found = await find.find_ids(self, where, page)
            if not found.items:
                break
            room, states = limit - len(done.ids), where.states or ()
            done += await self.play(partial(actions.apply, self.env, action, found.items, states, room))
            cursor = found.cursor
            if cursor is None:
                break
        return done

    async def _log(self, action: LoggedAction, where: Filter, limit: int) -> Applied:
        meant = is_about_tasks(action) and limit > 0
        found = (await self.find(where, Page(limit=limit))).items if meant else ()
        if entries := logged(action, found, await self.now()):
            await self.play(lambda: write_audit(entries))
        return Applied(ids=tuple(task.id for task in found))

    async def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> None:
        if not isinstance(record, QueueSettings | StoredRecord):
            raise refusals.written_by_itself(record)
        displaced = await self.play(lambda: actions.put(self._now, record, by, expected))
        await relayout.apply_rules(self, type(record), displaced)

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        await self._ensure_open()
        if kind is Usage:
            usages: Sequence[Any] = await self.play(partial(relayout.usages, await self.now()))
            return page_of(usages, page, lambda usage: usage.name)
        return await find.records(self, kind, page)

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Remove a record; the tasks of a removed session can be rescued."""
        if kind not in KINDS and kind not in (QueueSettings, Session):
            raise refusals.not_removed(kind)
        removed, displaced = await self.play(lambda: actions.remove(self._now, kind, name, by))
        await relayout.apply_rules(self, kind, displaced)
        return removed

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        with self.connections.translated_errors():
            return await schema.listed(self.connections)

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Migrate up or down, each step in a transaction; several processes may do so at once."""
        self._ready = False
        with self.connections.translated_errors():
            return await schema.migrate(self.connections, target, self._now)

    async def check(self) -> Sequence[Finding]:
        with self.connections.translated_errors():
            return await checks.check(self.connections, self._now)
