"""The database of the store, to compare the caller's with: a transaction spans one database only."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from msgspec import Struct

from ....errors import InvalidOption
from ..connection.client import Connections
from ..rows import Row
from ..script import Query

WHICH_DATABASE = Query("which_database")


class DatabaseId(Struct, frozen=True):
    """A database of a running server. Two ways to it, such as one through a pooler, give the same."""

    name: str
    number: str  # as text, which no codec of the caller's changes
    server_started: str

    @classmethod
    def of(cls, row: Row) -> "DatabaseId":
        """Return it from the row of which_database.sql."""
        return cls(*row[:3])


class Elsewhere(Exception):
    """A connection is to another database than the store, as far as is known."""


@contextmanager
def refused_elsewhere() -> Iterator[None]:
    """Raise InvalidOption in place of Elsewhere: it is certain."""
    try:
        yield
    except Elsewhere as error:
        raise InvalidOption(str(error)) from None


class HomeDatabase:
    """The store's own database: asked once, and again when a connection seems to be to another.

    Asking takes a connection, as a program that only enqueues in its own transactions has none to the store.
    A server that was restarted counts as another until it is asked again.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.known: DatabaseId | None = None

    def confirm(self, row: Row) -> None:
        """Raise Elsewhere unless the row of which_database.sql is about this database, as far as is known."""
        found = DatabaseId.of(row)
        if found != self.known:
            own = "" if self.known is None else f"{self.known.name!r} at "
            raise Elsewhere(
                f"the connection is to another database than the store's: to {found.name!r} at {row[3]}, "
                f"not to {own}{self._connections.address.display}; a transaction spans one database only, "
                f"so connect to the store's"
            )

    async def ask(self) -> None:
        """Ask the store's server. Raises StoreUnavailable if it cannot be reached."""
        with self._connections.translated_errors():
            connection = await self._connections.unpooled()
            try:
                sql = WHICH_DATABASE.text(self._connections.address.schema)
                self.known = DatabaseId.of(await connection.fetchrow(sql))
            finally:
                await connection.close()

    def ask_blocking(self) -> None:
        """`ask` for a thread that may have an event loop, which is blocked meanwhile."""
        with ThreadPoolExecutor(1) as beside:
            beside.submit(asyncio.run, self.ask()).result()
