"""The HTTP client of a remote store: one connection pool per event loop; problem documents become errors."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import httpx2
import msgspec

from ... import errors
from ..._store.failures import error_of
from ..._store.json_codec import Decoder, encode
from ..._store.messages import MAX_REQUEST_BYTES, REQUESTS, Request
from ..._store.protocol import Wake
from ..forks import leave_in_children, never_free

T = TypeVar("T")

CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 30.0
BYTES_PER_SECOND = 1 << 20
"""Large requests get longer for their response: a second more for so many bytes."""

CLOSE_SECONDS = 2.0
SILENCE_SECONDS = 25.0
"""A server that streams hints sends something more often than this."""

_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=60.0)
"""Connections are kept between heartbeats and polls; `windlass serve` keeps one that is idle for 75 s."""

_FORBIDDEN, _TOO_LARGE, _INVALID = 403, 413, 422
_JSON = {"content-type": "application/json"}
_NO_DELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
_UNNAMED_TRANSIENT = (429, 500, 502, 503, 504)
"""Without a problem document of ours: a proxy's response while its server is unavailable."""

_decoders = {verb: Decoder[Any](request.response_type()) for verb, request in REQUESTS.items()}
_wake = Decoder[Wake](Wake)


def _is_foreign(record: logging.LogRecord) -> bool:
    """Keep requests to the store out of httpx2's log; those of the program itself stay in."""
    return not (isinstance(record.args, tuple) and any("/store/" in str(one) for one in record.args[1:2]))


logging.getLogger("httpx2").addFilter(_is_foreign)


class StoreClient:
    """Sends store requests to a server."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = _checked_url(url)
        self.key = _checked_key(key)
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}
        leave_in_children(self)

    async def request(self, request: Request[T], body: bytes | None = None) -> T:
        """Send a request and decode the response; `body` is the request if it is encoded already.

        Raises what the store raised, and InvalidOption for a request that is too large to send.
        """
        response = await self.send(request, body)
        try:
            decoded: T = _decoders[request.verb].decode(response)
        except msgspec.DecodeError as error:
            raise errors.StoreUnavailable(f"{self.url} sent an invalid response: {error}") from error
        return decoded

    async def send(self, request: Request[Any], body: bytes | None = None) -> bytes:
        """Do the same, but return the response as JSON."""
        if body is None:
            body = encode(request)
        if len(body) > MAX_REQUEST_BYTES:
            raise errors.InvalidOption(
                f"this {request.verb} is {len(body):,} bytes of JSON, and a store over HTTP takes at most "
                f"{MAX_REQUEST_BYTES:,} in one call: nothing was sent. Pass fewer tasks at once, or smaller "
                f"payloads; calls that must be all or nothing need a connection to the database itself"
            )
        response = await self._post(request.verb, body)
        if response.status_code == httpx2.codes.OK:
            return bytes(response.content)
        raise self._error_of(response)

    async def allows(self, verb: str) -> bool:
        """Whether the key permits a request. Sends an invalid body, so that nothing is carried out."""
        response = await self._post(verb, b"null")
        if response.status_code in (_FORBIDDEN, _INVALID):
            return response.status_code == _INVALID
        raise self._error_of(response)

    async def _post(self, verb: str, body: bytes) -> httpx2.Response:
        seconds = RESPONSE_SECONDS + len(body) // BYTES_PER_SECOND
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            client = self._http_client()
            return await client.post(f"/store/{verb}", content=body, headers=_JSON, timeout=timeout)
        except httpx2.HTTPError as error:
            raise errors.StoreUnavailable(no_response(self.url, error, seconds)) from error

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield hints as they arrive, until the connection breaks.

        Each stream has a pool of its own: a request searches the pool of its client for an idle connection,
        past every stream of the thousands that workers may have.
        """
        timeout = httpx2.Timeout(RESPONSE_SECONDS, connect=CONNECT_SECONDS, read=SILENCE_SECONDS)
        body = encode({"queues": tuple(queues)})
        try:
            async with (
                self._new_http_client() as client,
                client.stream(
                    "POST", "/store/wakes", content=body, headers=_JSON, timeout=timeout
                ) as response,
            ):
                if response.status_code != httpx2.codes.OK:
                    await response.aread()
                    raise self._error_of(response)
                async for line in response.aiter_lines():
                    if line.strip():
                        yield _wake.decode(line.encode())
        except httpx2.HTTPError as error:
            raise errors.StoreUnavailable(no_response(self.url, error, SILENCE_SECONDS)) from error

    async def close(self) -> None:
        """Close the connections of this event loop and of others that still run."""
        here = asyncio.get_running_loop()
        clients, self._clients = self._clients, {}
        for loop, client in clients.items():
            if loop is here:
                await client.aclose()
            elif loop.is_running():
                elsewhere = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await asyncio.wrap_future(elsewhere)

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        never_free(self._clients)
        self._clients = {}

    def _http_client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            self._clients = {one: kept for one, kept in self._clients.items() if not one.is_closed()}
            client = self._clients[loop] = self._new_http_client()
        return client

    def _new_http_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=self.url,
            headers={} if self.key is None else {"authorization": f"Bearer {self.key}"},
            timeout=httpx2.Timeout(RESPONSE_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
            # A request is two writes, head and body: the second must not wait for an acknowledgement.
            transport=httpx2.AsyncHTTPTransport(
                verify=_ssl_context(), limits=_LIMITS, socket_options=[_NO_DELAY]
            ),
        )

    def _error_of(self, response: httpx2.Response) -> errors.WindlassError:
        """Return the error that a problem document describes."""
        status = response.status_code
        transient = status in _UNNAMED_TRANSIENT
        failed = errors.StoreUnavailable if transient else errors.StoreError
        try:
            problem: dict[str, Any] = msgspec.json.decode(response.content)
            code, detail = str(problem["code"]), str(problem["detail"])
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            if status == _TOO_LARGE:
                return errors.InvalidOption(
                    f"{self.url}: a proxy refused the request as too large (413): raise its limit to 64 MiB "
                    f"(nginx: client_max_body_size), or pass fewer tasks at once"
                )
            hint = "" if transient else "; is this the address of a `windlass serve`?"
            return failed(f"{self.url} answered {status} without a windlass problem document{hint}")
        if status == httpx2.codes.UNAUTHORIZED:
            return errors.StoreError(f"{self.url} {self._unauthorized()}")
        if status == _TOO_LARGE:
            return errors.InvalidOption(f"{self.url}: {detail}")
        named = error_of(code, detail, str(problem.get("standing", "")))
        return failed(f"{self.url}: {detail}") if named is None else named

    def _unauthorized(self) -> str:
        """Return why the server rejected the key, and what to do."""
        if self.key is None:
            return "requires a key: create one there with `windlass keys create` and set WINDLASS_KEY"
        return "rejected the key in WINDLASS_KEY: it is another server's, expired or revoked"


