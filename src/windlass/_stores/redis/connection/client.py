"""Requests to the primary: a pool for each event loop, scripts by their hash."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct
from redis import exceptions
from redis.asyncio import Redis

from ....errors import StoreError, StoreUnavailable
from ...pool import Pool
from .address import Address
from .errors import translated_errors
from .link import Argument, Command, Link, options_of
from .primary import Primary
from .scripts import script

REPLICA_MILLISECONDS = 5_000
SCANNED = 1000
MOVES = 5
"""How often a request follows a slot that moves to another server."""

_CLOSE_SECONDS = 5.0
_ELSEWHERE = (exceptions.ReadOnlyError, exceptions.ClusterDownError)
Calls: TypeAlias = Mapping[asyncio.AbstractEventLoop, Callable[[], Coroutine[Any, Any, None]]]


async def on_their_loops(calls: Calls) -> None:
    """Call something on each event loop that still runs, and wait for all, but not for ever."""
    here = asyncio.get_running_loop()
    for loop, call in calls.items():
        if loop is here:
            await call()
        elif loop.is_running():
            calling = asyncio.run_coroutine_threadsafe(call(), loop)
            await asyncio.wait([asyncio.wrap_future(calling)], timeout=_CLOSE_SECONDS)


class _Way(Struct, eq=False):
    """The connections of one event loop, all to one server."""

    host: str
    port: int
    pool: Pool


class Client:
    """Runs commands and scripts. Opens connections as they are needed."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._primary = Primary(address)
        self._ways: dict[asyncio.AbstractEventLoop, _Way] = {}
        self._closed = False

    def open(self) -> None:
        """Allow connections again after `close`."""
        self._closed = False

    async def close(self) -> None:
        """Close all connections, each on its own event loop."""
        self._closed = True
        ways, self._ways = self._ways, {}
        await on_their_loops({loop: way.pool.close for loop, way in ways.items()})

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        self._ways = {}

    # -- requests ------------------------------------------------------------------------------------

    async def run(self, name: str, keys: Sequence[str | bytes], arguments: Sequence[Argument]) -> Any:
        """Run a script; the first key determines the slot."""
        wanted, rest = script(name), (len(keys), *keys, *arguments)
        reply = await self._evaluate("EVALSHA", wanted.sha, *rest)
        if isinstance(reply, exceptions.NoScriptError):
            reply = await self._evaluate("EVAL", wanted.text, *rest)
        return self._checked(reply)

    async def _evaluate(self, *command: Argument) -> Any:
        """Run a script and, if replicas must have its writes, wait for them on the same connection."""
        replicas = self.address.replicas
        if not replicas:
            return (await self._request([command]))[0]
        reply, confirmed = await self._request([command, ("WAIT", replicas, REPLICA_MILLISECONDS)])
        if not isinstance(reply, Exception) and self._checked(confirmed) < replicas:
            raise StoreUnavailable(
                f"only {confirmed} of {replicas} replicas of Redis at {self.address.display} confirmed a "
                f"write within {REPLICA_MILLISECONDS / 1000:g} s; it was carried out, "
                f"but a failover may lose it"
            )
        return reply

    async def call(self, *command: Argument) -> Any:
        """Run a command."""
        return self._checked((await self._request([command]))[0])

    async def call_all(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands in one round trip; return their replies."""
        if not commands:
            return []
        return [self._checked(reply) for reply in await self._request(commands)]

    async def members(self, key: str) -> list[str]:
        """Return the members of a set, read in steps that block the server for no longer than any other."""
        return [one.decode() async for one in self.scan("SSCAN", key)]

    async def scan(self, command: str, key: str) -> AsyncIterator[bytes]:
        """Yield what a command such as SSCAN returns, step by step; a member may come twice."""
        cursor: Any = 0
        while True:
            cursor, found = await self.call(command, key, cursor, "COUNT", SCANNED)
            for one in found:
                yield one
            if not int(cursor):
                return

    def _checked(self, reply: Any) -> Any:
        if isinstance(reply, Exception):
            with translated_errors(self.address.display):
                raise reply
        return reply

    async def _request(self, commands: Sequence[Command]) -> list[Any]:
        """Make a request of the primary; of another one if the slot has moved, which carries out nothing."""
        with translated_errors(self.address.display):
            moves = 0
            while True:
                way = await self._way()
                try:
                    link: Link = await way.pool.acquire()
                    try:
                        replies = await link.request(commands)
                    finally:
                        way.pool.release(link)
                except (exceptions.RedisError, OSError, TimeoutError):
                    self._forget(way)
                    raise
                if any(isinstance(reply, _ELSEWHERE) for reply in replies):
                    self._forget(way)
                moves += 1
                if not isinstance(replies[0], exceptions.MovedError) or moves > MOVES:
                    return replies
                self._forget(way)

    # -- the primary ---------------------------------------------------------------------------------

    async def _way(self) -> _Way:
        """Return the connections of the running event loop."""
        if self._closed:
            raise StoreError(f"the store at {self.address.display} is closed; open it again to use it")
        loop = asyncio.get_running_loop()
        way = self._ways.get(loop)
        if way is None:
            host, port = await self._primary.find()
            for ended in [one for one in self._ways if one.is_closed()]:
                del self._ways[ended]
            connect: Callable[[], Awaitable[Link]] = partial(Link.open, self.address, host, port)
            # Another request may have found it meanwhile.
            way = self._ways.setdefault(loop, _Way(host, port, Pool(connect, self.address.connections)))
        return way

    def _forget(self, way: _Way) -> None:
        """Look for the primary again before the next request, if there may be another."""
        loop = asyncio.get_running_loop()
        if self._primary.may_move and self._ways.get(loop) is way:
            del self._ways[loop]
            way.pool.retire()

    async def subscriber(self) -> Any:
        """Return a client of redis-py for a subscription; the caller closes it."""
        with translated_errors(self.address.display):
            way = await self._way()
        return Redis(**options_of(self.address, way.host, way.port), ssl=self.address.tls)
