"""Connect to the primary among the hosts that a URL names."""

import socket
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from ...pool import Connection
from ..errors import means_next_host

CONNECT_SECONDS = 10.0
_DEAD_PEER_SECONDS = 15  # without an acknowledgement from the other host's kernel


class Hosts:
    """The hosts of a URL. One of them takes writes, and after a failover it is another one."""

    def __init__(self, dsn: str) -> None:
        self._dsns = each_host(dsn)

    async def connect(self, **options: Any) -> Connection:
        """Connect to the host that takes writes; one that fails is tried last the next time.

        Each host gets its share of CONNECT_SECONDS, so that a silent one leaves time for the others.
        """
        seconds = CONNECT_SECONDS / len(self._dsns)
        failed: Exception | None = None
        for dsn in list(self._dsns):
            try:
                return await _connect(dsn, seconds, **options)
            except BaseException as error:
                self._dsns = [*(one for one in self._dsns if one != dsn), dsn]
                if not isinstance(error, Exception) or not means_next_host(error):
                    raise
                failed = error
        assert failed is not None
        raise failed


async def _connect(dsn: str, seconds: float, **options: Any) -> Connection:
    """Connect to one host. Failures become ConnectionError: no statement can have been sent."""
    try:
        connection = await asyncpg.connect(dsn, timeout=seconds, target_session_attrs="read-write", **options)
    except TimeoutError:
        raise ConnectionError(f"timed out after {seconds:g} s") from None
    except asyncpg.PostgresConnectionError as error:
        raise ConnectionError(str(error)) from error
    _detect_dead_peer(connection)
    return connection


def _detect_dead_peer(connection: Connection) -> None:
    """Set TCP options so that a host that vanished without closing is noticed, where the system can."""
    transport = getattr(connection, "_transport", None)  # asyncpg has no public way to it
    socket_ = None if transport is None else transport.get_extra_info("socket")
    if socket_ is None or socket_.family not in (socket.AF_INET, socket.AF_INET6):
        return
    third = _DEAD_PEER_SECONDS // 3
    options = {"TCP_KEEPIDLE": third, "TCP_KEEPINTVL": third, "TCP_KEEPCNT": 2}
    options["TCP_USER_TIMEOUT"] = _DEAD_PEER_SECONDS * 1000
    with suppress(OSError):
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                socket_.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def each_host(dsn: str) -> list[str]:
    """Return one URL for each host of a URL that names several."""
    parts = urlsplit(dsn)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [dsn]
    return [parts._replace(netloc=f"{user}{at}{host}").geturl() for host in hosts.split(",")]
