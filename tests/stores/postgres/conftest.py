"""A schema of one's own on a real server, reached without a store around it."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from tests.servers.postgres import Postgres
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.connection.address import parse
from windlass._stores.postgres.connection.client import Connections


def new_schema(url: str) -> str:
    """The URL of a store in a schema that nobody has made yet."""
    return f"{url}?schema=t_{uuid4().hex[:16]}"


@pytest.fixture
def url(postgres15: Postgres) -> str:
    return new_schema(postgres15.url)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A store in a schema of its own."""
    store = PostgresStore.from_url(url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def connections(url: str) -> AsyncIterator[Connections]:
    """Connections to a schema that nobody has made yet."""
    opened = Connections(parse(url))
    yield opened
    await opened.close()
