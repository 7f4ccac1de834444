"""Requests to the primary: a pool for each event loop and one for threads without, scripts by their hash."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from redis import exceptions

from ....errors import StoreError, StoreUnavailable
from ...forks import never_free
from ...pool import Pool, PoolExhausted
from ..rows import LEASE, NUMBERS, VERSION_BYTES
from .address import Address
from .errors import translated, translated_errors
from .link import Argument, Command, Link
from .primary import OpenLink, Primary
from .socket_link import SocketLink, SocketPool

REPLICA_MILLISECONDS = 5_000
SCANNED = 1000
MOVES = 5
"""How often a request follows a slot that moves to another server."""

_CLOSE_SECONDS = 5.0
_READING = ("load", "lanes", "of_types", "ended")  # scripts that write nothing: no replica has to confirm it
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


# None in a thread without an event loop; get_running_loop raises then, which takes longer than a look-up.
running_loop = asyncio._get_running_loop  # noqa: SLF001


class _Way(Struct, eq=False):
    """The connections of one event loop, or of threads without one, all to one server."""

    host: str
    port: int
    pool: Pool | SocketPool


class Client:
    """Runs commands and scripts. Opens connections as they are needed."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._primary = Primary(address)
        self._ways: dict[asyncio.AbstractEventLoop | None, _Way] = {}
        self._closed = False
        # After a script, on the same connection.
        self._wait: list[Command] = (
            [("WAIT", address.replicas, REPLICA_MILLISECONDS)] if address.replicas else []
        )

    def open(self) -> None:
        """Allow connections again after `close`."""
        self._closed = False

    async def close(self) -> None:
        """Close all connections, each on its own event loop."""
        self._closed = True
        ways, self._ways = self._ways, {}
        if None in ways:
            await ways[None].pool.close()
        await on_their_loops({loop: way.pool.close for loop, way in ways.items() if loop is not None})

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        never_free(self._ways)
        self._ways = {}

    # -- requests ------------------------------------------------------------------------------------

    async def run(self, name: str, keys: Sequence[str | bytes], arguments: Sequence[Argument]) -> Any:
        """Run a script; wait for replicas that must have its writes. The first key determines the slot."""
        wanted, rest = script(name), (len(keys), *keys, *arguments)
        wait = () if name in _READING else self._wait
        reply, *confirmed = await self._request([("EVALSHA", wanted.sha, *rest), *wait])
        if isinstance(reply, exceptions.NoScriptError):
            reply, *confirmed = await self._request([("EVAL", wanted.text, *rest), *wait])
        if isinstance(reply, Exception):
            raise translated(reply, self.address.display) from reply
        if confirmed and self._checked(confirmed[0]) < self.address.replicas:
            raise StoreUnavailable(
                f"only {confirmed[0]} of {self.address.replicas} replicas of Redis at {self.address.display} "
                f"confirmed a write within {REPLICA_MILLISECONDS / 1000:g} s; it was carried out, "
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
            raise translated(reply, self.address.display) from reply
        return reply

    async def _request(self, commands: Sequence[Command]) -> list[Any]:
        """Make a request of the primary; of another one if the slot has moved, which carries out nothing."""
        moves = 0
        while True:
            way = self._ways.get(running_loop()) or await self._find_way()
            try:
                link = await way.pool.acquire()
                try:
                    replies: list[Any] = await link.request(commands)
                finally:
                    way.pool.release(link)
            except (exceptions.RedisError, OSError, TimeoutError) as error:
                if not isinstance(error, PoolExhausted):
                    self._forget(way)
                raise translated(error, self.address.display) from error
            if any(isinstance(reply, _ELSEWHERE) for reply in replies):
                self._forget(way)
            moves += 1
            if not isinstance(replies[0], exceptions.MovedError) or moves > MOVES:
                return replies
            self._forget(way)

    # -- the primary ---------------------------------------------------------------------------------

    async def _find_way(self) -> _Way:
        """Make a pool for the running event loop, or for threads without one, to the primary."""
        if self._closed:
            raise StoreError(f"the store at {self.address.display} is closed; open it again to use it")
        loop = running_loop()
        with translated_errors(self.address.display):
            host, port = await self._primary.find(_opener(loop))
        for ended in [one for one in list(self._ways) if one is not None and one.is_closed()]:
            self._ways.pop(ended, None)
        connect = partial(_opener(loop), self.address, host, port)
        pool = (SocketPool if loop is None else Pool)(connect, self.address.connections)
        return self._ways.setdefault(
            loop, _Way(host, port, pool)
        )  # Another request may have made it meanwhile.

    def _forget(self, way: _Way) -> None:
        """Look for the primary again before the next request, if there may be another."""
        loop = running_loop()
        if self._primary.may_move and self._ways.get(loop) is way:
            self._ways.pop(loop, None)
            way.pool.retire()

    async def subscribe(self, channel: str, on_message: Callable[[bytes], None]) -> Link:
        """Call a function with every message of a channel; return the connection, which the caller closes."""
        way = self._ways.get(running_loop()) or await self._find_way()
        with translated_errors(self.address.display):
            link = await Link.open(self.address, way.host, way.port)
            await link.subscribe(channel, on_message)
        return link


def _opener(loop: asyncio.AbstractEventLoop | None) -> OpenLink:
    return SocketLink.open if loop is None else Link.open


# -- scripts by name -----------------------------------------------------------------------------------
# A line `@part` stands for lua/parts/part.lua; `@numbers`, `@lease_numbers` and `@version` for the layout of
# rows. As a hash names a script, versions of the library with different scripts run side by side.


_FOLDER = Path(__file__).parent.parent / "lua"
_LAYOUT = re.compile(r"@(numbers|lease_numbers|version)\b")
_SLOT = re.compile(r"^@(\w+)$", re.MULTILINE)


class Script(Struct, frozen=True):
    """The text of a script, and the hash that the server knows it by."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """Return the script of lua/<name>.lua."""
    whole = _SLOT.sub(lambda slot: _read(f"parts/{slot[1]}"), _read(name))
    layout = {"@numbers": NUMBERS, "@lease_numbers": LEASE, "@version": str(VERSION_BYTES)}
    text = _LAYOUT.sub(lambda slot: layout[slot[0]], whole)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text(encoding="utf-8").rstrip()
