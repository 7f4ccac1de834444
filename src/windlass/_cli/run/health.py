"""The health of a command that runs until stopped: for HTTP probes, a file, and systemd."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from ..._timers import wait_for_event
from ...config import Settings, service_manager
from ...errors import Refused
from ..command import setting_option
from ..options import stacked

if TYPE_CHECKING:
    from ..._observe.metrics import Metrics

logger = logging.getLogger("windlass.health")

Page: TypeAlias = Callable[[str], tuple[int, bytes, str]]
"""Takes what is accepted; returns a status, a body and its content type."""

LIVE_SECONDS = 60.0
"""Time for which a handler may block the event loop before its process counts as not alive."""

_TICK_SECONDS = 1.0

health_options = stacked(
    setting_option("--health", metavar="[HOST:]PORT", help="Answer probes at this address: /live and /ready"),
    setting_option("--health-file", metavar="FILE", help="Write FILE every second while ready"),
)


class Health:
    """Whether a command is alive and ready.

    It is alive while its event loop has turned within `patience` seconds. It is ready from `started` to
    `stopping`, while `works` is true.
    """

    def __init__(self, works: Callable[[], bool] = lambda: True, patience: float = LIVE_SECONDS) -> None:
        self._works = works
        self._patience = patience
        self._manager = ServiceManager()
        self._turned = monotonic()
        self._is_started = False
        self._warned = False

    @property
    def is_ready(self) -> bool:
        return self._is_started and self._works()

    @property
    def pages(self) -> dict[str, Page]:
        """The pages that probes request."""
        return {"/live": self._live, "/ready": self._ready}

    def started(self) -> None:
        self._is_started = True

    def stopping(self) -> None:
        """Not ready any more; the service manager is told at once."""
        if self._is_started:
            self._is_started = False
            self._manager.notify("STOPPING=1")

    def _live(self, _accept: str) -> tuple[int, bytes, str]:
        silent = monotonic() - self._turned
        if silent > self._patience:
            return _text(503, f"the event loop has been blocked for {silent:.0f} s")
        return _text(200, "alive")

    def _ready(self, _accept: str) -> tuple[int, bytes, str]:
        return _text(200, "ready") if self.is_ready else _text(503, "not ready")

    async def report_while(self, work: Awaitable[None], file: str | None = None) -> None:
        """Await `work`; meanwhile keep the file's time fresh while ready, and notify the service manager."""
        path = None if file is None else Path(file)
        reporting = asyncio.ensure_future(self._report(path))
        try:
            await work
        finally:
            self.stopping()
            reporting.cancel()
            if path is not None:
                self._write(path, ready=False)

    async def _report(self, file: Path | None) -> None:
        never, was_ready, watchdog = asyncio.Event(), False, self._manager.watchdog_seconds
        while True:
            self._turned = monotonic()
            ready = self.is_ready
            if ready and not was_ready:
                self._manager.notify("READY=1")
            was_ready = was_ready or ready
            if watchdog is not None:
                self._manager.notify("WATCHDOG=1")
            if file is not None:
                self._write(file, ready=ready)
            await wait_for_event(never, min(_TICK_SECONDS, (watchdog or 60) / 2))

    def _write(self, file: Path, *, ready: bool) -> None:
        try:
            if ready:
                _touch(file)
            else:
                file.unlink(missing_ok=True)
        except OSError as error:
            if not self._warned:
                self._warned = True
                logger.warning("cannot write the health file %s: %s", file, error.strerror or error)


_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def _touch(file: Path) -> None:
    """Create the file or set its time. Follows no link and waits at no FIFO: the folder may be shared."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | _SAFE, 0o666)
    try:
        os.utime(file if os.utime not in os.supports_fd else opened)
    finally:
        os.close(opened)


class ServiceManager:
    """systemd's notification socket, if there is one."""

    def __init__(self) -> None:
        self._address, self.watchdog_seconds = service_manager()

    def notify(self, state: str) -> None:
        """Send a state such as READY=1; nothing if no manager listens."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(state.encode(), address)


def serve_health(settings: Settings, health: Health, metrics: "Metrics | None" = None) -> None:
    """Serve probes and metrics where the settings say, and log the addresses."""
    if settings.metrics is not None and metrics is not None:
        shown = metrics.own

        def page(accept: str) -> tuple[int, bytes, str]:
            return 200, *shown(accept)

        url = serve_pages("metrics", settings.metrics, {"/metrics": page, **health.pages})
        logger.info("metrics are at %s/metrics", url)
    if settings.health is not None:
        url = serve_pages("probes", settings.health, health.pages)
        logger.info("probes are at %s/live and /ready", url)


def serve_pages(what: str, address: tuple[str, int], pages: Mapping[str, Page]) -> str:
    """Serve these pages over HTTP from a thread; return their URL. Raises Refused if it cannot listen."""
    host, port = address

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            accept = self.headers.get("Accept", "")
            status, body, kind = page(accept) if page else _text(404, f"there are {', '.join(pages)}")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

    class Server(ThreadingHTTPServer):
        address_family: int = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        why = error.strerror or error
        raise Refused(
            f"cannot serve {what} on {host}:{port}: {why}; choose another address or port"
        ) from None
    threading.Thread(target=server.serve_forever, name="windlass-health", daemon=True).start()
    return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"


def _text(status: int, text: str) -> tuple[int, bytes, str]:
    return status, f"{text}\n".encode(), "text/plain; charset=utf-8"
