"""One connection: requests packed and replies read in C, and closed whenever a reply was not read to its end.

redis-py opens it: TLS, login, database. After that its streams and timeouts are in the way: they cost more
than a small script takes, and `asyncio.wait_for` loses a cancellation now and then in Python 3.11.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import hiredis
from redis import exceptions
from redis._parsers.base import BaseParser
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .address import Address

Argument: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Argument]

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
CONNECT_SECONDS = 5.0
REPLY_SECONDS = 10.0
"""Silence after which a connection is given up: a heartbeat can then be repeated before its lease ends."""

INCOMPLETE = object()
"""What a reader returns while a reply has not arrived to its end."""


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


def packed(commands: Sequence[Command]) -> bytes:
    """Return commands as they are sent. A name such as "CLUSTER SHARDS" is two words."""
    return b"".join([_pack((*str(name).split(), *rest)) for name, *rest in commands])


def new_reader() -> Any:
    """Return a parser of replies. Errors of the server are replies, of redis-py's classes."""
    return hiredis.Reader(
        protocolError=exceptions.InvalidResponse,
        replyError=BaseParser.parse_error,
        notEnoughData=INCOMPLETE,
    )


def refuse(reply: Any) -> Any:
    """Raise a reply that says that the connection is of no use, as while the server starts; return others."""
    if isinstance(reply, exceptions.ConnectionError):
        raise reply
    return reply


def closed() -> exceptions.ConnectionError:
    """Return the error of a connection that the server closed."""
    return exceptions.ConnectionError("the server closed the connection")


class _Replies(asyncio.Protocol):
    """The receiving end: hands replies to whoever waits for them, or messages to a function."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._reader = new_reader()
        self._replies: list[Any] = []
        self._wanted = 0
        self._waiter: asyncio.Future[list[Any]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0  # bytes, when the timer was set
        self._is_silent = True  # Nothing has arrived since then.
        self.on_message: Callable[[Any], None] | None = None
        self.ended = asyncio.get_running_loop().create_future()

    def expect(self, number: int) -> "asyncio.Future[list[Any]]":
        """Return a future of so many replies."""
        self._replies, self._wanted = [], number
        self._waiter = asyncio.get_running_loop().create_future()
        if self.ended.done():
            self._fail(closed())
        return self._waiter

    def start_timer(self) -> None:
        """Give up if nothing arrives for a while, and nothing can be sent."""
        self._unsent, self._is_silent = self._transport.get_write_buffer_size(), True
        self._timer = asyncio.get_running_loop().call_later(REPLY_SECONDS, self._time_out)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _time_out(self) -> None:
        if self._is_silent and self._transport.get_write_buffer_size() >= self._unsent:
            self._fail(TimeoutError(f"no reply within {REPLY_SECONDS:g} s"))
        else:
            self.start_timer()

    def data_received(self, data: bytes) -> None:
        self._is_silent = False
        reader, replies = self._reader, self._replies
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not INCOMPLETE:
                if self.on_message is None:
                    replies.append(refuse(reply))
                else:
                    self.on_message(refuse(reply))
        except exceptions.RedisError as error:
            self._fail(error)
            self._transport.abort()
            return
        waiter = self._waiter
        if waiter is not None and len(replies) >= self._wanted:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc if isinstance(exc, OSError) else closed())
        if not self.ended.done():
            self.ended.set_result(None)

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


class _Disowned:
    """What a writer of streams is left with instead of its transport."""

    @staticmethod
    def is_closing() -> bool:
        return True


class Link:
    """A connection to a server, for one request at a time, or to listen to a channel."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        """Use `Link.open`."""
        self._transport: Any = writer.transport
        # Deleted, it would close the transport.
        writer._transport = _Disowned()  # type: ignore[attr-defined]  # noqa: SLF001
        self._replies = _Replies(self._transport)
        self._transport.set_protocol(self._replies)

    @classmethod
    async def open(cls, address: Address, host: str, port: int) -> "Link":
        """Connect. Raises the driver's errors."""
        kind: Any = SSLConnection if address.tls else Connection
        connection = kind(**options_of(address, host, port))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.connect()
            return cls(connection._writer)  # noqa: SLF001  redis-py has no name for it
        except BaseException:
            if connection._writer is not None:  # noqa: SLF001
                connection._writer.transport.abort()  # noqa: SLF001
            raise
        finally:
            connection._reader = connection._writer = None  # noqa: SLF001  It is ours now.

    async def request(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and read a reply to each; errors of the server are replies. Raises if it is lost."""
        replies = self._replies
        waiter = replies.expect(len(commands))
        self._transport.write(packed(commands))
        replies.start_timer()
        try:
            return await waiter
        except BaseException:
            self.terminate()
            raise
        finally:
            replies.stop_timer()

    async def subscribe(self, channel: str, on_message: Callable[[bytes], None]) -> None:
        """Call a function with every message of a channel, from now on; other requests are not possible."""
        reply, *_ = await self.request([("SUBSCRIBE", channel)])  # Messages may follow at once.
        if isinstance(reply, Exception):
            self.terminate()
            raise reply
        self._replies.on_message = lambda message: on_message(message[2])

    async def until_closed(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.shield(self._replies.ended)

    def __del__(self) -> None:
        self.terminate()

    # -- for the pool --------------------------------------------------------------------------------

    def is_closed(self) -> bool:
        """Whether it can no longer be used."""
        return self._transport.is_closing() or self._replies.ended.done()

    async def close(self, timeout: float) -> None:
        """Close it; TimeoutError if that takes longer."""
        self._transport.close()
        async with asyncio.timeout(timeout):
            await self.until_closed()

    def terminate(self) -> None:
        """Close it without waiting for anything."""
        with suppress(Exception):  # Its event loop may have ended.
            self._transport.abort()
