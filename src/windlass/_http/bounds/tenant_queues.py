"""A bound on the queues and task types of each tenant, for enqueues with keys that are bound to a tenant.

Whoever lists or counts queues or types goes through all of them, so nobody may add any number. Those that a
server has seen the tenant use are remembered; only where these are too many does it look at how many there
are now.
"""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Literal

from msgspec import Struct

from ..._model.filter import Dimension, Filter
from ..._model.task import NewTask
from ..._observe.overview import COUNTED
from ..._policy.input.chain import Step, decode_steps, tenant_of
from ..._policy.input.quote import quoted
from ..._store.protocol import Store
from ..auth import Caller
from ..web.problems import Problem

_READ_EVERY = 5.0  # seconds, at least, between two looks at what a tenant uses that has too many
_SHARE = 20  # and the looks take up one part in this many of the time


class _Known(Struct):
    """The names that a tenant is known to use, and the time from which they may be read again."""

    names: set[str]
    read_at: float


class TenantQueues:
    """The queues and task types that tenants use, as far as this server knows."""

    def __init__(self, store: Store, queues: int, types: int, clock: Callable[[], float] = monotonic) -> None:
        self._queues = _Names(store, Dimension.QUEUE, queues, clock)
        self._types = _Names(store, Dimension.TYPE, types, clock)

    async def admit(self, caller: Caller, batch: Sequence[NewTask]) -> None:
        """Raise 507 if a caller that is bound to a tenant would use more queues or types than it may."""
        if caller.tenant is None:
            return
        queues, types = {task.queue for task in batch}, {task.type for task in batch}
        for task in batch:
            if task.next is not None:
                steps = [*_steps_of(decode_steps(task.next), task.tenant, caller.tenant)]
                queues.update(step.queue for step in steps)
                types.update(step.type for step in steps)
        await self._types.require(caller.tenant, types)
        if caller.queues is None:
            await self._queues.require(caller.tenant, queues)
            self._queues.add(caller.tenant, queues)
        self._types.add(caller.tenant, types)


class _Names:
    """The queues, or the types, that tenants use, as far as this server knows."""

    def __init__(
        self,
        store: Store,
        kind: Literal[Dimension.QUEUE, Dimension.TYPE],
        most: int,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._kind = kind
        self._most = most
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def require(self, tenant: str, wanted: set[str]) -> None:
        """Raise 507 if the tenant would use too many with these."""
        known = self._known_of(tenant)
        if self._is_too_much(known, wanted) and self._clock() >= known.read_at:
            await self._read(tenant, known)
        if self._is_too_much(known, wanted):
            has = f"has tasks in {len(known.names):,} queues"
            if self._kind is Dimension.TYPE:
                has = f"has tasks of {len(known.names):,} types"
            raise Problem(
                "quota-exceeded",
                f"the tenant {quoted(tenant)} {has}, and keys that are bound to a tenant may use "
                f"{self._most:,}; use fewer {self._kind}s, or raise --max-{self._kind}s-per-tenant of "
                f"`windlass serve`",
                headers={"Retry-After": str(max(round(known.read_at - self._clock()), 1))},
            )

    def add(self, tenant: str, names: set[str]) -> None:
        """Note that the tenant uses these."""
        self._known_of(tenant).names |= names

    def _known_of(self, tenant: str) -> _Known:
        return self._known.setdefault(tenant, _Known(set(), 0.0))

    def _is_too_much(self, known: _Known, wanted: set[str]) -> bool:
        return not wanted <= known.names and len(known.names | wanted) > self._most

    async def _read(self, tenant: str, known: _Known) -> None:
        began = self._clock()
        known.read_at = began + _READ_EVERY  # others do not read meanwhile
        counts = await self._store.count(Filter(tenants=(tenant,), states=COUNTED), (self._kind,))
        known.names = {count.values[0] for count in counts}
        now = self._clock()
        known.read_at = now + max(_READ_EVERY, (now - began) * _SHARE)


def _steps_of(steps: Sequence[Step], before: str, tenant: str) -> Iterator[Step]:
    """Yield this tenant's steps, at any depth."""
    for step in steps:
        own = tenant_of(step, before)
        if own == tenant:
            yield step
        yield from _steps_of(step.next, own, tenant)
