"""The line to a server: one client for each event loop, and what its problems mean here."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import httpx2
import msgspec

from ... import errors
from ..._store.json_codec import Decoder, encode
from ..._store.messages import REQUESTS, Request
from ..._store.protocol import Wake

T = TypeVar("T")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
FAREWELL_SECONDS = 2.0
SILENCE_SECONDS = 25.0
"""A server that streams hints says something more often than that."""

_KINDS: dict[str, type[errors.WindlassError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.WindlassError)
}
_FORBIDDEN, _NO_QUESTION = 403, 422
_NO_DELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
_UNNAMED_TRANSIENT = (429, 500, 502, 503, 504)
"""Of answers that are not ours: a proxy's, while the server behind it is away."""

_decoders = {verb: Decoder[Any](request.response_type()) for verb, request in REQUESTS.items()}
_wake = Decoder[Wake](Wake)


def _not_ours(record: logging.LogRecord) -> bool:
    """A line in the log for each verb would bury all others; what the program itself asks stays in it."""
    return not (isinstance(record.args, tuple) and any("/store/" in str(one) for one in record.args[1:2]))


logging.getLogger("httpx2").addFilter(_not_ours)


class Line:
    """Asks verbs of a server."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = _checked_url(url)
        self.key = _checked_key(key)
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}

    async def ask(self, request: Request[T]) -> T:
        """Send a request and decode the response. Raises what the store raised."""
        response = await self.send(request)
        try:
            decoded: T = _decoders[request.verb].decode(response)
        except msgspec.DecodeError as error:
            raise errors.StoreUnavailable(f"{self.url} answered what no windlass answers: {error}") from error
        return decoded

    async def send(self, request: Request[Any]) -> bytes:
        """Send a request; return the response as JSON."""
        response = await self._post(request.verb, encode(request))
        if response.status_code == httpx2.codes.OK:
            return bytes(response.content)
        raise self._meaning(response)

    async def may(self, verb: str) -> bool:
        """Whether the key allows a verb. Asks with a body that is no question: nothing is done."""
        response = await self._post(verb, b"null")
        if response.status_code in (_FORBIDDEN, _NO_QUESTION):
            return response.status_code == _NO_QUESTION
        raise self._meaning(response)

    async def _post(self, verb: str, body: bytes) -> httpx2.Response:
        headers = {"content-type": "application/json"}
        try:
            return await self._client().post(f"/store/{verb}", content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise errors.StoreUnavailable(f"{self.url} did not answer: {type(error).__name__}") from error

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Hints as they come, until the line breaks."""
        patience = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=SILENCE_SECONDS)
        try:
            async with self._client().stream(
                "GET", "/store/wakes", params=[("queue", queue) for queue in queues], timeout=patience
            ) as response:
                if response.status_code != httpx2.codes.OK:
                    await response.aread()
                    raise self._meaning(response)
                async for line in response.aiter_lines():
                    if line.strip():
                        yield _wake.decode(line.encode())
        except httpx2.HTTPError as error:
            raise errors.StoreUnavailable(f"the line to {self.url} broke: {type(error).__name__}") from error

    async def close(self) -> None:
        """Let go of the connections: of this loop, and of others that still run."""
        here = asyncio.get_running_loop()
        clients, self._clients = self._clients, {}
        for loop, client in clients.items():
            if loop is here:
                await client.aclose()
            elif loop.is_running():
                elsewhere = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(elsewhere), FAREWELL_SECONDS)

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            self._clients = {one: kept for one, kept in self._clients.items() if not one.is_closed()}
            headers = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
            client = self._clients[loop] = httpx2.AsyncClient(
                base_url=self.url,
                headers=headers,
                timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
                follow_redirects=False,
                trust_env=False,
                # A request's head and body are two writes: the second must not wait for the first's receipt.
                transport=httpx2.AsyncHTTPTransport(verify=_trusted(), socket_options=[_NO_DELAY]),
            )
        return client

    def _meaning(self, response: httpx2.Response) -> errors.WindlassError:
        """The error that a problem stands for."""
        status = response.status_code
        transient = status in _UNNAMED_TRANSIENT
        failed = errors.StoreUnavailable if transient else errors.StoreError
        try:
            problem: dict[str, Any] = msgspec.json.decode(response.content)
            code, detail = str(problem["code"]), str(problem["detail"])
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            hint = "" if transient else "; is this the address of a `windlass serve`?"
            return failed(f"{self.url} answered {status}, not as windlass does{hint}")
        if status == httpx2.codes.UNAUTHORIZED:
            return errors.StoreError(f"{self.url} {self._refusal()}")
        kind = _KINDS.get(code)
        if kind is None:
            return failed(f"{self.url}: {detail}")
        if issubclass(kind, errors.DuplicateTask | errors.IdempotencyConflict):
            return kind(detail, standing=str(problem.get("standing", "")))
        return kind(detail)

    def _refusal(self) -> str:
        """Why it lets nobody in, and what to do."""
        if self.key is None:
            return "asks for a key: put one that `windlass keys create` made there into WINDLASS_KEY"
        return "does not know the key in WINDLASS_KEY: it is another server's, expired or revoked"


@cache
def _trusted() -> ssl.SSLContext:
    """Whom to trust, for all clients: it takes 30 ms to read, which no loop should stand still for again."""
    return httpx2.create_ssl_context()


def _checked_url(url: str) -> str:
    """The URL of a server: no key and no question in it, as both would end in logs."""
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise errors.InvalidOption(f"the URL of the store cannot be read: {error}") from None
    if not parts.host:
        raise errors.InvalidOption("the URL of a store over HTTP names a host, as in http://127.0.0.1:8765")
    if parts.userinfo or parts.query or parts.fragment:
        raise errors.InvalidOption(
            "the URL of a store over HTTP has neither user nor query: the key goes into WINDLASS_KEY"
        )
    return url.rstrip("/")


def _checked_key(key: str | None) -> str | None:
    """A key as it can be sent; an empty one says nothing."""
    if not key:
        return None
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise errors.InvalidOption(
            "what is in WINDLASS_KEY is no key: keys read wl_…, without spaces or line ends"
        )
    return key
