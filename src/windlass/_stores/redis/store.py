"""The store protocol over Redis or Valkey."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import NoReturn, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from ..._model.attempt import Attempt
from ..._model.filter import (
    Action,
    By,
    Change,
    Count,
    Dimension,
    Filter,
    LoggedAction,
    Page,
    Rewrite,
    Slice,
    documents_of,
)
from ..._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.queue import QueueSettings, Retention
from ..._model.record import KINDS, Record, Session, StoredRecord
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.transition import Applied, Pruned
from ..._model.verdict import Settled, Settlement
from ..._store.clock import Clock
from ..._store.protocol import Capability, Finding, Join, Migration, Promise, Promoted, Wake
from ...errors import NotSupported
from ..forks import leave_in_children, never_free
from ..rules import actions, refusals
from ..rules.admission import admit
from ..rules.audit import audited_rewrite, is_about_tasks, logged
from . import checks, leases, records, schema, upkeep
from .claim.claimer import Claimer
from .connection.address import Address, parse
from .connection.client import on_their_loops
from .database import Database
from .enqueue import PlainEnqueue
from .notify import WakeHub
from .read import Reader
from .rule_player import play
from .unit_of_work import UnitOfWork

R = TypeVar("R", bound=Record)

ACTED_AT_ONCE = 200
"""Tasks that one commit of an operator's action changes, besides their successors."""

_encode = msgspec.json.Encoder().encode
_NO_TRANSACTIONS = (
    "Redis has no transactions that include writes to your database; enqueue after your commit, or use a "
    "store on Postgres"
)


