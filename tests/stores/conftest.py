"""The stores that the conformance suite and the twins run against."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from windlass._clock import Clock
from windlass._store import Store
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.clock import ManualClock
from windlass.testing.faults import FaultyStore, scripted

pytest.register_assert_rewrite("windlass.testing.conformance", "windlass.testing.twins")

Factory = Callable[[Path, Clock], Store]
"""Makes an unopened store in an empty folder."""


STORES: dict[str, Factory] = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "without faults": lambda _, clock: FaultyStore(MemoryStore(clock=clock), scripted()),
    "sqlite": lambda folder, clock: SQLiteStore(folder / "windlass.db", clock=clock),
}


@pytest.fixture(params=STORES)
def factory(request: pytest.FixtureRequest) -> Factory:
    return STORES[request.param]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(factory: Factory, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    store = factory(tmp_path, clock)
    await store.open()
    yield store
    await store.close()
