"""The verbs of the seam over a Postgres database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import asyncpg

from ..._model.attempt import Attempt
from ..._model.filter import Action, By, Count, Dimension, Filter, Page, Slice, page_of
from ..._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.limit import Limit, Usage
from ..._model.queue import QueueSettings, Retention
from ..._model.record import KINDS, Record, Session, StoredRecord
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.verdict import Receipt, Settled, Settlement
from ..._store.protocol import Capability, Finding, Join, Migration, Promoted, Transaction, Wake
from ..rules import refusals
from ..rules.actions import applicable
from ..rules.admission import is_plain
from ..rules.audit import audited_prune
from ..rules.sessions import heartbeat_reply, unacknowledged_claims
from . import actions, schema, sessions
from . import settle as leases
from .claim import relayout as laying
from .enqueue import copy as copying
from .enqueue import plain as enqueueing
from .enqueue.coalesce import Together
from .handle import Handle
from .join.detect import join
from .notify import Switchboard
from .own_transaction import OwnTransaction
from .queue_layout import read_settings
from .read import count as counting
from .read import find as asking
from .rule_player import enqueue, write_audit
from .script import Ask, Script, ask
from .settle import Grant
from .upkeep import checks, partitions
from .upkeep import keep as keeping

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_SPARE = 500
"""So many more tasks are looked for than an action may take: some are not to be had when it comes to it."""


class PostgresStore(Handle):
    """A store in a Postgres database, for any number of processes, threads and event loops."""

    capabilities = Capability.JOIN | Capability.SHARE | Capability.MIGRATE

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Keep all of the batch or none of it."""
        if not batch:
            return []
        if self._layout.is_stale:
            await self.know()
        if not all(map(is_plain, batch)):
            return await self.play(lambda: enqueue(self._terms, batch))
        loop = asyncio.get_running_loop()
        together = self._together.get(loop)
        if together is None:
            together = self._together[loop] = Together(self._enqueue_plain)
        return await together.enqueue(batch)

    async def _enqueue_plain(self, batch: Sequence[NewTask]) -> list[Enqueued]:
        if len(batch) >= copying.AT_LEAST and await self._copy(batch):
            return [Enqueued(id=new.id, created=True) for new in batch]
        if len(batch) >= copying.AT_LEAST or not self._tries.is_first(batch):
            return await self.play(lambda: enqueueing.insert_again(self._terms, batch))
        rows = await self.fetch(enqueueing.plain_insertion(self._terms, batch))
        return enqueueing.answers_to(batch, {row[0] for row in rows})

    async def _copy(self, batch: Sequence[NewTask]) -> bool:
        """The quickest way for many; False if one of them may stand already, or twice among them."""
        await self._opened()
        with self._connections.translated_errors():
            try:
                async with self._connections.one() as connection, self._connections.transaction(connection):
                    return await copying.copy(connection, self._terms, batch)
            except (asyncpg.UniqueViolationError, copying.Stands):
                return False

    def join(self, connection: object) -> Join:
        """The caller's own transaction, on a connection of one of the drivers that joining.py knows."""
        return join(connection, self._terms)

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease ready tasks to a live session."""
        grant = await self._exchange((), claim)
        if not grant.alive:
            raise refusals.session_lost(claim.session)
        return grant.claimed

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply the verdicts whose leases hold, then claim: as a rule in one round trip."""
        if not leases.is_quick(batch):
            return await self._settle_slowly(batch, claim)
        if not batch and claim is None:
            return Settled()
        grant = await self._exchange(batch, claim)
        if grant.done is None:
            return Settled(receipts=(Receipt.APPLIED,) * len(batch), claimed=tuple(grant.claimed))
        done = set(grant.done)
        rest = [settlement for settlement in batch if settlement.lease.task_id not in done]
        settled = await self._settle_slowly(rest, claim)
        receipts = iter(settled.receipts)
        return Settled(
            receipts=tuple(Receipt.APPLIED if s.lease.task_id in done else next(receipts) for s in batch),
            claimed=settled.claimed,
        )

    async def _exchange(self, batch: Sequence[Settlement], claim: Claim | None) -> Grant:
        if self._layout.is_stale:
            await self.know()
        grant = await self._claiming.exchange(self, self._terms, batch, claim)
        if grant.done is None:
            self._came_up(claim, grant)
        return grant

    async def _settle_slowly(self, batch: Sequence[Settlement], claim: Claim | None) -> Settled:
        if self._layout.is_stale:
            await self.know()
        lines, lanes = ([], []) if claim is None else self._claiming.divide(claim)
        arms = [] if lanes else self._claiming.every_arm(lines)
        receipts, grant = await self.play(lambda: leases.settle(self._terms, batch, claim, arms))
        if claim is not None and (grant is None or grant.guarded):
            grant = await self._exchange((), claim)
        else:
            self._came_up(claim, grant)
        return Settled(receipts=receipts, claimed=() if grant is None else tuple(grant.claimed))

    def _came_up(self, claim: Claim | None, grant: Grant | None) -> None:
        board = self._boards.get(asyncio.get_running_loop())
        if board is not None and claim is not None and grant is not None and claim.limit > 0:
            board.came_up(short=len(grant.claimed) < claim.limit)
            if grant.wait is not None:
                board.look_in(grant.wait)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renew the session and release unacknowledged claims; report lost leases and requests to stop."""
        rows = await self.fetch(sessions.heartbeat(self._now, beat))
        if not rows:
            return HeartbeatReply(alive=False)
        if beat.progress:
            await self.fetch(sessions.report(beat))
        holding = [row for row in rows if row[0] is not None]
        claims = [(task_id, fence, number) for task_id, fence, number, _ in holding if number is not None]
        unacknowledged = list(unacknowledged_claims(beat, claims))
        if unacknowledged:
            await self.play(lambda: sessions.release(self._terms, beat, unacknowledged))
        reply = heartbeat_reply(beat, sessions.running(holding))
        if not reply.lost:
            return reply
        # Another session may hold one of them under the same fence; usually they are lost.
        return heartbeat_reply(beat, sessions.running(await self.fetch(sessions.held(beat))))

    def transaction(self) -> Transaction:
        """A transaction on a connection apart from those that claim and settle."""
        return OwnTransaction(self._own, self._blocking)

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark the key on the lease's task; whether this lease marked it first."""
        rows = await self.fetch(Ask("once", (lease.task_id, lease.fence, key)))
        if not rows:
            raise refusals.lease_lost(lease, key)
        return bool(rows[0][0])

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """A hint for every change that may matter to these queues; several at once become one."""
        await self._opened()
        loop = asyncio.get_running_loop()
        board = self._boards.get(loop)
        if board is None:
            board = self._boards[loop] = Switchboard(self._connections)
        async with board.listen(queues) as listener:
            while True:
                for wake in await listener.hints():
                    yield wake

    # -- keep ----------------------------------------------------------------------------------------

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        """Take, keep or give up the lead."""
        return bool(await self.fetch(keeping.lead(self._now, holder, lease_for)))

    async def promote(self, limit: int) -> Promoted:
        """Make due tasks ready."""
        ((number, next_at),) = await self.fetch(keeping.promote(self._now, limit))
        return Promoted(number=number, next_at=next_at)

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Take over the running tasks of sessions that have expired."""
        return await self.play(lambda: sessions.rescue(self._now, session, limit))

    async def prune(self, retention: Retention, limit: int, by: By | None = None) -> int:
        """Delete what retention no longer covers: days of the history whole, the rest row by row."""
        now = await self.now()
        if by is not None:
            line = audited_prune(retention, by, now)
            await self.play(lambda: write_audit([line]))
        settings = [read_settings(row[0]) for row in await self.fetch(keeping.all_settings())]
        terms = keeping.terms(retention, settings)
        whole = keeping.longest(terms)
        pruned = await self._drop_days(now, whole)
        for term in terms:
            if pruned < limit and keeping.by_row(term, whole):
                since = self._horizons.since(term, now)
                gone = await self.play(
                    partial(keeping.prune_rows, self._terms, term, now, limit - pruned, since)
                )
                if gone.horizon is not None:
                    self._horizons.reached(term, gone.horizon)
                pruned += gone.number
        while len(await self.fetch(keeping.prune_keys(self._now))) == keeping.KEYS_AT_ONCE:
            continue
        await self._tidy_lanes(settings)
        return pruned

    async def _drop_days(self, now: datetime, whole: timedelta | None) -> int:
        with self._connections.translated_errors():
            await partitions.prepare(self._connections, now)
            horizon = None if whole is None or whole < 2 * keeping.SPAN else keeping.before(now, whole)
            return 0 if horizon is None else await partitions.drop_before(self._connections, horizon.date())

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """The tasks that match, by id."""
        await self._opened()
        with self._connections.translated_errors():
            return await asking.find(self._connections, where, page)

    async def count(self, where: Filter, by: Sequence[Dimension]) -> Sequence[Count]:
        """How many match; not exact where too many tasks would have to be looked at."""
        await self._opened()
        with self._connections.translated_errors():
            return await counting.count(self._connections, where, by)

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """The lines of a task's attempts."""
        await self._opened()
        with self._connections.translated_errors():
            return await asking.attempts(self._connections, task_id)

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """Do it to those that match and allow it.

        They are looked for first; the transaction that acts judges again. It is one, unless a great many of
        those found are not to be had then.
        """
        meant, cursor = applicable(action, where), None
        done: list[TaskId] = []
        await self._opened()
        while len(done) < limit:
            page = Page(limit=min(limit - len(done), 10_000) + _SPARE, cursor=cursor)
            with self._connections.translated_errors():
                found = await asking.find_ids(self._connections, meant, page)
            acting = partial(
                actions.apply, self._terms, action, found.items, meant.states or (), limit - len(done)
            )
            done += await self.play(acting)
            cursor = found.cursor
            if cursor is None:
                break
        return done

    async def put(self, record: Record, by: By | None = None) -> None:
        """Keep a record in place of the one of the same name. Some kinds are the store's own to write."""
        if not isinstance(record, QueueSettings | StoredRecord):
            raise refusals.written_by_itself(record)

        async def play(script: Callable[[], Script[T]]) -> T:
            return await self.play(lambda: actions.put(self._now, record, by, script()))

        if isinstance(record, QueueSettings):
            moved = await play(lambda: keeping.put_queue(self._now, record))
            await self.know()
            await self._lay_anew([record.name] if moved else [])
        elif isinstance(record, Limit):
            await self._limits_changed(await play(lambda: laying.put_limit(self._now, record)))
        else:
            await play(lambda: keeping.put_record(record))

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """The records of a kind, by name."""
        if kind is Usage:
            usages: Sequence[Any] = await self.play(partial(laying.usages, await self.now()))
            return page_of(usages, page, lambda usage: usage.name)
        await self._opened()
        with self._connections.translated_errors():
            return await asking.records(self._connections, kind, page)

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Forget a record; what a session held becomes rescuable."""

        async def play(script: Callable[[], Script[T]]) -> T:
            return await self.play(lambda: actions.remove(self._now, kind, name, by, script()))

        if kind is QueueSettings:
            removed = await play(lambda: keeping.remove_queue(self._now, name))
            await self.know()
            await self._lay_anew([name])
            return removed
        if kind is Limit:
            gone = await play(lambda: laying.remove_limit(self._now, name))
            await self._limits_changed(gone)
            return bool(gone)
        if kind is Session:
            return bool(await play(lambda: ask("remove_session", name)))
        if kind in KINDS:
            return bool(await play(lambda: ask("remove_record", KINDS[kind], name)))
        raise refusals.not_removed(kind)

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """Every step of the schema that this code or the database knows."""
        with self._connections.translated_errors():
            return await schema.listed(self._connections)

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Go up or down, each step in a transaction; any number of processes may try at once."""
        self._ready = False
        with self._connections.translated_errors():
            return await schema.migrate(self._connections, target, self._now)

    async def check(self) -> Sequence[Finding]:
        """Look at the schema, the tables, the server and what lies about."""
        with self._connections.translated_errors():
            return await checks.check(self._connections, self._now)
