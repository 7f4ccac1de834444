"""The stores that the conformance suite and the twins run against."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory

import pytest

from tests.examples import sample
from tests.servers.api import ApiServer
from tests.servers.nats import Nats
from tests.servers.nats_cluster import NatsCluster
from tests.servers.owners import Owners
from tests.servers.redis import Redis
from tests.servers.redis_cluster import Cluster
from tests.stores.forms import select
from tests.stores.schemas import Schemas
from tests.stores.shards.prepared import ONE_OPEN, PreparedShards
from windlass._encryption.encrypted_store import EncryptedStore
from windlass._encryption.keys import Keyring
from windlass._store.clock import Clock
from windlass._store.protocol import Store
from windlass._stores.http import HttpStore
from windlass._stores.jetstream import JetStreamStore
from windlass._stores.memory import MemoryStore
from windlass._stores.redis import RedisStore
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.clock import ManualClock
from windlass.testing.faults import FaultyStore, scripted

pytest.register_assert_rewrite("windlass.testing.conformance", "windlass.testing.twins")

IN_MEMORY = Path("/dev/shm")
ROOM = 500_000_000  # bytes: for several tests at once

Factory = Callable[[Path, Clock], Store]
"""Makes an unopened store in an empty folder."""


def on_shards(first: Store, clock: Clock) -> Store:
    """A store of two shards, one of which takes no new tasks; half of the queues are looked for on both."""
    return PreparedShards({"a": first, "b": MemoryStore(clock=clock)}, ONE_OPEN)


STORES: dict[str, Factory] = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "without faults": lambda _, clock: FaultyStore(MemoryStore(clock=clock), scripted()),
    "sqlite": lambda folder, clock: SQLiteStore(folder / "windlass.db", clock=clock),
    "shards": lambda folder, clock: on_shards(SQLiteStore(folder / "a.db", clock=clock), clock),
}
SHARDED = {"shards of postgres": "postgres", "shards of valkey": "valkey"}
ENCRYPTED = {"encrypted memory": "memory", "encrypted sqlite": "sqlite", "encrypted postgres": "postgres"}
KEYRING = Keyring([("k1", b"1" * 32)])
SERVERS = {"postgres 15": "schemas15", "postgres": "schemas_newest", "pgbouncer": "schemas_pooled"}
REDIS = {"valkey": "valkey", "redis 7": "redis7", "valkey cluster": "valkey_cluster"}
JETSTREAM = {"jetstream": "nats", "jetstream cluster": "nats_cluster"}
SERVED = {
    "http to memory": "memory",
    "http to sqlite": "sqlite",
    "http to postgres": "postgres",
    "http to valkey": "valkey",
    "http to jetstream": "jetstream",
    "http to shards": "shards",
}


DEFAULT = (
    *("memory", "sqlite", "postgres", "valkey", "jetstream", "http to memory", "encrypted memory"),
    "shards",
)
# HTTP has no rules of its own, and neither a pooler nor an older server changes any: in full runs only.
REST = (
    *("without faults", "postgres 15", "pgbouncer", "http to sqlite", "http to postgres"),
    *("redis 7", "valkey cluster", "http to valkey"),
    *("encrypted sqlite", "encrypted postgres"),
    *("jetstream cluster", "http to jetstream"),
    *(*SHARDED, "http to shards"),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    select(config, items)


@pytest.fixture(params=sample(DEFAULT, REST))
def factory(request: pytest.FixtureRequest) -> Iterator[Factory]:
    name = request.param
    inner = SERVED.get(name) or ENCRYPTED.get(name) or SHARDED.get(name, name)
    with _making(inner, request) as make:
        if name in SERVED:
            api: ApiServer = request.getfixturevalue("api")
            with api.serving() as serve:
                yield lambda folder, clock: HttpStore(serve(make(folder, clock)))
        elif name in ENCRYPTED:
            yield lambda folder, clock: EncryptedStore(make(folder, clock), KEYRING)
        elif name in SHARDED:
            yield lambda folder, clock: on_shards(make(folder, clock), clock)
        else:
            yield make


@contextmanager
def _making(name: str, request: pytest.FixtureRequest) -> Iterator[Factory]:
    if name in STORES:
        yield STORES[name]
        return
    if name in REDIS:
        server: Redis | Cluster = request.getfixturevalue(REDIS[name])
        yield lambda _, clock: RedisStore.from_url(server.new_url(), clock=clock)
        return
    if name in JETSTREAM:
        yield from _owned(request.getfixturevalue(JETSTREAM[name]), request.getfixturevalue("owners"))
        return
    schemas: Schemas = request.getfixturevalue(SERVERS[name])
    with schemas.lent() as fresh:
        yield lambda _, clock: fresh(clock)


def _owned(server: Nats | NatsCluster, owners: Owners) -> Iterator[Factory]:
    def make(folder: Path, clock: Clock) -> Store:
        url = server.new_url()
        owners.start(url, folder, clock=clock)
        return JetStreamStore.from_url(url)

    try:
        yield make
    finally:
        owners.clear()


@pytest.fixture(scope="session")
def owners() -> Iterator[Owners]:
    with Owners() as owners:
        yield owners


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
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder: in memory where there is room. What outlasts a loss of power is shown elsewhere."""
    if not IN_MEMORY.is_dir() or disk_usage(IN_MEMORY).free < ROOM:
        yield tmp_path
        return
    with TemporaryDirectory(prefix="windlass-", dir=IN_MEMORY) as name:
        yield Path(name)


@pytest.fixture
async def store(factory: Factory, clock: ManualClock, folder: Path) -> AsyncIterator[Store]:
    store = factory(folder, clock)
    await store.open()
    yield store
    await store.close()