def no_response(url: str, error: httpx2.HTTPError, seconds: float) -> str:
    """Return what to say of a request that got no response: which server, why, and what to do."""
    parts = httpx2.URL(url)
    address = url if parts.port else f"{url} (port {443 if parts.scheme == 'https' else 80})"
    repeat = "the request may have been carried out, and repeating it is safe"
    match error:
        case httpx2.ConnectTimeout():
            return (
                f"timed out after {CONNECT_SECONDS:g} s connecting to {address}; check host, port and "
                f"firewalls"
            )
        case httpx2.ConnectError():
            return (
                f"cannot connect to {address}: {_reason(error)}; check host and port, and that "
                f"`windlass serve` is running there"
            )
        case httpx2.TimeoutException():
            return f"timed out after {seconds:g} s waiting for {address}; {repeat}"
        case _:
            return f"lost the connection to {address}: {_reason(error)}; {repeat}"


def _reason(error: BaseException) -> str:
    """Return what the system said, which is the innermost cause of an error."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return str(error).rstrip(".") or type(error).__name__


@cache
def _ssl_context() -> ssl.SSLContext:
    """Load the trusted certificates, once for all clients: it blocks the event loop for 30 ms."""
    return httpx2.create_ssl_context()


def _checked_url(url: str) -> str:
    """Check the URL of a server. It may hold no credentials and no query, which would end up in logs."""
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise errors.InvalidOption(f"the URL of the store is invalid: {error}") from None
    if not parts.host:
        raise errors.InvalidOption("the URL of a store over HTTP needs a host, as in http://127.0.0.1:8765")
    if parts.userinfo or parts.query or parts.fragment:
        raise errors.InvalidOption(
            "the URL of a store over HTTP may have no user, query or fragment: set the key in WINDLASS_KEY"
        )
    return url.rstrip("/")


def _checked_key(key: str | None) -> str | None:
    """Check that a key can be sent; an empty one counts as none."""
    if not key:
        return None
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise errors.InvalidOption(
            "WINDLASS_KEY does not hold a key: keys look like wl_…, without spaces or line breaks"
        )
    return key
