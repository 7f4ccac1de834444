"""Connections to the database: a pool for each event loop, opened at first use."""

import asyncio
import random
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg
from msgspec import Struct

from ..errors import is_retryable, leaves_unanswered, means_next_host, means_reconnect, told
from ..script import Ask, Row, Script, play
from ..statements import statement
from .address import Address
from .pool import ACQUIRE_SECONDS, Connection, Pool

T = TypeVar("T")


CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_FAREWELL_SECONDS = 2.0  # for a connection that was given up in the middle of a statement
_MOMENT_SECONDS = 0.25  # of these, the caller waits so long
_VANISHED_SECONDS = 15  # without a sign of life from the other host's kernel: it is gone
_TRIES = 5
_ALONE: dict[str, Any] = {"command_timeout": COMMAND_SECONDS, "statement_cache_size": 0}

# The plans that our statements were written for, whatever statistics say: an index leads to every row.
_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "TimeZone": "UTC",  # where every day has 24 hours
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",  # where an index gives the order, it is the one meant
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "120s",
}
# A statement that waits for a lock ends soon after its client has gone, where the server can look: from
# version 14 on, and not on every system.
_WATCHING = {"client_connection_check_interval": "5s"}
_SET_LOCAL = "".join(
    f"SET LOCAL {name} = {value!r};"
    for name, value in _SETTINGS.items()
    if name != "default_transaction_isolation"
)


class Server(Struct, frozen=True, kw_only=True):
    """What was learnt about the server when it was first reached.

    `pooled`: between us and it stands a pooler that may give every transaction another connection, so that
    nothing can be kept from one to the next, prepared statements and settings included. `watches`: it can
    notice in the middle of a statement that its client has gone.
    """

    version: int
    pooled: bool
    settings: dict[str, str]
    watches: bool = False


