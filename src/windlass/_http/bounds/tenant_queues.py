"""A bound on the queues of each tenant, for enqueues with keys that are bound to a tenant.

Whoever lists or counts queues goes through all of them, so nobody may add any number. Queues that a server
has seen the tenant use are remembered; only where these are too many does it look at how many there are now.
"""

from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from msgspec import Struct

from ..._model.filter import Dimension, Filter
from ..._model.task import NewTask
from ..._observe.overview import COUNTED
from ..._policy.input.chain import Step, decode_steps, tenant_of
from ..._policy.input.quote import quoted
from ..._store.protocol import Store
from ..auth import Caller
from ..web.problems import Problem

_READ_EVERY = 5.0  # seconds, at least, between two looks at the queues of a tenant that has too many
_SHARE = 20  # and the looks take up one part in this many of the time


class _Known(Struct):
    """The queues that a tenant is known to use, and the time from which they may be read again."""

    names: set[str]
    read_at: float


class TenantQueues:
    """The queues that tenants use, as far as this server knows."""

    def __init__(self, store: Store, most: int, clock: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._most = most
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def admit(self, caller: Caller, batch: Sequence[NewTask]) -> None:
        """Raise 507 if a caller that is bound to a tenant would enqueue into more queues than it may."""
        if caller.tenant is None or caller.queues is not None:
            return
        wanted = {task.queue for task in batch}
        for task in batch:
            if task.next is not None:
                wanted.update(_queues_of(decode_steps(task.next), task.tenant, caller.tenant))
        known = self._known.setdefault(caller.tenant, _Known(set(), 0.0))
        if self._is_too_much(known, wanted) and self._clock() >= known.read_at:
            await self._read(caller.tenant, known)
        if self._is_too_much(known, wanted):
            raise Problem(
                "quota-exceeded",
                f"the tenant {quoted(caller.tenant)} has tasks in {len(known.names):,} queues, and keys that "
                f"are bound to a tenant may use {self._most:,}; use fewer queues, or raise "
                f"--max-queues-per-tenant of `windlass serve`",
                headers={"Retry-After": str(max(round(known.read_at - self._clock()), 1))},
            )
        known.names |= wanted

    def _is_too_much(self, known: _Known, wanted: set[str]) -> bool:
        return not wanted <= known.names and len(known.names | wanted) > self._most

    async def _read(self, tenant: str, known: _Known) -> None:
        began = self._clock()
        known.read_at = began + _READ_EVERY  # others do not read meanwhile
        counts = await self._store.count(Filter(tenants=(tenant,), states=COUNTED), (Dimension.QUEUE,))
        known.names = {count.values[0] for count in counts}
        now = self._clock()
        known.read_at = now + max(_READ_EVERY, (now - began) * _SHARE)


def _queues_of(steps: Sequence[Step], before: str, tenant: str) -> Iterable[str]:
    """Yield the queues of this tenant's steps, at any depth."""
    for step in steps:
        own = tenant_of(step, before)
        if own == tenant:
            yield step.queue
        yield from _queues_of(step.next, own, tenant)
