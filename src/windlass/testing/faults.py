"""A store that fails on purpose: before a verb, after it (the reply is lost), or not until it is let go.

store = FaultyStore(MemoryStore(), scripted(claim=[None, Fault.AFTER], settle=[Fault.BEFORE]))
store = FaultyStore(MemoryStore(), seeded(7, rate=0.1))

hold = Hold()
store = FaultyStore(MemoryStore(), scripted(settle=[hold]))
...
await hold.reached()   # somebody is about to settle
hold.let_go()
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from .._model.attempt import Attempt
from .._model.filter import Action, By, Count, Dimension, Filter, Page, Slice
from .._model.lease import Claim, Claimed, Heartbeat, Lease, Pulse
from .._model.queue import Retention
from .._model.record import Record
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.verdict import Settled, Settlement
from .._store.protocol import (
    Capability,
    Finding,
    Join,
    Migration,
    Promise,
    Promoted,
    Store,
    Transaction,
    Wake,
)
from ..errors import StoreUnavailable

T = TypeVar("T")
R = TypeVar("R", bound=Record)


class Fault(StrEnum):
    """When StoreUnavailable is raised."""

    BEFORE = "before"  # nothing was done
    AFTER = "after"  # it was done, and the caller does not know


class Hold:
    """Keeps a verb from being done until somebody lets it go. Works across threads and event loops."""

    def __init__(self) -> None:
        self._reached: Future[None] = Future()
        self._let_go: Future[None] = Future()

    async def reached(self) -> None:
        """Wait until a verb stands here."""
        await asyncio.shield(asyncio.wrap_future(self._reached))

    def let_go(self) -> None:
        """Let it be done. Letting go twice is harmless."""
        _finish(self._let_go)

    async def stand(self) -> None:
        """Stand here until let go."""
        _finish(self._reached)
        await asyncio.shield(asyncio.wrap_future(self._let_go))

    def stand_here(self) -> None:
        """Stand here until let go, in a thread."""
        _finish(self._reached)
        self._let_go.result()


Plan: TypeAlias = Callable[[str], Fault | Hold | None]
"""What shall befall the next call of a verb. Called once for every call, from any thread."""


def scripted(**verbs: Sequence[Fault | Hold | None]) -> Plan:
    """What befalls the first, second, … call of each verb; nothing when its list is used up."""
    scripts = {verb: deque(faults) for verb, faults in verbs.items()}

    def plan(verb: str) -> Fault | Hold | None:
        script = scripts.get(verb)
        return script.popleft() if script else None

    return plan


def seeded(seed: int, *, rate: float, verbs: Collection[str] | None = None) -> Plan:
    """Faults at random, at this rate, in these verbs (None: in all). The same seed gives the same faults."""
    dice = random.Random(seed)

    def plan(verb: str) -> Fault | None:
        if (verbs is not None and verb not in verbs) or dice.random() >= rate:
            return None
        return dice.choice(list(Fault))

    return plan


class FaultyStore:
    """Any store, with faults. Opening, closing, joining and the clock are spared."""

    def __init__(self, inner: Store, plan: Plan) -> None:
        self._inner = inner
        self._plan = plan

    async def _do(self, name: str, verb: Callable[[], Awaitable[T]]) -> T:
        fault = self._plan(name)
        if isinstance(fault, Hold):
            await fault.stand()
        if fault is Fault.BEFORE:
            raise StoreUnavailable(f"a planned fault before {name}")
        answer = await verb()
        if fault is Fault.AFTER:
            raise StoreUnavailable(f"a planned fault after {name}: it was done")
        return answer

    # -- spared ----------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capability:
        """The inner store's."""
        return self._inner.capabilities

    @property
    def promise(self) -> Promise:
        """The inner store's."""
        return self._inner.promise

    async def open(self) -> None:
        """Open the inner store."""
        await self._inner.open()

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    def another(self) -> "FaultyStore":
        """A further handle, under the same plan."""
        return FaultyStore(self._inner.another(), self._plan)

    async def now(self) -> datetime:
        """The inner store's clock."""
        return await self._inner.now()

    def join(self, connection: object) -> Join:
        """The inner store's."""
        return self._inner.join(connection)

    # -- under the plan --------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """`enqueue`, under the plan."""
        return await self._do("enqueue", lambda: self._inner.enqueue(batch))

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """`claim`, under the plan."""
        return await self._do("claim", lambda: self._inner.claim(claim))

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """`settle`, under the plan."""
        return await self._do("settle", lambda: self._inner.settle(batch, claim))

    async def heartbeat(self, beat: Heartbeat) -> Pulse:
        """`heartbeat`, under the plan."""
        return await self._do("heartbeat", lambda: self._inner.heartbeat(beat))

    def transaction(self) -> "FaultyTransaction":
        """`transaction`, under the plan: before it nothing is begun, after it the commit's reply is lost."""
        return FaultyTransaction(self._inner.transaction(), self._plan("transaction"))

    async def once(self, lease: Lease, key: str) -> bool:
        """`once`, under the plan."""
        return await self._do("once", lambda: self._inner.once(lease, key))

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Each hint is under the plan: before it the stream breaks, after it the hint is lost as well."""
        async for wake in self._inner.wakes(queues):
            yield await self._do("wakes", lambda hint=wake: _given(hint))  # type: ignore[misc]  # bound now

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        """`lead`, under the plan."""
        return await self._do("lead", lambda: self._inner.lead(holder, lease_for))

    async def promote(self, limit: int) -> Promoted:
        """`promote`, under the plan."""
        return await self._do("promote", lambda: self._inner.promote(limit))

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """`rescue`, under the plan."""
        return await self._do("rescue", lambda: self._inner.rescue(session, limit))

    async def prune(self, retention: Retention, limit: int, by: By | None = None) -> int:
        """`prune`, under the plan."""
        return await self._do("prune", lambda: self._inner.prune(retention, limit, by))

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """`find`, under the plan."""
        return await self._do("find", lambda: self._inner.find(where, page))

    async def count(self, where: Filter, by: Sequence[Dimension]) -> Sequence[Count]:
        """`count`, under the plan."""
        return await self._do("count", lambda: self._inner.count(where, by))

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """`attempts`, under the plan."""
        return await self._do("attempts", lambda: self._inner.attempts(task_id))

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """`apply`, under the plan."""
        return await self._do("apply", lambda: self._inner.apply(action, where, limit))

    async def put(self, record: Record, by: By | None = None) -> None:
        """`put`, under the plan."""
        await self._do("put", lambda: self._inner.put(record, by))

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """`records`, under the plan."""
        return await self._do("records", lambda: self._inner.records(kind, page))

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """`remove`, under the plan."""
        return await self._do("remove", lambda: self._inner.remove(kind, name, by))

    async def migrations(self) -> Sequence[Migration]:
        """`migrations`, under the plan."""
        return await self._do("migrations", self._inner.migrations)

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """`migrate`, under the plan."""
        return await self._do("migrate", lambda: self._inner.migrate(target))

    async def check(self) -> Sequence[Finding]:
        """`check`, under the plan."""
        return await self._do("check", self._inner.check)


class FaultyTransaction:
    """A transaction and what shall befall it. A hold keeps it from being begun."""

    def __init__(self, inner: Transaction, fault: Fault | Hold | None) -> None:
        self._inner = inner
        self._fault = fault

    async def __aenter__(self) -> Any:  # the driver's own type
        if isinstance(self._fault, Hold):
            await self._fault.stand()
        self._before()
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)
        self._after(kind)

    def __enter__(self) -> Any:  # the driver's own type
        if isinstance(self._fault, Hold):
            self._fault.stand_here()
        self._before()
        return self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)
        self._after(kind)

    def _before(self) -> None:
        if self._fault is Fault.BEFORE:
            raise StoreUnavailable("a planned fault before transaction")

    def _after(self, kind: type[BaseException] | None) -> None:
        if self._fault is Fault.AFTER and kind is None:
            raise StoreUnavailable("a planned fault after transaction: it was committed")


async def _given(value: T) -> T:
    return value


def _finish(future: "Future[None]") -> None:
    with suppress(InvalidStateError):
        future.set_result(None)
