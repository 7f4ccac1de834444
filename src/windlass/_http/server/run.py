"""Running the API: where it listens, where it refuses to, and how it stops."""

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from ...app import App
from ...errors import InvalidOption, Refused
from ..app import Api
from .protocol import GuardedProtocol

logger = logging.getLogger("windlass.http")

MAX_CONNECTIONS = 1000
_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 75
_GRACE_SECONDS = 10
_NOT_FREE = {errno.EADDRINUSE: "is taken by another program", errno.EACCES: "is not for this user"}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_safe(host: str, *, has_keys: bool, insecure: bool) -> None:
    """Refuse to listen where strangers may come by, unless they need a key."""
    if not (is_loopback(host) or has_keys or insecure):
        raise InvalidOption(
            f"listening on {host} lets others in, and there are no keys: make one with "
            f"`windlass keys create LABEL --scope …`, listen on 127.0.0.1, or say --insecure"
        )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there, or a word on why there can be none."""
    try:
        return _listener(host, port)
    except OSError as error:
        if error.errno in _NOT_FREE:
            why = _NOT_FREE[error.errno]
            raise Refused(f"port {port} of {host} {why}; choose another with --port") from None
        raise InvalidOption(f"it cannot listen on {host}: {error.strerror or error}") from None


def _listener(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    # With the protocol said: asyncio sends without delay only on sockets that are known to be TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class Server:
    """The API of an app, on uvicorn; and a keeper beside it, unless others keep house."""

    def __init__(
        self,
        app: App,
        *,
        keeper: bool = True,
        open_to_all: bool = False,
        open_until_keys: bool = False,
        **options: Any,
    ) -> None:
        served = Api(app, open_to_all=open_to_all, open_until_keys=open_until_keys, **options)
        self._app = app
        self._keeper = keeper
        self._open_why = "--insecure" if open_to_all else "there are no keys" if open_until_keys else None
        self._closing: asyncio.Event = served.service.closing
        config = uvicorn.Config(
            served,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            http=GuardedProtocol,
            ws="none",
        )
        self._server = _Uvicorn(config)

    def stop(self) -> None:
        """Answer what is asked, and those who wait at once; the second time, wait for nothing."""
        self._server.force_exit = self._closing.is_set()
        self._server.should_exit = True
        self._closing.set()

    async def run(self, listener: socket.socket) -> None:
        """Serve until it is stopped; it says so if whoever reaches it may do everything."""
        if self._open_why is not None:
            logger.warning("%s: whoever can reach it may do everything", self._open_why)
        keeping = asyncio.ensure_future(self._keep())
        try:
            await self._server.serve(sockets=[listener])
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def _keep(self) -> None:
        if not self._keeper:
            return
        try:
            await self._app.keeper(name=f"{socket.gethostname()}-{os.getpid()}").run()
        except Exception:  # What is served goes on: others may keep house, and /readyz says whether one does.
            logger.exception("the keeper has failed; start this server anew, or run `windlass keeper`")


class _Uvicorn(uvicorn.Server):
    """uvicorn, that leaves the signals to who runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def prepared(app: App, *, host: str, insecure: bool, **options: Any) -> Server:
    """A server that is safe to listen there."""
    has_keys = bool(await app.operator.keys.list())
    check_safe(host, has_keys=has_keys, insecure=insecure)
    logging.getLogger("uvicorn.error").addFilter(_matters)
    return Server(app, open_to_all=insecure, open_until_keys=not has_keys, **options)


def _matters(record: logging.LogRecord) -> bool:
    """What uvicorn says of its own comings and goings is said here already."""
    return record.levelno > logging.INFO


def told(host: str, port: int, place: str, promise: Any) -> str:
    """The one line that says what is served where."""
    shown = f"[{host}]" if ":" in host else host
    kept = f"what it acknowledges is {promise.durability}: {promise.why}"
    return f"serving {place} at http://{shown}:{port}; {kept}"