class RedisStore:
    """A store on a Redis or Valkey server, for any number of threads, event loops and processes.

    It opens itself on first use; once closed it must be opened again. A forked child opens its own
    connections.
    """

    capabilities = Capability.SHARE | Capability.BLOCK

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self._test_clock = clock
        self._database = Database(address, clock)
        self._plain = PlainEnqueue(self._database)
        self._claimer = Claimer(self._database, self._wake_in)
        self._reader = Reader(self._database)
        self._hubs: dict[asyncio.AbstractEventLoop, WakeHub] = {}
        self._server: checks.Server | None = None
        leave_in_children(self)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> "RedisStore":
        return cls(parse(url), clock=clock)

    def another(self) -> "RedisStore":
        return RedisStore(self.address, clock=self._test_clock)

    @property
    def promise(self) -> Promise:
        return checks.UNKNOWN if self._server is None else self._server.promise

    async def now(self) -> datetime:
        return await self._database.now()

    # -- open and close ------------------------------------------------------------------------------

    async def open(self) -> None:
        self._database.client.open()
        if self._server is None:
            server = await checks.read_server(self._database.client)
            checks.refuse(server, self.address.durability, self.address.display)
            await self._database.read_rules()
            self._server = server

    async def close(self) -> None:
        hubs, self._hubs = self._hubs, {}
        await on_their_loops({loop: hub.close for loop, hub in hubs.items()})
        await self._database.client.close()

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        never_free(self._hubs)
        self._hubs = {}
        self._database.client.leave_to_parent()

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Enqueue in one round trip if no id is known yet, and no key or predecessor must be looked up."""
        if (enqueued := await self._plain.enqueue(batch)) is not None:
            return enqueued
        unknown = {new.id: None for new in batch}
        return await self._database.transact(lambda unit: play(unit, admit(unit, batch)), unknown)

    def join(self, connection: object) -> Join:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: Redis has no transactions to join."""
        raise NotSupported(_NO_TRANSACTIONS)

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        began = monotonic()
        claimed = await self._claimer.claim(claim)
        self._note_claim(claim, claimed, began)
        return claimed

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        began = monotonic()
        settled = await leases.settle(self._database, self._claimer, batch, claim)
        if claim is not None:
            self._note_claim(claim, settled.claimed, began)
        return settled

    def _note_claim(self, claim: Claim, claimed: Sequence[Claimed], began: float) -> None:
        hub = self._hubs.get(asyncio.get_running_loop())
        if hub is not None:
            hub.note_claim(claim, len(claimed), began)

    def _wake_in(self, seconds: float) -> None:
        hub = self._hubs.get(asyncio.get_running_loop())
        if hub is not None:
            hub.wake_in(seconds)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        return await leases.heartbeat(self._database, beat, _encode(beat.worker))

    def transaction(self) -> NoReturn:
        """Raise NotSupported: Redis has no transactions to complete a task in."""
        raise NotSupported(_NO_TRANSACTIONS)

    async def once(self, lease: Lease, key: str) -> bool:
        return await leases.once(self._database, lease, key)

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        loop = asyncio.get_running_loop()
        if loop not in self._hubs:
            self._hubs[loop] = WakeHub(self._database.client, self._database.keys.wakes)
        listening = self._hubs[loop].listen(queues)
        try:
            async for wake in listening:
                yield wake
        finally:
            await listening.aclose()  # type: ignore[attr-defined]  # a generator

    # -- keep ----------------------------------------------------------------------------------------

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        return await upkeep.lead(self._database, holder, lease_for)

    async def promote(self, limit: int) -> Promoted:
        return await upkeep.promote(self._database, limit)

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        return await leases.rescue(self._database, self._claimer, session, limit)

    async def prune(self, default: Retention, limit: int, by: By | None = None) -> Pruned:
        return await upkeep.prune(self._database, default, limit, by)

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        return await self._reader.find(where, page)

    async def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool = False) -> Sequence[Count]:
        return await self._reader.count(where, by, sized=sized)

    async def ended(self, ids: Sequence[TaskId]) -> Sequence[TaskId]:
        return await self._reader.ended(ids)

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        return await self._reader.attempts(task_id)

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        """Apply an action to the tasks that match and permit it, some in each commit."""
        if isinstance(action, LoggedAction):
            return await self._log(action, where, limit)
        if isinstance(action, Rewrite):
            return await self._database.transact(partial(_rewrite, action=action))
        meant, done = actions.applicable(action, where), Applied()
        ids: list[TaskId] = []
        if limit > 0:
            async for task in self._reader.matching(meant, Page(limit=limit)):
                ids.append(task.id)
                if len(ids) == ACTED_AT_ONCE:
                    done += await self._act(action, meant, ids, limit - len(done.ids))
                    ids = []
                if len(done.ids) == limit:
                    return done
        return done + await self._act(action, meant, ids, limit - len(done.ids)) if ids else done

    async def _act(self, action: Change, where: Filter, ids: Sequence[TaskId], limit: int) -> Applied:
        states = where.states or ()
        return await self._database.transact(
            lambda unit: play(unit, actions.apply(unit, action, ids, states, limit))
        )

    async def _log(self, action: LoggedAction, where: Filter, limit: int) -> Applied:
        meant = is_about_tasks(action) and limit > 0
        found = (await self.find(where, Page(limit=limit))).items if meant else ()

        async def write(unit: UnitOfWork) -> None:
            unit.audit(logged(action, found, unit.now))

        await self._database.transact(write)
        return Applied(ids=tuple(task.id for task in found))

    async def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> None:
        if not isinstance(record, QueueSettings | StoredRecord):
            raise refusals.written_by_itself(record)
        await records.put(self._database, record, by, expected)

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        return await records.records(self._database, kind, page)

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        if kind not in KINDS and kind not in (QueueSettings, Session):
            raise refusals.not_removed(kind)
        return await records.remove(self._database, kind, name, by)

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """Return an empty sequence: there are none. Raises SchemaMismatch if the store has another schema."""
        await self._database.read_rules()
        return ()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: there are none. Raises SchemaMismatch if the store has another schema."""
        await self._database.read_rules()
        raise NotSupported("a store on Redis has no schema to migrate")

    async def check(self) -> Sequence[Finding]:
        """Check the server's settings and the store's schema."""
        database = self._database
        found = await checks.read_server(database.client)
        return [*found.findings(), await schema.check(database.client, database.keys)]


async def _rewrite(unit: UnitOfWork, action: Rewrite) -> Applied:
    """Replace the documents of tasks that still have those that are expected, and audit it."""
    tasks = await unit.load([one.id for one in action.tasks])
    done: list[TaskId] = []
    for one in action.tasks:
        task = tasks.get(one.id)
        if task is not None and documents_of(task) == one.before:
            tasks[one.id] = unit.update(task, **asdict(one.after))
            done.append(one.id)
    unit.audit(audited_rewrite(action, len(done), unit.now))
    return Applied(ids=tuple(done))
