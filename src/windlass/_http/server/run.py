"""Run the API on uvicorn: listen, serve beside a keeper, stop."""

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
_NOT_FREE = {errno.EADDRINUSE: "is already in use", errno.EACCES: "needs privileges that this user lacks"}


def is_loopback(host: str) -> bool:
    """Tell whether a host is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise Refused if the port cannot be used, InvalidOption for a bad host."""
    try:
        return _listener(host, port)
    except OSError as error:
        if error.errno in _NOT_FREE:
            why = _NOT_FREE[error.errno]
            raise Refused(f"port {port} on {host} {why}; choose another with --port") from None
        raise InvalidOption(f"cannot listen on {host}: {error.strerror or error}") from None


def _listener(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    # asyncio sets TCP_NODELAY only on sockets whose protocol is explicitly TCP
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
    """Serves the API of an app on uvicorn, with a keeper beside it unless `keeper` is False."""

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
        self._open_because = (
            "--insecure" if open_to_all else "there are no API keys" if open_until_keys else None
        )
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
        """Finish running requests, ending long polls at once; the second call does not wait for them."""
        self._server.force_exit = self._closing.is_set()
        self._server.should_exit = True
        self._closing.set()

    async def run(self, listener: socket.socket) -> None:
        """Serve until stopped. Logs a warning if no key is required."""
        if self._open_because is not None:
            logger.warning("%s: anyone who can connect has full access", self._open_because)
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
        except Exception:  # keep serving: another keeper may run, and /readyz tells
            logger.exception("the keeper failed; restart this server, or run `windlass keeper`")


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


async def new_server(app: App, *, host: str, insecure: bool, **options: Any) -> Server:
    """Return a server; raise InvalidOption if it would be open to other machines without keys."""
    has_keys = bool(await app.operator.keys.list())
    if not (is_loopback(host) or has_keys or insecure):
        raise InvalidOption(
            f"refusing to listen on {host} without API keys: other machines could do everything; create a "
            f"key with `windlass keys create LABEL --scope …`, listen on 127.0.0.1, or pass --insecure"
        )
    logging.getLogger("uvicorn.error").addFilter(_is_warning)
    return Server(app, open_to_all=insecure, open_until_keys=not has_keys, **options)


def _is_warning(record: logging.LogRecord) -> bool:
    """Drop uvicorn's start and stop messages; we log our own."""
    return record.levelno > logging.INFO


def start_line(host: str, port: int, place: str, promise: Any) -> str:
    """Return the line that `windlass serve` prints on start."""
    shown = f"[{host}]" if ":" in host else host
    return f"serving {place} at http://{shown}:{port}; durability: {promise.durability} ({promise.why})"
