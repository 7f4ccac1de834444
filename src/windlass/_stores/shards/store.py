"""ShardedStore: several stores of any kind as one."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import NoReturn

from ..._store.protocol import Capability, Durability, Join, Promise, Store
from ...errors import StoreError
from . import refusals
from .ask import ShardTasks
from .connection.handle import ShardHandles
from .connection.registry import ShardRegistry
from .enqueue import ShardEnqueue
from .upkeep import ShardUpkeep
from .work import ShardWork

_NOT_IN_COMMON = Capability.JOIN | Capability.MIGRATE
_WEAKEST_FIRST = (Durability.VOLATILE, Durability.RELAXED, Durability.DURABLE)


class ShardedStore(ShardEnqueue, ShardWork, ShardTasks, ShardUpkeep):
    """Every verb goes to the shards that it concerns. What would span shards is merged, or refused."""

    def __init__(self, shards: Mapping[str, Store] | ShardHandles) -> None:
        super().__init__(shards if isinstance(shards, ShardHandles) else ShardHandles(ShardRegistry(shards)))

    @classmethod
    def from_url(cls, rest: str, make: Callable[[str], Store]) -> "ShardedStore":
        """Make the store of `shards://` and the path of a file; `make` makes the store of a shard's URL."""
        return cls(ShardHandles(ShardRegistry(path=Path(rest), make=make)))

    @property
    def shards(self) -> ShardHandles:
        """The shards of this handle."""
        return self._shards

    @property
    def capabilities(self) -> Capability:
        """What all shards can do, without transactions: each shard has its own."""
        common = reduce(and_, (one.capabilities for one in self._shards.opened_stores().values()))
        return common & ~(Capability.JOIN if self._have_one_schema else _NOT_IN_COMMON)

    @property
    def promise(self) -> Promise:
        """The promise of the weakest shard, of those that have been opened if there are any."""
        stores = self._shards.opened_stores()
        known = [name for name in stores if self._shards.is_open(name)] or [*stores]
        promises = {name: stores[name].promise for name in known}
        weakest = min(promises, key=lambda name: _WEAKEST_FIRST.index(promises[name].durability))
        promise = promises[weakest]
        of = f"{len(stores)} shards" if len(known) == len(stores) else f"the open shards ({', '.join(known)})"
        return Promise(
            durability=promise.durability, why=f"of {of}, {weakest} promises the least: {promise.why}"
        )

    async def open(self) -> None:
        """Open every shard that answers, and read the map. Raises StoreUnavailable if none answers."""
        await self._shards.known()
        await self._shards.some(self._shards.names, lambda shard: shard.open_within())

    async def close(self) -> None:
        """Close all shards."""
        await self._shards.close()

    def another(self) -> "ShardedStore":
        """Return a further handle, with handles of its own on the shards."""
        return ShardedStore(self._shards.another())

    async def now(self) -> datetime:
        """Return the time of the home shard or, if it does not answer, of the next one that does."""
        await self._shards.ready()
        problem: StoreError | None = None
        for name in self._shards.names:
            try:
                shard = self._shards[name]
                return await shard.call_within(shard.store.now)
            except StoreError as error:
                problem = problem or error
        assert problem is not None
        raise problem

    def join(self, connection: object) -> Join:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: a transaction is one of a single database."""
        raise refusals.no_transactions("enqueue inside your own transaction")

    def transaction(self) -> NoReturn:
        """Raise NotSupported: a transaction is one of a single database."""
        raise refusals.no_transactions("complete a task in a transaction")
