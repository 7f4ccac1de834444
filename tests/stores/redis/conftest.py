"""What the tests of the Redis store alone share: a store on a private Valkey, and a look at its keys."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis

from tests.servers.redis import Redis
from windlass._stores.redis import RedisStore
from windlass._stores.redis.keys import unpacked
from windlass.testing.clock import ManualClock

Peek = Callable[..., Any]


@pytest.fixture
async def store(valkey: Redis, clock: ManualClock) -> AsyncIterator[RedisStore]:
    store = RedisStore.from_url(valkey.new_url(), clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def peek(valkey: Redis) -> Peek:
    """A command, run from outside."""
    client: Any = redis.Redis(port=valkey.port)
    return client.execute_command  # type: ignore[no-any-return]


@pytest.fixture
def left(store: RedisStore, peek: Peek) -> Callable[[], set[str]]:
    """The names of the store's keys, with ids as text."""
    prefix = f"{{{store.address.name}}}:"
    return lambda: {_name(key.removeprefix(prefix.encode())) for key in peek("KEYS", f"{prefix}*")}


def _name(key: bytes) -> str:
    kind, _, rest = key.partition(b":")
    return f"{kind.decode()}:{unpacked(rest)}" if kind in (b"t", b"d") else key.decode()
