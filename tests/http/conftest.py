"""A server for the tests of the API, and clients of it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.examples import sample
from tests.http.api_client import Api
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from tests.servers.postgres import Postgres
from tests.stores.schemas import Schemas
from windlass._client.keys import Keys
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore

DEADLINE = 10.0

Ask = Callable[..., Awaitable[httpx2.Response]]


@pytest.fixture(scope="session")
def api() -> Iterator[ApiServer]:
    with ApiServer() as api:
        yield api


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def keys(store: MemoryStore) -> Keys:
    return Keys(store)


@pytest.fixture
def open_url(api: ApiServer, store: MemoryStore) -> str:
    """Where the store is served to all."""
    return api.serve(store, open_to_all=True)


@pytest.fixture
def url(api: ApiServer, store: MemoryStore) -> str:
    """Where the store is served to who has a key."""
    return api.serve(store)


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    # Plain HTTP: a TLS context that is not used takes longer to build than most of these tests run.
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        yield http


@pytest.fixture
def ask(http: httpx2.AsyncClient, open_url: str) -> Ask:
    """Ask a verb of the open server, with a value or with the very bytes of a body."""

    async def asked(verb: str, body: Any = None, **headers: str) -> httpx2.Response:
        told = {"content-type": "application/json"} | {
            name.replace("_", "-"): one for name, one in headers.items()
        }
        if isinstance(body, bytes):
            return await http.post(f"{open_url}/store/{verb}", content=body, headers=told)
        return await http.post(f"{open_url}/store/{verb}", json={} if body is None else body, headers=told)

    return asked


@pytest.fixture
async def lives_on(ask: Ask, api: ApiServer) -> AsyncIterator[None]:
    """After whatever it was, the server answers as before, and nothing goes on behind its back."""
    await ask("about")
    before = api.tasks()
    yield
    assert (await ask("about")).status_code == 200
    await eventually(lambda: api.tasks() <= before)


@pytest.fixture
def api_of(http: httpx2.AsyncClient, open_url: str) -> Api:
    """The API of a memory store, open to all."""
    return Api(http, open_url)


@pytest.fixture(scope="session")
def schemas(postgres_newest: Postgres) -> Iterator[Schemas]:
    with Schemas(postgres_newest.url, prefix="api") as schemas:
        yield schemas


@pytest.fixture(params=sample(["memory", "postgres"], ["sqlite"]))
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each kind, for what depends on how tasks are kept."""
    with ExitStack() as lent:
        if request.param == "memory":
            store: Store = MemoryStore()
        elif request.param == "sqlite":
            store = SQLiteStore(tmp_path / "windlass.db")
        else:
            schemas: Schemas = request.getfixturevalue("schemas")
            store = lent.enter_context(schemas.lent())(None)
        await store.open()
        yield store
        await store.close()


@pytest.fixture
async def on_each(kept: Store, api: ApiServer, http: httpx2.AsyncClient) -> AsyncIterator[Api]:
    """The API of each kind of store, open to all, by a handle of its own."""
    served = kept.another()
    yield Api(http, api.serve(served, open_to_all=True))
    api.close(served)
