"""What the tests of faults share: a server and a proxy to be maltreated, and cuts at an exact statement."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal
from uuid import uuid4

import psycopg

from tests.loops.workers import pause, working
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy, changes_data
from windlass import App, Backoff, Filter, State, StoreUnavailable
from windlass._stores.postgres import PostgresStore
from windlass.testing.conformance.steps import all_tasks

Moment = Literal["before", "after_commit"]
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '{}'"


def fresh(url: str, **options: str) -> str:
    """The URL of a store in a schema that nobody has made yet."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{url}?schema=t_{uuid4().hex[:16]}{'&' if query else ''}{query}"


def schema_in(url: str) -> str:
    """The schema that a store's URL names."""
    return url.partition("schema=")[2].partition("&")[0]


class Nth:
    """Strikes once: when it is asked for the n-th time, counted from 0."""

    def __init__(self, n: int) -> None:
        self._left = n
        self.has_struck = False

    def __call__(self) -> bool:
        self._left -= 1
        self.has_struck = self.has_struck or self._left == -1
        return self._left == -1


def arm(proxy: Proxy, moment: Moment, n: int) -> Nth:
    """The n-th statement from now is not sent, or the n-th answer to a commit not received; 0 is the next."""
    strike = Nth(n)
    if moment == "before":
        proxy._do(lambda: proxy._arm_before(strike))
    else:
        proxy._do(lambda: proxy._arm_after_commit(strike, changes_data))
    return strike


@contextmanager
def stranger(server: Postgres, **options: Any) -> Iterator["psycopg.Connection[Any]"]:
    """Somebody else's connection."""
    with psycopg.connect(server.url, autocommit=True, **options) as connection:
        # Our own settings must not hinder us from taking them back.
        connection.execute("SET default_transaction_read_only = off")
        yield connection


def tell(server: Postgres, *statements: str) -> None:
    """Have these done, whatever state the server is in."""
    with stranger(server) as connection:
        for one in statements:
            connection.execute(one)


def asked(server: Postgres, question: str) -> list[tuple[Any, ...]]:
    """The rows of an answer."""
    with stranger(server) as connection:
        return connection.execute(question).fetchall()


def listening(server: Postgres) -> set[int]:
    """The process ids of the connections that windlass listens on."""
    rows = asked(server, "SELECT pid FROM pg_stat_activity WHERE application_name = 'windlass listener'")
    return {pid for (pid,) in rows}


def terminate(server: Postgres, application: str) -> int:
    """End the server's side of all connections whose application is called like this; how many that were."""
    return len(asked(server, TERMINATE.format(application)))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore.from_url(url)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def program(url: str, **settings: Any) -> AsyncIterator[tuple[App, Any, "asyncio.Queue[str]"]]:
    """An app with a worker at work, a task type that takes a moment, and the ids of tasks as they start."""
    app = App(url, backoff=Backoff(base=0.05, cap=0.2))
    started: asyncio.Queue[str] = asyncio.Queue()

    @app.task(name="work")
    async def work(key: str, seconds: float = 0.0) -> str:
        started.put_nowait(key)
        await pause(seconds)
        return key

    async with working(app, **({"keeper": True} | settings)):
        yield app, work, started
    await app.close()


async def all_ended(app: App, number: int) -> bool:
    ended = await despite_trouble(lambda: all_tasks(app.store, Filter(states=(State.COMPLETED,))))
    return len(ended or ()) == number


async def assert_ended_once(app: App, number: int) -> None:
    """Every task has completed, with one line that says so, the last."""
    tasks = await all_tasks(app.store)
    assert [task.state for task in tasks] == [State.COMPLETED] * number
    for task in tasks:
        outcomes = [line.outcome for line in await app.store.attempts(task.id)]
        assert outcomes.count("returned") == 1
        assert outcomes[-1] == "returned"


async def despite_trouble(act: Callable[[], Awaitable[Any]]) -> Any:
    with suppress(StoreUnavailable):
        return await act()
