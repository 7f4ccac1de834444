"""Connections to the primary: a pool for each event loop, scripts by their hash, pipelines."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import hiredis
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ....errors import StoreError, StoreUnavailable
from .address import Address
from .errors import translated_errors
from .primary import CONNECT_SECONDS, Primary
from .scripts import script

T = TypeVar("T")
Argument: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Argument]

REPLY_SECONDS = 30.0
REPLICA_MILLISECONDS = 5_000
MOVES = 5
"""How often a request follows a slot that moves to another server."""

_WAIT_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_NEVER = Retry(NoBackoff(), 0)  # Callers repeat what failed; a claim must not be repeated unseen.
_ELSEWHERE = (
    exceptions.ReadOnlyError,
    exceptions.ConnectionError,
    exceptions.ClusterDownError,
    exceptions.TimeoutError,
)


async def on_their_loops(
    calls: Mapping[asyncio.AbstractEventLoop, Callable[[], Coroutine[Any, Any, None]]],
) -> None:
    """Call something on each event loop that still runs, and wait for all, but not for ever."""
    here = asyncio.get_running_loop()
    for loop, call in calls.items():
        if loop is here:
            await call()
        elif loop.is_running():
            calling = asyncio.run_coroutine_threadsafe(call(), loop)
            await asyncio.wait([asyncio.wrap_future(calling)], timeout=_CLOSE_SECONDS)


class _Connection(Connection):
    """Packs commands in C: scripts take thousands of arguments, for which redis-py needs most of the time."""

    def pack_command(self, *args: Any) -> list[bytes]:
        return [hiredis.pack_command((*args[0].split(), *args[1:]))]


class _TLSConnection(SSLConnection, _Connection):
    pass


class Client:
    """Runs commands and scripts. Opens connections as they are needed."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._primary = Primary(address)
        self._clients: dict[asyncio.AbstractEventLoop, Any] = {}
        self._closed = False

    def open(self) -> None:
        """Allow connections again after `close`."""
        self._closed = False

    async def close(self) -> None:
        """Close all connections, each on its own event loop."""
        self._closed = True
        clients, self._clients = self._clients, {}
        await on_their_loops({loop: client.aclose for loop, client in clients.items()})

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        self._clients = {}

    # -- requests ------------------------------------------------------------------------------------

    async def run(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a script; the first key determines the slot."""
        wanted, rest = script(name), (len(keys), *keys, *arguments)

        async def evaluate(client: Any) -> Any:
            try:
                return await self._evaluate(client, "EVALSHA", wanted.sha, *rest)
            except exceptions.NoScriptError:
                return await self._evaluate(client, "EVAL", wanted.text, *rest)

        return await self._on_primary(evaluate)

    async def _evaluate(self, client: Any, *command: Argument) -> Any:
        """Run a script and, if replicas must have its writes, wait for them on the same connection."""
        replicas = self.address.replicas
        if not replicas:
            return await client.execute_command(*command)
        pipeline = client.pipeline(transaction=False)
        pipeline.execute_command(*command)
        pipeline.execute_command("WAIT", replicas, REPLICA_MILLISECONDS)
        reply, confirmed = await pipeline.execute(raise_on_error=False)
        for one in (reply, confirmed):
            if isinstance(one, Exception):
                raise one
        if confirmed < replicas:
            raise StoreUnavailable(
                f"only {confirmed} of {replicas} replicas of Redis at {self.address.display} confirmed a "
                f"write within {REPLICA_MILLISECONDS / 1000:g} s; it was carried out, "
                f"but a failover may lose it"
            )
        return reply

    async def call(self, *command: Argument) -> Any:
        """Run a command."""
        return await self._on_primary(lambda client: client.execute_command(*command))

    async def call_all(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands in one round trip; return their replies."""
        if not commands:
            return []

        async def send(client: Any) -> list[Any]:
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute()
            return replies

        return await self._on_primary(send)

    async def _on_primary(self, request: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Make a request of the primary; of another one if the slot has moved, which carries out nothing."""
        with translated_errors(self.address.display):
            for _ in range(MOVES):
                client = await self.client()
                try:
                    return await request(client)
                except exceptions.MovedError:
                    await self._forget(client)
                except _ELSEWHERE:
                    if self._primary.may_move:
                        await self._forget(client)
                    raise
            raise exceptions.ClusterError(f"the slot moved {MOVES} times")

    # -- clients -------------------------------------------------------------------------------------

    async def client(self) -> Any:
        """Return the client of the running event loop, which uses the primary."""
        if self._closed:
            raise StoreError(f"the store at {self.address.display} is closed; open it again to use it")
        loop = asyncio.get_running_loop()
        client: Any = self._clients.get(loop)
        if client is None:
            host, port = await self._primary.find()
            for ended in [one for one in self._clients if one.is_closed()]:
                del self._clients[ended]
            client = self._clients.get(loop)  # Another request may have found it meanwhile.
            if client is None:
                client = self._clients[loop] = self._connected(host, port)
        return client

    async def _forget(self, client: Any) -> None:
        """Look for the primary again before the next request."""
        loop = asyncio.get_running_loop()
        if self._clients.get(loop) == client:
            del self._clients[loop]
            await client.aclose()

    def _connected(self, host: str, port: int) -> Any:
        address = self.address
        pool = BlockingConnectionPool(
            max_connections=address.connections,
            timeout=_WAIT_SECONDS,
            connection_class=_TLSConnection if address.tls else _Connection,
            host=host,
            port=port,
            db=address.database,
            username=address.user,
            password=address.password,
            protocol=2,
            retry=_NEVER,
            socket_timeout=REPLY_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
        )
        return Redis.from_pool(pool)
