"""Run the API on uvicorn: listen, serve beside a keeper, stop."""

import asyncio
import ctypes
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp

from ...app import App
from ...errors import InvalidOption, Refused
from ..app import URGENT_PATHS, Api
from ..web.load import LoadLimits, load_limits
from .connections import ConnectionLimits, Connections, affordable
from .protocol import GuardedProtocol

logger = logging.getLogger("windlass.http")

_BACKLOG = 2048
_FREED_AFTER = (1.0, 10.0)  # seconds: until closed connections have freed their buffers; on a busy machine
_KEEP_ALIVE_SECONDS = 75
_GRACE_SECONDS = 10
_NOT_FREE = {errno.EADDRINUSE: "is already in use", errno.EACCES: "needs privileges that this user lacks"}

_CREATE = "create one with `windlass keys create LABEL --scope …`"
INSECURE = "--insecure: anyone who can connect has full access"
KEYLESS = (
    "there are no API keys: every user and program of this machine has full access; proxies and web pages "
    f"are refused; before others may connect, {_CREATE}"
)
CLOSED = f"every API key is revoked or expired, so all requests are refused; {_CREATE}"


def return_memory() -> None:
    """Return freed memory to the system, soon: glibc would keep what a flood of unread responses took."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        loop = asyncio.get_running_loop()
        for seconds in _FREED_AFTER:
            loop.call_later(seconds, loop.run_in_executor, None, trim, 0)


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


class ServerLimits(Struct, frozen=True, kw_only=True):
    """The bounds of a server, as the options of `windlass serve` name them."""

    max_connections: int = ConnectionLimits().total
    max_connections_per_address: int | None = None
    max_streams_per_key: int | None = None
    max_queues_per_tenant: int = LoadLimits().queues_per_tenant
    max_types_per_tenant: int = LoadLimits().types_per_tenant
    max_queue_type_pairs_per_tenant: int | None = None


DEFAULT_LIMITS = ServerLimits()


class Server:
    """Serves the API of an app on uvicorn, with a keeper beside it unless `keeper` is False.

    `site` returns what is served around the API.
    """

    def __init__(
        self,
        app: App,
        *,
        keeper: bool = True,
        warning: str = "",
        limits: ServerLimits = DEFAULT_LIMITS,
        site: Callable[[Api], ASGIApp] | None = None,
        **options: Any,
    ) -> None:
        wanted = ConnectionLimits(
            total=limits.max_connections, per_address=limits.max_connections_per_address
        )
        among = Connections(affordable(wanted), map(str.encode, URGENT_PATHS), return_memory=return_memory)
        load = load_limits(
            among.limits.total,
            limits.max_streams_per_key,
            limits.max_queues_per_tenant,
            limits.max_types_per_tenant,
            limits.max_queue_type_pairs_per_tenant,
        )
        served = Api(app, limits=load, **options)
        self._app = app
        self._keeper = keeper
        self._warning = warning
        self._closing: asyncio.Event = served.service.closing
        config = uvicorn.Config(
            served if site is None else site(served),
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            http=cast("type[asyncio.Protocol]", partial(GuardedProtocol, among=among)),
            ws="none",
        )
        self._server = _Uvicorn(config)

    def stop(self) -> None:
        """Finish running requests, ending long polls at once; the second call does not wait for them."""
        self._server.force_exit = self._closing.is_set()
        self._server.should_exit = True
        self._closing.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._closing.is_set()

    def announce(self, start_line: str) -> None:
        """Log that it serves, and who has access if no key is required, or if no key is valid."""
        logger.info("%s", start_line)
        if self._warning:
            logger.warning("%s", self._warning)

    async def run(
        self, listener: socket.socket, started: Callable[[], None], *, is_shared: bool = False
    ) -> None:
        """Serve until stopped; `started` is called once connections are accepted.

        `is_shared`: other processes accept from this listener, too.
        """
        self._server.started_callback, self._server.is_shared = started, is_shared
        beside = [asyncio.ensure_future(self._keep()), asyncio.ensure_future(self._record())]
        try:
            await self._server.serve(sockets=[listener])
        finally:
            for one in beside:
                one.cancel()
            await asyncio.wait(beside)

    async def _record(self) -> None:
        """Store the history of what is settled here, for workers elsewhere."""
        if self._app.store.history is not None:
            await self._app.store.history.run()

    async def _keep(self) -> None:
        if not self._keeper:
            return
        try:
            await self._app.keeper(name=f"{socket.gethostname()}-{os.getpid()}").run()
        except Exception:  # keep serving: another keeper may run, and /readyz tells
            logger.exception("the keeper failed; restart this server, or run `windlass keeper`")


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that leaves signals to its caller, and tells when it has started."""

    started_callback: Callable[[], None]
    is_shared = False
    _acceptors: "tuple[Acceptor, ...]" = ()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, by ourselves if the sockets are shared."""
        await super().startup([] if self.is_shared else sockets)
        if self.is_shared:
            self._acceptors = tuple(Acceptor(one, self._new_protocol) for one in sockets or ())
        self.started_callback()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and finish running requests."""
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)

    def _new_protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


async def new_server(app: App, *, host: str, insecure: bool, **options: Any) -> Server:
    """Return a server; raise InvalidOption if it would be open to other machines without keys.

    Revoked and expired keys count: a server that once had keys stays closed.
    """
    keys = await app.operator.keys.list(inactive=True)
    has_keys = bool(keys)
    if not (is_loopback(host) or has_keys or insecure):
        raise InvalidOption(
            f"refusing to listen on {host} without API keys: other machines could do everything; create a "
            f"key with `windlass keys create LABEL --scope …`, listen on 127.0.0.1, or pass --insecure"
        )
    logging.getLogger("uvicorn.error").addFilter(_is_warning)
    warning = ""
    if insecure:
        warning = INSECURE
    elif not has_keys:
        warning = KEYLESS
    elif not await app.operator.keys.list():
        warning = CLOSED
    return Server(app, open_to_all=insecure, open_until_keys=not has_keys, warning=warning, **options)


def _is_warning(record: logging.LogRecord) -> bool:
    """Drop uvicorn's start and stop messages; we log our own."""
    return record.levelno > logging.INFO


def start_line(host: str, port: int, place: str, promise: Any, *, dashboard: bool = False) -> str:
    """Return the line that `windlass serve` prints on start."""
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    line = f"serving {place} at {url}; durability: {promise.durability} ({promise.why})"
    return f"{line}; dashboard: {url}/dashboard/" if dashboard else line


# -- connections of a listening socket that several processes share ------------------------------------
# asyncio and uvloop accept whatever waits at once: a client that opens ten connections would have all of them
# in one process. A pause after each leaves the next one to the others.


PAUSE_SECONDS = 0.002
_TROUBLE_SECONDS = 1.0  # when no descriptor is left


class Acceptor:
    """Accepts connections, one at a time."""

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[object]] = set()
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more; connections that were accepted remain."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        pause = PAUSE_SECONDS
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was quicker, or the client has gone
        except OSError as error:
            logger.warning("cannot accept connections: %s", error)
            pause = _TROUBLE_SECONDS
        else:
            connection.setblocking(False)
            connecting = self._loop.create_task(
                self._loop.connect_accepted_socket(self._protocol, connection)
            )
            self._connecting.add(connecting)
            connecting.add_done_callback(self._connecting.discard)
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(pause, self._resume)
