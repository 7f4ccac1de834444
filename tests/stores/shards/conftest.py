"""Stores of three shards in memory, any of which can be taken down, or be silent."""

from collections.abc import AsyncIterator, Callable

import pytest

from tests.stores.shards.prepared import PreparedShards
from windlass._model.record import QueueRoute, Routes, ShardMap
from windlass._store.clock import Clock
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock
from windlass.testing.faults import Fault, FaultyStore, Hold

NAMES = ("a", "b", "c")
MAP = ShardMap(
    id="m",
    version=1,
    home="a",
    shards=NAMES,
    routes=Routes(
        open=NAMES,
        queues={
            **{f"on-{name}": QueueRoute(over=(name,)) for name in NAMES},
            "by-tenant": QueueRoute(over=NAMES, by_tenant=True),
        },
    ),
)
"""Each shard has a queue of its own, one queue is spread by tenant, and the others by name."""


class Shards:
    """Three shards in memory: the stores themselves, which of them fail, and which do not answer at all."""

    def __init__(self, clock: Clock) -> None:
        self.stores = {name: MemoryStore(clock=clock) for name in NAMES}
        self.down: set[str] = set()
        self.silent: dict[str, Hold] = {}

    def faulty(self) -> dict[str, Store]:
        return {name: FaultyStore(store, self._plan(name)) for name, store in self.stores.items()}

    def _plan(self, name: str) -> Callable[[str], Fault | Hold | None]:
        return lambda _: Fault.BEFORE if name in self.down else self.silent.get(name)

    def let_go(self) -> None:
        """Let the silent shards answer, also what they were asked meanwhile."""
        silent, self.silent = self.silent, {}
        for hold in silent.values():
            hold.let_go()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shards(clock: ManualClock) -> Shards:
    return Shards(clock)


@pytest.fixture
async def store(shards: Shards) -> AsyncIterator[PreparedShards]:
    store = PreparedShards(shards.faulty(), MAP)
    await store.open()
    yield store
    await store.close()
