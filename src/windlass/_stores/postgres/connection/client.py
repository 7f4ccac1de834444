"""Connections to the database: a pool for each event loop, opened at first use."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg

from ..errors import is_retryable, leaves_unanswered, means_reconnect, translated_errors
from ..script import Ask, Row, Script, play
from ..statements import statement
from .address import Address
from .hosts import Hosts
from .pool import ACQUIRE_SECONDS, Connection, Pool
from .server import SET_LOCAL, Server, inspect

T = TypeVar("T")

COMMAND_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_ABORT_SECONDS = 2.0  # to close a connection that was given up in the middle of a statement
_ABORT_WAIT_SECONDS = 0.25  # how long the caller waits for that
_ATTEMPTS = 5
_UNPOOLED: dict[str, Any] = {"command_timeout": COMMAND_SECONDS, "statement_cache_size": 0}


class Connections:
    """The connections of one store, for any number of event loops.

    `tuned`: with the planner settings that our statements need. Connections for others' statements have the
    server's own settings.
    """

    def __init__(self, address: Address, *, tuned: bool = True) -> None:
        self.address = address
        self._tuned = tuned
        self.server: Server | None = None
        self._hosts = Hosts(address.dsn)
        self._listen_hosts = Hosts(address.listen) if address.listen else self._hosts
        self._closing: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, asyncio.Task[Pool]] = {}

    # -- statements ----------------------------------------------------------------------------------

    async def fetch(self, ask: Ask) -> Sequence[Row]:
        """Run one statement in autocommit and return its rows; retry serialisation failures and deadlocks."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                pool = self._ready_pool() or await self._pool()
                if self.is_pooled:
                    async with self.one() as connection, self.transaction(connection):
                        return await self._rows(connection, ask)
                return await self._fetch_from(pool, ask)
            except asyncpg.PostgresError as error:
                if not left or not is_retryable(error):
                    raise
            await _back_off()
        raise AssertionError("unreachable")

    async def _fetch_from(self, pool: Pool, ask: Ask) -> Sequence[Row]:
        """Do what `one` does, without the cost of a context manager."""
        connection = await _acquire(pool)
        try:
            rows = await self._rows(connection, ask)
        except BaseException as error:
            await self._release_failed(pool, connection, error)
            raise
        pool.release(connection)
        return rows

    async def play(self, make: Callable[[], Script[T]]) -> T:
        """Run a script in a transaction; make and run it again after a serialisation failure or deadlock."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                async with self.one() as connection, self.transaction(connection):
                    return await play(make(), lambda ask: self._rows(connection, ask))
            except asyncpg.PostgresError as error:
                if not left or not is_retryable(error):
                    raise
            await _back_off()
        raise AssertionError("unreachable")

    async def _rows(self, connection: Connection, ask: Ask) -> Sequence[Row]:
        sql = ask.sql or statement(ask.name, self.address.schema)
        rows: Sequence[Row] = await connection.fetch(sql, *ask.parameters)
        return rows

    @asynccontextmanager
    async def transaction(self, connection: Connection) -> AsyncIterator[None]:
        """Open a READ COMMITTED transaction on one of these connections."""
        transaction = connection.transaction(isolation="read_committed")
        await transaction.start()
        try:
            if self.is_pooled and self._tuned:
                await connection.execute(SET_LOCAL)
            yield
        except BaseException as error:
            # Where a statement got no reply a rollback gets none either: `one` gives the connection up.
            if not leaves_unanswered(error) and not connection.is_closed():
                await transaction.rollback()
            raise
        await transaction.commit()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection]:
        """Borrow a connection. A caller that is cancelled waits for the server for a moment at most."""
        pool = await self._pool()
        connection = await _acquire(pool)
        try:
            yield connection
        except BaseException as error:
            await self._release_failed(pool, connection, error)
            raise
        pool.release(connection)

    async def _release_failed(self, pool: Pool, connection: Connection, error: BaseException) -> None:
        """Return or drop a connection after an error; drop the others too if they must have broken."""
        if leaves_unanswered(error):
            pool.forget(connection)
            await self._abort(connection)
        else:
            if means_reconnect(error) and not connection.is_closed():
                connection.terminate()
            pool.release(connection)
        if means_reconnect(error):
            pool.expire()

    async def _abort(self, connection: Connection) -> None:
        """Ask the server to cancel the running statement, and close the connection.

        The caller waits for it briefly, so that its next statement does not overtake the one it gave up; no
        longer, for a dead network never answers.
        """
        closing = asyncio.get_running_loop().create_task(_close_aborted(connection))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        await asyncio.wait({closing}, timeout=_ABORT_WAIT_SECONDS)

    @property
    def is_pooled(self) -> bool:
        """Whether there is a pooler between this process and the server."""
        return self.server is not None and self.server.pooled

    # -- open and close ------------------------------------------------------------------------------

    async def unpooled(self) -> Connection:
        """Open a connection outside the pool, for the caller to close; nothing is prepared on it."""
        return await self._hosts.connect(**_UNPOOLED, server_settings={"application_name": "windlass"})

    async def for_listening(self) -> Connection:
        """Open a connection outside the pool to where LISTEN works."""
        return await self._listen_hosts.connect(
            **_UNPOOLED, server_settings={"application_name": "windlass listener"}
        )

    def _ready_pool(self) -> Pool | None:
        """Return this loop's pool if it has been made."""
        making = self._pools.get(asyncio.get_running_loop())
        made = making is not None and making.done() and not making.cancelled() and making.exception() is None
        return making.result() if made and making is not None else None

    async def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        making = self._pools.get(loop)
        if making is None or (making.done() and (making.cancelled() or making.exception() is not None)):
            with self._lock:
                for closed in [one for one in self._pools if one.is_closed()]:
                    del self._pools[closed]
                making = self._pools[loop] = loop.create_task(self._make_pool())
        if making.done():
            return making.result()
        return await asyncio.shield(making)

    async def _make_pool(self) -> Pool:
        if self.server is None:
            connection = await self.unpooled()
            try:
                self.server = await inspect(connection)
            finally:
                await connection.close(timeout=_CLOSE_SECONDS)
        options = self.server.options(tuned=self._tuned)
        connect = partial(self._hosts.connect, command_timeout=COMMAND_SECONDS, **options)
        return Pool(connect, self.address.connections)

    async def close(self) -> None:
        """Close every pool, each on its own event loop."""
        with self._lock:
            pools, self._pools = self._pools, {}
        here = asyncio.get_running_loop()
        for loop, making in pools.items():
            if loop is here:
                await _close_pool(making)
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_close_pool(making), loop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSE_SECONDS * 2)

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        self._lock = threading.Lock()
        self._pools = {}
        self._closing = set()

    def translated_errors(self) -> AbstractContextManager[None]:
        """Raise windlass's errors in place of the driver's."""
        return translated_errors(self.address.display)


async def _acquire(pool: Pool) -> Connection:
    try:
        return await pool.acquire()
    except TimeoutError:
        raise ConnectionError(
            f"timed out after {ACQUIRE_SECONDS:g} s waiting for a free connection of the pool; "
            f"raise connections= in the store's URL"
        ) from None


async def _close_aborted(connection: Connection) -> None:
    with suppress(Exception):
        await connection.close(timeout=_ABORT_SECONDS)


async def _back_off() -> None:
    await asyncio.sleep(0.02 * random.random())


async def _close_pool(making: "asyncio.Task[Pool]") -> None:
    if not making.done():
        making.cancel()
    elif not making.cancelled() and making.exception() is None:
        await making.result().close()
