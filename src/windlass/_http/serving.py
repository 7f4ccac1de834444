"""Running the API: where it listens, and where it refuses to."""

import ipaddress
import logging
from typing import Any

import uvicorn

from .._store import Store
from ..errors import InvalidOption
from .app import http_app
from .connection import GuardedProtocol

logger = logging.getLogger("windlass.http")

MAX_CONNECTIONS = 1000
_KEEP_ALIVE_SECONDS = 75
_GRACE_SECONDS = 10


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


def server(
    store: Store, *, host: str, port: int, open_to_all: bool = False, open_until_keys: bool = False
) -> uvicorn.Server:
    """A server that is not running yet; `await server.serve()` runs it until it is told to stop."""
    config = uvicorn.Config(
        http_app(store, open_to_all=open_to_all, open_until_keys=open_until_keys),
        host=host,
        port=port,
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
    return uvicorn.Server(config)


def told(host: str, port: int, place: str, promise: Any) -> str:
    """The one line that says what is served where."""
    shown = f"[{host}]" if ":" in host else host
    kept = f"what it acknowledges is {promise.durability}: {promise.why}"
    return f"serving {place} at http://{shown}:{port}; {kept}"
