"""One connection: requests packed and replies read in C, and closed whenever a reply was not read to its end.

It is redis-py's, without its timeouts: they use `asyncio.wait_for`, which loses a cancellation now and then
in Python 3.11.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import hiredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .address import Address

Argument: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Argument]

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
CONNECT_SECONDS = 5.0
REPLY_SECONDS = 30.0


def options_of(address: Address, host: str, port: int) -> dict[str, Any]:
    """Return the options of a connection, as redis-py takes them."""
    return {
        "host": host,
        "port": port,
        "db": address.database,
        "username": address.user,
        "password": address.password,
        "protocol": 2,
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # Callers repeat what failed; a claim must not be repeated unseen.
    }


class _Abortable(AbstractConnection):
    """A connection that can be closed without waiting: whatever it was doing, it is not used again."""

    def terminate(self) -> None:
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            self._parser.on_disconnect()  # type: ignore[no-untyped-call]
            with suppress(Exception):
                writer.transport.abort()


class _Plain(_Abortable, Connection):
    pass


class _Encrypted(_Abortable, SSLConnection):
    pass


class Link:
    """A connection to a server, for one request at a time."""

    def __init__(self, connection: Any) -> None:
        """Use `Link.open`."""
        self._connection = connection

    @classmethod
    async def open(cls, address: Address, host: str, port: int) -> "Link":
        """Connect. Raises the driver's errors."""
        kind: Any = _Encrypted if address.tls else _Plain
        link = cls(kind(**options_of(address, host, port)))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await link._connection.connect()
        except BaseException:
            link.terminate()
            raise
        return link

    async def request(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and read a reply to each; errors of the server are replies. Raises if it is lost."""
        packed = b"".join([_pack((*str(name).split(), *rest)) for name, *rest in commands])
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                await self._connection.send_packed_command(packed, check_health=False)
                return [await self._reply() for _ in commands]
        except BaseException:
            self.terminate()
            raise

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except exceptions.ResponseError as error:
            return error

    # -- for the pool --------------------------------------------------------------------------------

    def is_closed(self) -> bool:
        """Whether it can no longer be used."""
        return not self._connection.is_connected

    async def close(self, timeout: float) -> None:
        """Close it; TimeoutError if that takes longer."""
        async with asyncio.timeout(timeout):
            await self._connection.disconnect()

    def terminate(self) -> None:
        """Close it without waiting for anything."""
        self._connection.terminate()
