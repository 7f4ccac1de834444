"""Connections to a server: a client for each event loop, scripts by their hash, pipelines."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import hiredis
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from ....errors import StoreError, StoreUnavailable
from .address import Address
from .errors import translated_errors
from .scripts import script

Argument: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Argument]

CONNECT_SECONDS = 5.0
REPLY_SECONDS = 30.0
REPLICA_MILLISECONDS = 5_000
_WAIT_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_NEVER = Retry(NoBackoff(), 0)  # Callers repeat what failed; a claim must not be repeated unseen.


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
        with translated_errors(self.address.display):
            try:
                return await self._evaluate("EVALSHA", wanted.sha, *rest)
            except exceptions.NoScriptError:
                return await self._evaluate("EVAL", wanted.text, *rest)

    async def _evaluate(self, *command: Argument) -> Any:
        """Run a script and, if replicas must have its writes, wait for them on the same connection."""
        replicas = self.address.replicas
        if not replicas:
            return await self.client().execute_command(*command)
        pipeline = self.client().pipeline(transaction=False)
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
        with translated_errors(self.address.display):
            return await self.client().execute_command(*command)

    async def call_all(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands in one round trip; return their replies."""
        if not commands:
            return []
        with translated_errors(self.address.display):
            pipeline = self.client().pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute()
            return replies

    # -- clients -------------------------------------------------------------------------------------

    def client(self) -> Any:
        """Return the client of the running event loop."""
        if self._closed:
            raise StoreError(f"the store at {self.address.display} is closed; open it again to use it")
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for ended in [one for one in self._clients if one.is_closed()]:
                del self._clients[ended]
            client = self._clients[loop] = self._connect()
        return client

    def _connect(self) -> Any:
        address = self.address
        options: dict[str, Any] = {
            "username": address.user,
            "password": address.password,
            "protocol": 2,
            "socket_timeout": REPLY_SECONDS,
            "socket_connect_timeout": CONNECT_SECONDS,
        }
        if address.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            return RedisCluster(
                startup_nodes=nodes, ssl=address.tls, max_connections=address.connections, **options
            )
        options |= {"db": address.database, "retry": _NEVER}
        if address.kind == "sentinel":
            watchers: Any = Sentinel(  # type: ignore[no-untyped-call]
                list(address.hosts), sentinel_kwargs={"socket_timeout": CONNECT_SECONDS}
            )
            return watchers.master_for(address.service, **options)
        options["connection_class"] = _TLSConnection if address.tls else _Connection
        host, port = address.hosts[0]
        pool = BlockingConnectionPool(
            max_connections=address.connections, timeout=_WAIT_SECONDS, host=host, port=port, **options
        )
        return Redis.from_pool(pool)
