"""The stores that the conformance suite and the twins run against."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.api import ApiServer
from tests.stores.schemas import Schemas
from windlass._clock import Clock
from windlass._store import Store
from windlass._stores.http import HttpStore
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
SERVED = {"http to memory": "memory", "http to sqlite": "sqlite"}
SERVERS = {"postgres 15": "schemas15", "postgres": "schemas_newest", "pgbouncer": "schemas_pooled"}


@pytest.fixture(params=[*STORES, *SERVED, *SERVERS])
def factory(request: pytest.FixtureRequest) -> Iterator[Factory]:
    if request.param in STORES:
        yield STORES[request.param]
        return
    if request.param in SERVED:
        api: ApiServer = request.getfixturevalue("api")
        make = STORES[SERVED[request.param]]
        yield lambda folder, clock: HttpStore(api.serve(make(folder, clock), open_to_all=True))
        return
    schemas: Schemas = request.getfixturevalue(SERVERS[request.param])
    with schemas.lent() as fresh:
        yield lambda _, clock: fresh(clock)


@pytest.fixture(scope="session")
def api() -> Iterator[ApiServer]:
    with ApiServer() as api:
        yield api


@pytest.fixture(scope="session")
def schemas15(postgres15) -> Iterator[Schemas]:
    with Schemas(postgres15.url) as schemas:
        yield schemas


@pytest.fixture(scope="session")
def schemas_newest(postgres_newest) -> Iterator[Schemas]:
    with Schemas(postgres_newest.url) as schemas:
        yield schemas


@pytest.fixture(scope="session")
def schemas_pooled(pgbouncer, postgres_newest) -> Iterator[Schemas]:
    with Schemas(pgbouncer.url, direct=postgres_newest.url, prefix="pooled") as schemas:
        yield schemas


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(factory: Factory, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    store = factory(tmp_path, clock)
    await store.open()
    yield store
    await store.close()
