"""A store with injected faults: before a verb, after it (the reply is lost), or held until released.

store = FaultyStore(MemoryStore(), scripted(claim=[None, Fault.AFTER], settle=[Fault.BEFORE]))
store = FaultyStore(MemoryStore(), seeded(7, rate=0.1))

hold = Hold()
store = FaultyStore(MemoryStore(), scripted(settle=[hold]))
...
await hold.reached()   # a settle has arrived
hold.let_go()
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Any, ParamSpec, TypeAlias, TypeVar

from .._store.forward import ForwardingStore
from .._store.protocol import Capability, Store, Transaction, Wake
from ..errors import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")


class Fault(StrEnum):
    """When to raise StoreUnavailable."""

    BEFORE = "before"  # nothing was done
    AFTER = "after"  # it was done, but the caller cannot know


class Hold:
    """Holds a call of a verb until `let_go`. Works across threads and event loops."""

    def __init__(self) -> None:
        self._reached: Future[None] = Future()
        self._let_go: Future[None] = Future()

    async def reached(self) -> None:
        """Wait until a call is held."""
        await asyncio.shield(asyncio.wrap_future(self._reached))

    def let_go(self) -> None:
        """Release the call. Releasing it twice is harmless."""
        _finish(self._let_go)

    async def wait(self) -> None:
        """Hold the caller until `let_go`."""
        _finish(self._reached)
        await asyncio.shield(asyncio.wrap_future(self._let_go))

    def wait_in_thread(self) -> None:
        """Hold the calling thread until `let_go`."""
        _finish(self._reached)
        self._let_go.result()


Plan: TypeAlias = Callable[[str], Fault | Hold | None]
"""Returns what happens to the next call of a verb. Called once for every call, from any thread."""


def scripted(**verbs: Sequence[Fault | Hold | None]) -> Plan:
    """Return a plan of the first, second, … call of each verb; later calls succeed."""
    scripts = {verb: deque(faults) for verb, faults in verbs.items()}

    def plan(verb: str) -> Fault | Hold | None:
        script = scripts.get(verb)
        return script.popleft() if script else None

    return plan


def seeded(seed: int, *, rate: float, verbs: Collection[str] | None = None) -> Plan:
    """Return a plan of random faults at this rate, in these verbs (None: all), reproducible by seed."""
    dice = random.Random(seed)

    def plan(verb: str) -> Fault | None:
        if (verbs is not None and verb not in verbs) or dice.random() >= rate:
            return None
        return dice.choice(list(Fault))

    return plan


class FaultyStore(ForwardingStore):
    """Any store with injected faults, except in open, close, join and the clock."""

    def __init__(self, inner: Store, plan: Plan) -> None:
        super().__init__(inner)
        self._plan = plan

    @property
    def capabilities(self) -> Capability:
        """Those of the store, except that a hold waits on an event loop."""
        return self.inner.capabilities & ~Capability.BLOCK

    def another(self) -> "FaultyStore":
        """Return another handle under the same plan."""
        return FaultyStore(self.inner.another(), self._plan)

    async def _forward(
        self, verb: str, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        fault = self._plan(verb)
        if isinstance(fault, Hold):
            await fault.wait()
        if fault is Fault.BEFORE:
            raise StoreUnavailable(f"a planned fault before {verb}")
        result = await method(*args, **kwargs)
        if fault is Fault.AFTER:
            raise StoreUnavailable(f"a planned fault after {verb}: it was done")
        return result

    def transaction(self) -> "FaultyTransaction":
        """`transaction` under the plan: BEFORE, nothing is begun; AFTER, the reply to the commit is lost."""
        return FaultyTransaction(self.inner.transaction(), self._plan("transaction"))

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Each wake is under the plan: BEFORE, the stream breaks; AFTER, the wake is lost as well."""
        async for wake in self.inner.wakes(queues):
            yield await self._forward("wakes", _given, wake)


class FaultyTransaction:
    """A transaction with a fault. A hold delays its beginning."""

    def __init__(self, inner: Transaction, fault: Fault | Hold | None) -> None:
        self._inner = inner
        self._fault = fault

    async def __aenter__(self) -> Any:  # the driver's own type
        if isinstance(self._fault, Hold):
            await self._fault.wait()
        self._before()
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)
        self._after(kind)

    def __enter__(self) -> Any:  # the driver's own type
        if isinstance(self._fault, Hold):
            self._fault.wait_in_thread()
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
