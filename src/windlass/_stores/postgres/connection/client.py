"""Connections to the database: a pool for each event loop, opened at first use."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg
from msgspec.structs import replace

from ...forks import never_free
from ...pool import Connection, Pool, close
from ..errors import is_retryable, leaves_unanswered, means_reconnect, translated_errors
from ..rows import Row
from ..script import Query, Script, play
from .address import Address
from .hosts import Hosts
from .server import SET_LOCAL, Server, inspect, read_settings

A = TypeVar("A")
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
        self.is_denied_partitions = False  # and that was logged
        self.awaits_standbys = False  # as the server says; kept here, as every enqueue asks for it
        self._hosts = Hosts(address.dsn)
        self._listen_hosts = Hosts(address.listen) if address.listen else self._hosts
        self._closing: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, asyncio.Task[Pool]] = {}

    # -- statements ----------------------------------------------------------------------------------

    async def fetch(self, query: Query) -> Sequence[Row]:
        """Run one statement in autocommit and return its rows; retry serialisation failures and deadlocks."""
        return await self._retry(self._fetch_once, query)

    async def play(self, make: Callable[[], Script[T]]) -> T:
        """Run a script in a transaction; make and run it again after a serialisation failure or deadlock."""
        return await self._retry(self._play_once, make)

    async def _retry(self, run: Callable[[A], Awaitable[T]], argument: A) -> T:
        for left in reversed(range(_ATTEMPTS)):
            try:
                return await run(argument)
            except asyncpg.PostgresError as error:
                if not left or not is_retryable(error):
                    raise
            await asyncio.sleep(0.02 * random.random())
        raise AssertionError("unreachable")

    async def _fetch_once(self, query: Query) -> Sequence[Row]:
        pool = await self._pool()
        if self.is_pooled:
            async with self.one() as connection, self.transaction(connection):
                return await self._rows(connection, query)
        # As `one` does, without the cost of a context manager.
        connection = await pool.acquire()
        try:
            rows = await self._rows(connection, query)
        except BaseException as error:
            await self._release_failed(pool, connection, error)
            raise
        pool.release(connection)
        return rows

    async def _play_once(self, make: Callable[[], Script[T]]) -> T:
        async with self.one() as connection, self.transaction(connection):
            return await play(make(), lambda query: self._rows(connection, query))

    async def _rows(self, connection: Connection, query: Query) -> Sequence[Row]:
        rows: Sequence[Row] = await connection.fetch(query.text(self.address.schema), *query.parameters)
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
        connection = await pool.acquire()
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
        closing = asyncio.get_running_loop().create_task(close(connection, _ABORT_SECONDS))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        await asyncio.wait({closing}, timeout=_ABORT_WAIT_SECONDS)

    @property
    def is_pooled(self) -> bool:
        """Whether there is a pooler between this process and the server."""
        return self.server is not None and self.server.pooled

    @property
    def moves(self) -> int:
        """How often another host was found to be the primary."""
        return self._hosts.moves

    # -- open and close ------------------------------------------------------------------------------

    async def unpooled(self) -> Connection:
        """Open a connection outside the pool, for the caller to close; nothing is prepared on it."""
        return await self._hosts.connect(**_UNPOOLED, server_settings={"application_name": "windlass"})

    async def for_listening(self) -> Connection:
        """Open a connection outside the pool to where LISTEN works."""
        settings = {"application_name": "windlass listener"}
        return await self._listen_hosts.connect(**_UNPOOLED, server_settings=settings)

    async def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        making = self._pools.get(loop)
        if making is not None and _is_made(making):
            return making.result()
        if making is None or making.done():
            with self._lock:
                for closed in [one for one in self._pools if one.is_closed()]:
                    del self._pools[closed]
                making = self._pools[loop] = loop.create_task(self._make_pool())
        return await asyncio.shield(making)

    async def _make_pool(self) -> Pool:
        if self.server is None:
            connection = await self.unpooled()
            try:
                self._note(await inspect(connection, several_hosts=self._hosts.are_several))
            finally:
                await connection.close(timeout=_CLOSE_SECONDS)
        pool = Pool(self._connect, self.address.connections)
        if self._hosts.are_several:
            FailoverWatch(pool, partial(self._hosts.connect_elsewhere, **_UNPOOLED))
        return pool

    async def _connect(self) -> Connection:
        """Open a connection for a pool, and read the settings anew: it may be to another primary."""
        assert self.server is not None
        options = self.server.options(tuned=self._tuned)
        connection = await self._hosts.connect(command_timeout=COMMAND_SECONDS, **options)
        try:
            self._note(replace(self.server, settings=await read_settings(connection)))
            await self._hosts.note_timeline(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _note(self, server: Server) -> None:
        self.server = server
        self.awaits_standbys = server.awaits_standbys

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
                    async with asyncio.timeout(_CLOSE_SECONDS * 2):
                        await asyncio.wrap_future(closing)

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        never_free(self._pools, self._closing)
        self._lock = threading.Lock()
        self._pools = {}
        self._closing = set()

    def translated_errors(self) -> AbstractContextManager[None]:
        return translated_errors(self.address.display)


def _is_made(making: "asyncio.Task[Pool]") -> bool:
    return making.done() and not making.cancelled() and making.exception() is None


async def _close_pool(making: "asyncio.Task[Pool]") -> None:
    if _is_made(making):
        await making.result().close()
    else:
        making.cancel()


# -- another host becomes the primary while the last one is silent -------------------------------------
# A primary that is cut off from the network, or a frozen machine, closes no connection: statements would wait
# until the kernel gives up, long after a standby was promoted. So while nothing has been answered for a
# moment, the other hosts are asked whether one of them takes writes.


_LOOK_SECONDS = 0.5


class FailoverWatch:
    """Watches one pool from its event loop. A timer, not a task: loops may end without closing the pool."""

    def __init__(self, pool: Pool, connect_elsewhere: Callable[[], Awaitable[Connection]]) -> None:
        self._pool = pool
        self._connect_elsewhere = connect_elsewhere
        self._seen = -1  # how many connections had been returned at the last look
        self._probing: asyncio.Task[None] | None = None
        self._schedule()

    def _schedule(self) -> None:
        seconds = _LOOK_SECONDS * (0.75 + random.random() / 2)
        asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if self._pool.is_closed:
            return
        is_silent = self._pool.is_waiting and self._pool.returned == self._seen
        if is_silent and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe())
        self._seen = self._pool.returned
        self._schedule()

    async def _probe(self) -> None:
        with suppress(Exception):  # no other host takes writes: the silent one may still be the primary
            connection = await self._connect_elsewhere()
            connection.terminate()
            self._pool.abandon()
