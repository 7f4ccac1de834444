"""What the tests of the store on NATS alone share: a store on a private server, and its owners."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.servers.nats import Nats
from tests.servers.owners import Owners
from windlass._stores.jetstream import JetStreamStore


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[Owners]:  # which they use until they end
    with Owners() as owners:
        yield owners


@pytest.fixture
def url(nats: Nats) -> str:
    return nats.new_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[JetStreamStore]:
    """A handle; a test starts the owners."""
    store = JetStreamStore.from_url(url)
    yield store
    await store.close()
