"""Bounds on the queues, task types, and pairs of them of each tenant, for keys that are bound to a tenant.

Whoever lists or counts queues or types goes through all of them, and an overview through all pairs, so
nobody may add any number. What a tenant uses is counted when a server first sees it; what the server admits
is added. Only where that is too much does it look at how much there is now.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from time import monotonic
from typing import TypeAlias, TypeVar

from msgspec import Struct

from ..._model.filter import Dimension, Filter
from ..._model.task import NewTask
from ..._observe.overview import COUNTED
from ..._policy.input.chain import Step, decode_steps, tenant_of
from ..._policy.input.quote import quoted
from ..._store.protocol import Store
from ..auth import Caller
from ..web.problems import Problem

_READ_EVERY = 5.0  # seconds, at least, between two looks at what a tenant uses that has too much
_SHARE = 20  # and the looks take up one part in this many of the time

_STORED_AFTER = 60.0
"""Seconds after which admitted tasks are stored, or never will be: until then a look may not see them."""

T = TypeVar("T")

Pair: TypeAlias = tuple[str, str]
"""A queue, and the type of tasks in it."""


class TenantBounds(Struct, frozen=True, kw_only=True):
    """How many queues, types, and pairs of them a tenant may use."""

    queues: int
    types: int
    pairs: int


class TenantQueues:
    """What tenants use, as far as this server knows: exactly, of what it admits itself."""

    def __init__(self, store: Store, bounds: TenantBounds, clock: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._bounds = bounds
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def admit(self, caller: Caller, batch: Sequence[NewTask]) -> None:
        """Raise 507 if a caller that is bound to a tenant would use more than it may; else note what it uses.

        A key that is bound to queues may use all of these.
        """
        if caller.tenant is None:
            return
        wanted = _Names(_pairs_of(batch, caller.tenant))
        known = self._known.setdefault(caller.tenant, _Known())
        if self._is_due(caller, known, wanted):
            async with known.reading:
                if self._is_due(caller, known, wanted):
                    await self._read(caller.tenant, known)
        # Nothing is awaited from here on, so that requests cannot take the same room.
        if exceeded := self._exceeded(caller, known, wanted):
            raise self._refusal(caller.tenant, known, exceeded)
        known.add(wanted, self._clock())

    def _is_due(self, caller: Caller, known: "_Known", wanted: "_Names") -> bool:
        return self._clock() >= known.read_at and (
            known.is_new or self._exceeded(caller, known, wanted) is not None
        )

    def _exceeded(self, caller: Caller, known: "_Known", wanted: "_Names") -> "_Exceeded | None":
        """Return the bound that would be exceeded."""
        bounds, used = self._bounds, known.names
        if _is_too_much(used.types, wanted.types, bounds.types):
            return _Exceeded(f"of {len(used.types):,} types", bounds.types, "types")
        if caller.queues is None and _is_too_much(used.queues, wanted.queues, bounds.queues):
            return _Exceeded(f"in {len(used.queues):,} queues", bounds.queues, "queues")
        if _is_too_much(used.pairs.keys(), wanted.pairs.keys(), bounds.pairs):
            has = f"of {len(used.pairs):,} pairs of queue and type"
            return _Exceeded(has, bounds.pairs, "queue-type-pairs")
        return None

    def _refusal(self, tenant: str, known: "_Known", exceeded: "_Exceeded") -> Problem:
        return Problem(
            "quota-exceeded",
            f"the tenant {quoted(tenant)} has tasks {exceeded.has}, and keys that are bound to a tenant may "
            f"use {exceeded.most:,}; use fewer, or raise --max-{exceeded.option}-per-tenant of "
            f"`windlass serve`",
            headers={"Retry-After": str(max(round(known.read_at - self._clock()), 1))},
        )

    async def _read(self, tenant: str, known: "_Known") -> None:
        began = self._clock()
        counts = await self._store.count(
            Filter(tenants=(tenant,), states=COUNTED), (Dimension.QUEUE, Dimension.TYPE)
        )
        now = self._clock()
        known.replace(((count.values[0], count.values[1]) for count in counts), began - _STORED_AFTER)
        known.read_at = now + max(_READ_EVERY, (now - began) * _SHARE)


class _Exceeded(Struct, frozen=True):
    """A bound that would be exceeded: what the tenant has now, the bound, and the option that raises it."""

    has: str
    most: int
    option: str


class _Names:
    """Pairs of queue and type, each with the time at which it was admitted last; the queues; the types."""

    def __init__(self, pairs: Iterable[Pair], admitted: Mapping[Pair, float] | None = None) -> None:
        self.pairs = {**dict.fromkeys(pairs, -inf), **(admitted or {})}
        self.queues = {queue for queue, _ in self.pairs}
        self.types = {name for _, name in self.pairs}


class _Known:
    """What a tenant is known to use, and the time from which that may be read again."""

    def __init__(self) -> None:
        self.names = _Names(())
        self.read_at = -inf
        self.is_new = True
        self.reading = asyncio.Lock()

    def add(self, wanted: _Names, now: float) -> None:
        """Note that the tenant uses these."""
        self.names.pairs.update(dict.fromkeys(wanted.pairs, now))
        self.names.queues |= wanted.queues
        self.names.types |= wanted.types

    def replace(self, stored: Iterable[Pair], since: float) -> None:
        """Note that the tenant uses what is stored, and what was admitted after this time."""
        self.names = _Names(stored, {pair: at for pair, at in self.names.pairs.items() if at > since})
        self.is_new = False


def _is_too_much(used: AbstractSet[T], wanted: AbstractSet[T], most: int) -> bool:
    return len(used) + len(wanted) > most and not wanted <= used and len(used | wanted) > most


def _pairs_of(batch: Sequence[NewTask], tenant: str) -> Iterator[Pair]:
    """Yield the queues and types of tasks, and of this tenant's steps that follow them."""
    for task in batch:
        yield task.queue, task.type
        if task.next is not None:
            for step in _steps_of(decode_steps(task.next), task.tenant, tenant):
                yield step.queue, step.type


def _steps_of(steps: Sequence[Step], before: str, tenant: str) -> Iterator[Step]:
    """Yield this tenant's steps, at any depth."""
    for step in steps:
        own = tenant_of(step, before)
        if own == tenant:
            yield step
        yield from _steps_of(step.next, own, tenant)
