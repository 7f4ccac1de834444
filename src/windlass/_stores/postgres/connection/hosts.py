"""Connect to the primary among the hosts that a URL names."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from ...._model.brief import Secret, without_frames
from ...pool import Connection
from ..errors import means_next_host
from .address import url_of

CONNECT_SECONDS = 10.0
_ROUND_SECONDS = 0.5  # after which the hosts that have answered are asked again, while others are silent
_LIBPQ_ONLY = frozenset({"connect_timeout", "load_balance_hosts", "tcp_user_timeout"})
"""Options of a URL that asyncpg would hand to the server, which knows none of them; and `keepalives…`."""
DEAD_PEER_SECONDS = 15  # without an acknowledgement from the other host's kernel


# The first eight digits of the name of a WAL file are the timeline, which every promotion increases.
_TIMELINE = "SELECT system_identifier, pg_walfile_name(pg_current_wal_lsn()) FROM pg_control_system()"


class Timeline(NamedTuple):
    """Which of the histories of a cluster a primary writes."""

    system: int
    number: int


Connect: TypeAlias = Callable[..., Coroutine[Any, Any, Connection]]


class Hosts:
    """The hosts of a URL. One of them takes writes, and after a failover it is another one."""

    def __init__(self, dsn: str) -> None:
        # The one that took writes last is the first.
        self._dsns: list[str] = [Secret(one) for one in each_host(_for_asyncpg(dsn))]
        self.moves = 0  # how often another host was found to be the primary
        self._timeline: Timeline | None = None  # of the last primary

    @property
    def are_several(self) -> bool:
        return len(self._dsns) > 1

    async def connect(self, **options: Any) -> Connection:
        """Connect to the host that takes writes.

        The last primary is tried alone; if it fails or is slow, all hosts at the same time, and again those
        that refused while another is silent, as a standby may be promoted meanwhile. Raises when all have
        refused, or after CONNECT_SECONDS. Failures become ConnectionError: no statement can have been sent.
        """
        if not self.are_several:
            return await _connect(self._dsns[0], CONNECT_SECONDS, **options)
        return await self._search(self._dsns, self._dsns[:1], **options)

    async def connect_elsewhere(self, **options: Any) -> Connection:
        """Connect to another host than the last primary, if one takes writes now and has succeeded that one.

        An old primary that has come back takes writes as well, but the last one may only be slow.
        """
        others = self._dsns[1:]
        return await self._search(others, others, self._connect_successor, **options)

    async def note_timeline(self, connection: Connection) -> None:
        """Read the timeline of the primary from a connection to it, to know its successors by."""
        if self.are_several:
            self._timeline = await _timeline_of(connection)

    async def _connect_successor(self, dsn: str, seconds: float, **options: Any) -> Connection:
        connection = await _connect(dsn, seconds, **options)
        found, last = await _timeline_of(connection), self._timeline
        if found and last and found.system == last.system and found.number < last.number:
            connection.terminate()
            raise ConnectionError(
                f"it was the primary before the last one (timeline {found.number}, not {last.number})"
            )
        return connection

    async def _search(
        self, dsns: list[str], first: list[str], connect: Connect | None = None, **options: Any
    ) -> Connection:
        connect = connect or _connect
        deadline = monotonic() + CONNECT_SECONDS
        attempts: dict[asyncio.Task[Connection], str] = {}
        failed: dict[str, BaseException] = {}
        asked = first
        try:
            while (left := deadline - monotonic()) > 0:
                for dsn in asked:
                    if dsn not in attempts.values():
                        attempts[asyncio.create_task(connect(dsn, left, **options))] = dsn
                if (found := await _first_success(attempts, failed)) is not None:
                    self._put_first(found[0])
                    return found[1]
                if not attempts and len(failed) == len(dsns):
                    break
                asked = dsns
        finally:
            for attempt in attempts:
                attempt.cancel()
                attempt.add_done_callback(_drop)
        raise _summary(dsns, failed)

    def _put_first(self, dsn: str) -> None:
        if dsn != self._dsns[0]:
            self._dsns = [dsn, *(one for one in self._dsns if one != dsn)]
            self.moves += 1


async def _first_success(
    attempts: dict[asyncio.Task[Connection], str], failed: dict[str, BaseException]
) -> tuple[str, Connection] | None:
    """Wait for a connection; None if all attempts fail, or without one after _ROUND_SECONDS."""
    until = monotonic() + _ROUND_SECONDS
    while attempts and (left := until - monotonic()) > 0:
        done, _ = await asyncio.wait(attempts, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for attempt in done:
            if (error := attempt.exception()) is None:
                return attempts.pop(attempt), attempt.result()
            failed[attempts.pop(attempt)] = error
    return None


def _drop(attempt: "asyncio.Task[Connection]") -> None:
    """Close the connection of an attempt that was overtaken."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()


