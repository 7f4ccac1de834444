"""Send one HTTP request to an address that was checked: for webhooks, and for handlers that fetch URLs.

The host is resolved once, every address that it has is checked, and the connection goes to one of these: a
name that resolves otherwise a moment later leads nowhere. No proxies, cookies or decompression; redirects
only as far as they are allowed, each checked as the first URL is.
"""

import _thread
import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import IPv6Address
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

from ._model.brief import Brief
from ._policy.addresses import Network, refused

REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"User-Agent": "windlass", "Accept-Encoding": "identity", "Connection": "close"}
_CHUNK = 64 * 1024
_NAME = re.compile(r"[\w.-]+", re.ASCII)


class FetchError(Exception):
    """A request that was refused or failed. The message has nothing of the URL or of what was received."""


class FetchRefused(FetchError):
    """A request that is not allowed: no attempt can succeed."""


class _Request(Brief, Struct, frozen=True, kw_only=True):
    """What is sent to each URL in turn."""

    method: str
    headers: Mapping[str, str]
    body: bytes | None
    max_bytes: int
    cut: bool


class Fetched(Brief, Struct, frozen=True, kw_only=True):
    """A response: its status, its headers by names in lower case, and as much as was read of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str  # of the last redirect


class Fetcher:
    """Sends requests within bounds: of time, of bytes that are read, of redirects, and of addresses.

    `allowed`: networks that may be reached although they are not public. `resolve`: as `socket.getaddrinfo`.
    """

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        *,
        deadline: float = 30.0,
        redirects: int = 0,
        resolve: Callable[..., Any] = socket.getaddrinfo,
    ) -> None:
        self.allowed = tuple(allowed)
        self._deadline = deadline
        self._redirects = redirects
        self._resolve = resolve
        self.running: set[_Exchange] = set()  # each in a thread of its own
        self._tls: ssl.SSLContext | None = None  # made when needed: reading the certificates takes a while

    async def fetch(
        self,
        url: str,
        method: str = "GET",
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = 0,
        cut: bool = False,
    ) -> Fetched:
        """Send a request from a thread of its own and return the response, whatever its status.

        Raises FetchError if it takes longer than the deadline, or if the body has more than `max_bytes`; with
        0 the body is not read. With `cut` the body ends there instead, and one that is compressed is empty.
        Redirects are followed by GET and HEAD only.
        """
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Fetched] = loop.create_future()
        exchange = _Exchange(self.allowed, self._resolve, monotonic() + self._deadline, self._secured)
        request = _Request(method=method, headers=headers or {}, body=body, max_bytes=max_bytes, cut=cut)
        redirects = self._redirects if method in ("GET", "HEAD") else 0

        def work() -> None:
            try:
                result: Fetched | FetchError = exchange.run(url, request, redirects)
            except FetchError as error:
                result = error
            self.running.discard(exchange)
            with suppress(RuntimeError):  # the loop was closed: no caller waits any more
                loop.call_soon_threadsafe(_resolve, response, result)

        # Not in the loop's executor, whose threads are joined when the program ends; and not as a
        # threading.Thread, whose start would block the loop until the thread runs.
        self.running.add(exchange)
        _thread.start_new_thread(work, ())
        try:
            async with asyncio.timeout(self._deadline):
                return await response
        except TimeoutError:
            raise FetchError(f"no response within {self._deadline:g} s") from None
        finally:
            exchange.abort()

    def _secured(self, connected: socket.socket, host: str) -> socket.socket:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls.wrap_socket(connected, server_hostname=host)


class _Exchange:
    """One request and the redirects that it leads to; blocks."""

    def __init__(
        self,
        allowed: Sequence[Network],
        resolve: Callable[..., Any],
        until: float,
        secured: Callable[[socket.socket, str], socket.socket],
    ) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._until = until
        self._secured = secured
        self._aborted = False
        self._socket: socket.socket | None = None

    def run(self, url: str, request: _Request, redirects: int) -> Fetched:
        """Send the request and follow up to this many redirects; with 0 a redirect is the response."""
        left = redirects
        while True:
            try:
                fetched = self._response(url, request)
                where = fetched.headers.get("location")
                if not redirects or fetched.status not in REDIRECTS or where is None:
                    return fetched
                url = urljoin(url, where)
            except (OSError, HTTPException, ValueError) as error:
                raise FetchError(_reason(error)) from None
            if not left:
                raise FetchRefused(f"more than {redirects} redirects")
            left -= 1

    def abort(self) -> None:
        """End the thread's wait, if it still waits."""
        self._aborted = True
        connected = self._socket
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _response(self, url: str, request: _Request) -> Fetched:
        parts = _checked(url)
        connection = HTTPConnection(parts.hostname or "", parts.port or _PORTS[parts.scheme])
        try:
            connection.sock = self._connect(parts)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request(request.method, target, request.body, {**_HEADERS, **request.headers})
            with connection.getresponse() as response:  # which has taken the connection over
                received = {name.lower(): value for name, value in response.getheaders()}
                content = self._body(response, request) if request.max_bytes else b""
                return Fetched(status=response.status, headers=received, body=content, url=url)
        finally:
            self._socket = None
            connection.close()

    def _connect(self, parts: SplitResult) -> socket.socket:
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        found = self._resolve(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        if (one := refused((str(place[4][0]) for place in found), self._allowed)) is not None:
            raise _not_allowed(one)
        connected = self._first_connected(found)
        self._socket = connected
        if (one := refused([str(connected.getpeername()[0])], self._allowed)) is not None:
            connected.close()
            raise _not_allowed(one)
        if parts.scheme == "https":
            connected = self._secured(connected, host)
            self._socket = connected
        return connected

    def _first_connected(self, found: Sequence[Any]) -> socket.socket:
        """Connect to the first address that accepts."""
        failure: OSError = OSError("the name has no address")
        for family, kind, protocol, _, place in found:
            connected = socket.socket(family, kind, protocol)
            try:
                connected.settimeout(self._left())
                connected.connect(place)
            except OSError as error:
                connected.close()
                failure = error
            else:
                return connected
        raise failure

    def _body(self, response: HTTPResponse, request: _Request) -> bytes:
        max_bytes = request.max_bytes
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            if request.cut:
                return b""
            raise FetchRefused("the response is compressed, which was not asked for")
        chunks: list[bytes] = []
        size = 0
        while chunk := response.read1(_CHUNK):
            self._left()
            chunks.append(chunk)
            size += len(chunk)
            if size > max_bytes and request.cut:
                break
            if size > max_bytes:
                raise FetchRefused(f"the response is larger than {max_bytes:,} bytes")
        else:
            if response.length:  # of which so many bytes were promised
                raise FetchError("the response ended early")
        return b"".join(chunks)[:max_bytes]

    def _left(self) -> float:
        """Return the seconds that are left. Raises TimeoutError if there are none, or nobody waits."""
        left = self._until - monotonic()
        if left <= 0 or self._aborted:
            raise TimeoutError
        return left


def _checked(url: str) -> SplitResult:
    """Split a URL that can be fetched; of those in redirects anything may come."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise FetchRefused("this is no valid URL") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise FetchRefused("only http:// and https:// URLs with a host can be fetched")
    if "@" in parts.netloc:
        raise FetchRefused("a URL with a user name or password is not fetched")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise FetchRefused("a URL must be ASCII without spaces")
    if not _is_host(parts):
        raise FetchRefused(
            "the host of a URL must be a name of letters, digits, '-', '_' and '.', or an IPv6 address "
            "without a zone"
        )
    try:
        parts.hostname.encode("idna")  # as `socket.getaddrinfo` does
    except UnicodeError:
        raise FetchRefused("the host of a URL must have labels of 1 to 63 characters") from None
    return parts


def _is_host(parts: SplitResult) -> bool:
    """Tell whether a resolver could know the host; a zone is a name of one machine only."""
    host = parts.hostname or ""
    if not parts.netloc.startswith("["):
        return _NAME.fullmatch(host) is not None
    try:
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _not_allowed(address: str) -> FetchRefused:
    return FetchRefused(
        f"the address {address} is not public; if requests to it are intended, add its network to "
        f"allow_addresses"
    )


def _resolve(response: "asyncio.Future[Fetched]", result: Fetched | FetchError) -> None:
    if response.done():
        return
    if isinstance(result, FetchError):
        response.set_exception(result)
    else:
        response.set_result(result)


def _reason(error: Exception) -> str:
    """Describe an error by its type and the system's message; never by what was received."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    detail = error.strerror if isinstance(error, OSError) else None
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__
