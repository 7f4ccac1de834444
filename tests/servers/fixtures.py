"""Servers for all tests of a process: started when the first test asks, stopped after the last."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.servers.nats import MEMORY, Nats
from tests.servers.nats_cluster import NatsCluster
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import QUICK, Postgres
from tests.servers.process import ServerFailed
from tests.servers.redis import Redis
from tests.servers.redis_cluster import Cluster

S = TypeVar("S", Postgres, PgBouncer, Redis, Cluster, Nats, NatsCluster)
MANY = QUICK | {"max_connections": "300"}


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers leave their logs."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def postgres15(server_folder: Path) -> Iterator[Postgres]:
    """Postgres 15, shared by the tests: make a database of your own in it, and do not restart it."""
    with running(lambda: Postgres.start(server_folder, version=15, settings=MANY)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_newest(server_folder: Path) -> Iterator[Postgres]:
    """The newest Postgres there is, shared by the tests like `postgres15`."""
    with running(lambda: Postgres.start(server_folder, settings=MANY)) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(server_folder: Path, postgres_newest: Postgres) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode, in front of `postgres_newest`."""
    with running(lambda: PgBouncer.start(server_folder, postgres_newest)) as pool:
        yield pool


@pytest.fixture(scope="session")
def valkey(server_folder: Path) -> Iterator[Redis]:
    """Valkey, shared by the tests: use a store of a new name in it, and do not restart it."""
    with running(lambda: Redis.start(server_folder)) as server:
        yield server


@pytest.fixture(scope="session")
def redis7(server_folder: Path) -> Iterator[Redis]:
    """Redis 7, shared by the tests like `valkey`."""
    with running(lambda: Redis.start(server_folder, program="redis")) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_cluster(server_folder: Path) -> Iterator[Cluster]:
    """Three primaries with a replica each, shared by the tests like `valkey`."""
    with running(lambda: Cluster.start(server_folder)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def nats(server_folder: Path) -> Iterator[Nats]:
    """NATS, shared by the tests: use a store of a new name in it, and do not restart it."""
    data = MEMORY if MEMORY.is_dir() else None  # what outlasts a loss of power is shown elsewhere
    with running(lambda: Nats.start(server_folder, data=data)) as server:
        yield server


@pytest.fixture(scope="session")
def nats_cluster(server_folder: Path) -> Iterator[NatsCluster]:
    """Three nodes of NATS, shared by the tests like `nats`."""
    data = MEMORY if MEMORY.is_dir() else None
    with running(lambda: NatsCluster.start(server_folder, data=data)) as cluster:
        yield cluster


def running(start: Callable[[], S]) -> AbstractContextManager[S]:
    """Start it, or fail the test and say why: a test that is skipped for want of a server proves nothing."""
    try:
        return start()
    except ServerFailed as failure:
        pytest.fail(str(failure), pytrace=False)