class Connections:
    """What a handle reaches its database through. Serves any number of event loops.

    `planned`: with the settings that our statements were written for. What is not ours has the server's own.
    """

    def __init__(self, address: Address, *, planned: bool = True) -> None:
        self.address = address
        self._planned = planned
        self.server: Server | None = None
        self._hosts = Hosts(address.dsn)
        self._listening = Hosts(address.listen) if address.listen else self._hosts
        self._leaving: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, asyncio.Task[Pool]] = {}

    # -- asking --------------------------------------------------------------------------------------

    async def fetch(self, ask: Ask) -> Sequence[Row]:
        """The rows of one statement, which commits by itself; anew where it lost to another."""
        for left in reversed(range(_TRIES)):
            try:
                pool = self._pool_here() or await self._pool()
                if self.is_pooled:
                    async with self.one() as connection, self.transaction(connection):
                        return await self._rows(connection, ask)
                return await self._rows_by_one(pool, ask)
            except asyncpg.PostgresError as error:
                if not left or not is_retryable(error):
                    raise
            await _breathe()
        raise AssertionError("unreachable")

    async def _rows_by_one(self, pool: Pool, ask: Ask) -> Sequence[Row]:
        """As within `one`, which is quicker to write and slower to run."""
        connection = await _acquire(pool)
        try:
            rows = await self._rows(connection, ask)
        except BaseException as error:
            await self._take_back(pool, connection, error)
            raise
        pool.release(connection)
        return rows

    async def play(self, make: Callable[[], Script[T]]) -> T:
        """Play a script in a transaction; anew where the server undid it for the sake of another."""
        for left in reversed(range(_TRIES)):
            try:
                async with self.one() as connection, self.transaction(connection):
                    return await play(make(), lambda ask: self._rows(connection, ask))
            except asyncpg.PostgresError as error:
                if not left or not is_retryable(error):
                    raise
            await _breathe()
        raise AssertionError("unreachable")

    async def _rows(self, connection: Connection, ask: Ask) -> Sequence[Row]:
        sql = ask.sql or statement(ask.name, self.address.schema)
        rows: Sequence[Row] = await connection.fetch(sql, *ask.parameters)
        return rows

    @asynccontextmanager
    async def transaction(self, connection: Connection) -> AsyncIterator[None]:
        """A transaction on one of our connections."""
        transaction = connection.transaction(isolation="read_committed")
        await transaction.start()
        try:
            if self.is_pooled and self._planned:
                await connection.execute(_SET_LOCAL)
            yield
        except BaseException as error:
            # Where no answer came none will come to a rollback: `one` gives the connection up.
            if not leaves_unanswered(error) and not connection.is_closed():
                await transaction.rollback()
            raise
        await transaction.commit()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection]:
        """A connection for a while. Who is cancelled meanwhile waits for the server for a moment at most."""
        pool = await self._pool()
        connection = await _acquire(pool)
        try:
            yield connection
        except BaseException as error:
            await self._take_back(pool, connection, error)
            raise
        pool.release(connection)

    async def _take_back(self, pool: Pool, connection: Connection, error: BaseException) -> None:
        """What becomes of a connection on which something went wrong, and of the others."""
        if leaves_unanswered(error):
            pool.forget(connection)
            await self._give_up(connection)
        else:
            if means_reconnect(error) and not connection.is_closed():
                connection.terminate()
            pool.release(connection)
        if means_reconnect(error):
            pool.expire()

    async def _give_up(self, connection: Connection) -> None:
        """Let go of a connection whose answer is still out, once the server has been asked to stop.

        It is waited for a moment, so that what the caller does next is not overtaken by what it gave up; not
        for longer, for a network that is dead never answers.
        """
        leaving = asyncio.get_running_loop().create_task(_end_connection(connection))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        await asyncio.wait({leaving}, timeout=_MOMENT_SECONDS)

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler stands between us and the server."""
        return self.server is not None and self.server.pooled

    # -- opening and closing -------------------------------------------------------------------------

    async def alone(self) -> Connection:
        """A connection outside the pool, for the caller to close; nothing is prepared on it."""
        return await self._hosts.connect(**_ALONE, server_settings={"application_name": "windlass"})

    async def to_listen(self) -> Connection:
        """The same, where LISTEN works."""
        return await self._listening.connect(
            **_ALONE, server_settings={"application_name": "windlass listener"}
        )

    def _pool_here(self) -> Pool | None:
        """This loop's pool, if it is made."""
        making = self._pools.get(asyncio.get_running_loop())
        made = making is not None and making.done() and not making.cancelled() and making.exception() is None
        return making.result() if made and making is not None else None

    async def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        making = self._pools.get(loop)
        if making is None or (making.done() and (making.cancelled() or making.exception() is not None)):
            with self._lock:
                for gone in [one for one in self._pools if one.is_closed()]:
                    del self._pools[gone]
                making = self._pools[loop] = loop.create_task(self._make_pool())
        if making.done():
            return making.result()
        return await asyncio.shield(making)

    async def _make_pool(self) -> Pool:
        if self.server is None:
            self.server = await self._learn()
        return Pool(partial(self._hosts.connect, **self._options(self.server)), self.address.connections)

    def _options(self, server: Server) -> dict[str, Any]:
        ours = {} if server.pooled or not self._planned else _settings(server)
        return {
            "command_timeout": COMMAND_SECONDS,
            "statement_cache_size": 0 if server.pooled else 200,
            "max_cached_statement_lifetime": 0,
            "max_cacheable_statement_size": 0,  # a claim from many queues is long, and planning it is slow
            "server_settings": {"application_name": "windlass"} | ours,
        }

    async def _learn(self) -> Server:
        connection = await self.alone()
        try:
            # A pooler answers the start-up itself and makes up a process id. Asked without parameters, the
            # question needs no prepared statement, which might get lost on the way.
            told_pid = int(connection.get_server_pid())
            status = await connection.execute(f"SELECT WHERE pg_backend_pid() = {told_pid}")
            async with connection.transaction():
                names = ["fsync", "synchronous_commit", "full_page_writes", "server_version_num"]
                rows = await connection.fetch(
                    "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY($1::text[])", names
                )
            pooled = status == "SELECT 0"
            watches = not pooled and await _can_watch(connection)
        finally:
            await connection.close(timeout=_CLOSE_SECONDS)
        settings = dict(rows)
        version = int(settings.pop("server_version_num")) // 10_000
        return Server(version=version, pooled=pooled, settings=settings, watches=watches)

    async def close(self) -> None:
        """Close every pool, each on the loop that it belongs to."""
        with self._lock:
            pools, self._pools = self._pools, {}
        here = asyncio.get_running_loop()
        for loop, making in pools.items():
            if loop is here:
                await _end(making)
            elif loop.is_running():
                ended = asyncio.run_coroutine_threadsafe(_end(making), loop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(ended), _CLOSE_SECONDS * 2)

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections, without touching them."""
        self._lock = threading.Lock()
        self._pools = {}
        self._leaving = set()

    def told(self) -> Any:
        """Raise what goes wrong within in our words."""
        return told(self.address.place)


class Hosts:
    """The hosts that a URL names: one of them takes writes, and which one it is may change."""

    def __init__(self, dsn: str) -> None:
        self._dsns = each_host(dsn)

    async def connect(self, *_: object, **options: Any) -> Connection:
        """A connection to the one that takes writes; one that fails is tried last the next time.

        One that does not answer must not use up the time for the others.
        """
        seconds = CONNECT_SECONDS / len(self._dsns)
        failed: Exception | None = None
        for dsn in list(self._dsns):
            try:
                return await _connect(dsn, seconds, **options)
            except BaseException as error:
                self._dsns = [*(one for one in self._dsns if one != dsn), dsn]
                if not isinstance(error, Exception) or not means_next_host(error):
                    raise
                failed = error
        assert failed is not None
        raise failed


async def _connect(dsn: str, seconds: float, **options: Any) -> Connection:
    """Connect to one host. What breaks here never was a connection, and nothing was asked on it."""
    try:
        connection = await asyncpg.connect(dsn, timeout=seconds, target_session_attrs="read-write", **options)
    except TimeoutError:
        raise ConnectionError(f"no answer within {seconds:g} s") from None
    except asyncpg.PostgresConnectionError as error:
        raise ConnectionError(str(error)) from error
    _notice_vanishing(connection)
    return connection


def _notice_vanishing(connection: Connection) -> None:
    """See that a host which is gone without a word is noticed, as far as the system can."""
    transport = getattr(connection, "_transport", None)  # asyncpg shows it to nobody
    socket_ = None if transport is None else transport.get_extra_info("socket")
    if socket_ is None or socket_.family not in (socket.AF_INET, socket.AF_INET6):
        return
    third = _VANISHED_SECONDS // 3
    wanted = {"TCP_KEEPIDLE": third, "TCP_KEEPINTVL": third, "TCP_KEEPCNT": 2}
    wanted["TCP_USER_TIMEOUT"] = _VANISHED_SECONDS * 1000
    with suppress(OSError):
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in wanted.items():
            if hasattr(socket, name):
                socket_.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def each_host(dsn: str) -> list[str]:
    """A URL for each of the hosts that this one names."""
    parts = urlsplit(dsn)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [dsn]
    return [parts._replace(netloc=f"{user}{at}{host}").geturl() for host in hosts.split(",")]


async def _acquire(pool: Pool) -> Connection:
    try:
        return await pool.acquire()
    except TimeoutError:
        raise ConnectionError(f"there was no connection to be had within {ACQUIRE_SECONDS:g} s") from None


async def _end_connection(connection: Connection) -> None:
    with suppress(Exception):
        await connection.close(timeout=_FAREWELL_SECONDS)


async def _breathe() -> None:
    """A moment, for whoever we lost to."""
    await asyncio.sleep(0.02 * random.random())


def _settings(server: Server) -> dict[str, str]:
    return _SETTINGS | (_WATCHING if server.watches else {})


async def _can_watch(connection: Connection) -> bool:
    try:
        for name, value in _WATCHING.items():
            await connection.execute(f"SET {name} = {value!r}")
    except asyncpg.PostgresError:
        return False
    return True


async def _end(making: "asyncio.Task[Pool]") -> None:
    if not making.done():
        making.cancel()
    elif not making.cancelled() and making.exception() is None:
        await making.result().close()
