"""What the tests of faults share: a server and a proxy to be maltreated, and cuts at an exact statement."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from uuid import uuid4

import psycopg

from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy, changes_data

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