def _summary(dsns: list[str], failed: dict[str, BaseException]) -> BaseException:
    """Return the error to raise: what somebody has to mend, or else what each host answered."""
    for error in failed.values():
        if not means_next_host(error):
            return error
    if failed and all(isinstance(one, asyncpg.TargetServerAttributeNotMatched) for one in failed.values()):
        return next(iter(failed.values()))
    return ConnectionError(
        "none of the hosts takes writes: "
        + "; ".join(f"{_name_of(dsn)}: {_answer_of(failed.get(dsn))}" for dsn in sorted(dsns))
    )


def _name_of(dsn: str) -> str:
    parts = urlsplit(dsn)
    options = dict(parse_qsl(parts.query))
    return parts.netloc.rpartition("@")[2] or f"{options.get('host', '')}:{options.get('port', 5432)}"


def _answer_of(error: BaseException | None) -> str:
    if error is None:
        return f"no answer within {CONNECT_SECONDS:g} s"
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "it is a standby, or configured as read-only"
    return str(error) or type(error).__name__


async def _connect(dsn: str, seconds: float, **options: Any) -> Connection:
    """Connect to one host. Failures become ConnectionError: no statement can have been sent."""
    try:
        connection = await asyncpg.connect(dsn, timeout=seconds, target_session_attrs="read-write", **options)
    except TimeoutError:
        raise ConnectionError(f"timed out after {seconds:.3g} s") from None
    except asyncpg.PostgresConnectionError as error:
        raise ConnectionError(str(error)) from without_frames(error)
    except Exception as error:
        without_frames(error)
        raise
    _detect_dead_peer(connection)
    return connection


async def _timeline_of(connection: Connection) -> Timeline | None:
    """Return the timeline of a primary; None where it cannot be read."""
    try:
        async with connection.transaction():  # or a pooler might lose the statement
            row = await connection.fetchrow(_TIMELINE)
    except asyncpg.PostgresError:
        return None
    return Timeline(row[0], int(row[1][:8], 16))


def _detect_dead_peer(connection: Connection) -> None:
    """Set TCP options so that a host that vanished without closing is noticed, where the system can."""
    transport = getattr(connection, "_transport", None)  # asyncpg has no public way to it
    socket_ = None if transport is None else transport.get_extra_info("socket")
    if socket_ is None or socket_.family not in (socket.AF_INET, socket.AF_INET6):
        return
    third = DEAD_PEER_SECONDS // 3
    options = {"TCP_KEEPIDLE": third, "TCP_KEEPINTVL": third, "TCP_KEEPCNT": 2}
    options["TCP_USER_TIMEOUT"] = DEAD_PEER_SECONDS * 1000
    with suppress(OSError):
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                socket_.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _for_asyncpg(dsn: str) -> str:
    """Return the URL without options about how to connect, which are decided here."""
    parts = urlsplit(dsn)
    options = parse_qsl(parts.query, keep_blank_values=True)
    kept = [one for one in options if one[0] not in _LIBPQ_ONLY and not one[0].startswith("keepalives")]
    return dsn if kept == options else url_of(parts._replace(query=urlencode(kept)))


def each_host(dsn: str) -> list[str]:
    """Return one URL for each host of a URL that names several, before the path or as the option `host`."""
    parts = urlsplit(dsn)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "," in options.get("host", ""):
        hosts, ports = options["host"].split(","), options.get("port", "").split(",")
        named = zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False)
        each = [options | {"host": host} | ({"port": port} if port else {}) for host, port in named]
        return [url_of(parts._replace(query=urlencode(one))) for one in each]
    user, at, place = parts.netloc.rpartition("@")
    if "," not in place:
        return [dsn]
    return [url_of(parts._replace(netloc=f"{user}{at}{host}")) for host in place.split(",")]
