"""Connections to NATS, one for each event loop. Requests to an owner are repeated until they are answered."""

import asyncio
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from importlib.util import find_spec
from random import uniform
from typing import Any

import nats.errors
from msgspec import Raw
from nats.aio.client import Client
from nats.aio.msg import Msg

from ..._model.brief import without_frames
from ...errors import InvalidOption, StoreError, StoreUnavailable, WindlassError
from ..forks import leave_in_children, never_free
from .address import Address
from .notify import WakeHub
from .stream import TRANSIENT
from .wire import Answer, Parts, decode_answers, encode_requests, in_parts, value_of

CONNECT_SECONDS = 10.0
DEADLINE_SECONDS = 30.0
"""How long a request is repeated before it fails with StoreUnavailable; an election takes up to ten."""

NOBODY_SECONDS = 15.0
"""The same if no process owns the store all the time, though the servers answer."""

CREDS_MODULE = "nkeys"
"""What nats-py needs to sign with a file of credentials."""

_REPEAT_SECONDS = 3.0  # without an answer
_PAUSE_SECONDS = 0.1  # while nobody owns the store
_MAX_TOGETHER = 500
_MAX_TOGETHER_BYTES = 500_000
_CLOSE_SECONDS = 2.0
_NO_RESPONDERS = "503"


Callback = Callable[[], Coroutine[Any, Any, None]]


class _NoTlsError(nats.errors.Error):
    """The server goes on without TLS."""


class _TlsClient(Client):
    """Sends nothing to a server without TLS; nats-py goes on in plain text there, with the password."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002  as nats-py has it
        if initial_connection and not info.get("tls_required"):
            raise _NoTlsError("the server does not require TLS, which nats+tls:// asks for")
        await super()._process_info(info, initial_connection)


def new_client(address: Address) -> Client:
    """Make a client, not connected yet."""
    return _TlsClient() if address.tls else Client()


async def connect(
    address: Address,
    *,
    client: Client | None = None,
    reconnected: Callback | None = None,
    closed: Callback | None = None,
    failed: Callable[[Exception], None] | None = None,
) -> Client:
    """Connect to one of the servers; later to another whenever the connection breaks.

    Then `reconnected` is called: messages may have got lost. `closed` is called when a server closes it for
    good, as when credentials expire, and after `close`; `failed` when a server refuses something.
    """
    seen: list[Exception] = []
    is_connecting = True

    async def note(error: Exception) -> None:
        """Keep the last error: what matters is raised to the caller, or noticed by its deadline."""
        seen[:] = [error]
        if failed is not None:
            failed(error)
        if is_connecting and _is_refusal(error):
            raise error

    if address.creds is not None:
        _check_creds(address.creds)
    client = client or new_client(address)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.connect(
                address.servers,
                user=address.user,
                password=address.password,
                user_credentials=address.creds,
                name="windlass",
                max_reconnect_attempts=-1,
                reconnect_time_wait=uniform(0.1, 0.3),  # type: ignore[arg-type]  # seconds, any number
                ping_interval=2,
                max_outstanding_pings=2,
                error_cb=note,
                reconnected_cb=reconnected,
                closed_cb=closed,
            )
    except (*TRANSIENT, ValueError) as error:
        with suppress(*TRANSIENT):
            await client.close()
        why = seen[0] if seen else error
        denied = "Authorization" in str(why)
        hint = "check user and password" if denied else "is nats-server running there, with JetStream on?"
        raise StoreUnavailable(
            f"cannot connect to NATS at {address.display}: {str(why) or repr(why)}; {hint}"
        ) from without_frames(error)
    is_connecting = False
    return client


def _is_refusal(error: Exception) -> bool:
    """Whether a server answers, but not as it should: to ask it again for ten seconds is of no use."""
    return isinstance(error, _NoTlsError) or "Authorization" in str(error)


def _check_creds(path: str) -> None:
    """Raise InvalidOption if nats-py could not use this file of credentials."""
    if find_spec(CREDS_MODULE) is None:
        raise InvalidOption("creds= in the store's URL needs nkeys: pip install 'nats-py[nkeys]'")
    if not os.access(path, os.R_OK):
        raise InvalidOption(f"cannot read {path}, the file that creds= in the store's URL names")


class Line:
    """The connection of one event loop, and the requests on it that wait for an answer."""

    def __init__(self, address: Address) -> None:
        self.client = new_client(address)
        self.hub = WakeHub(self.client, address)
        self._address = address
        self._is_closing = False
        self._inbox = address.new_inbox()
        self._waiting: dict[str, _Message] = {}
        self._next: defaultdict[str, list[tuple[Raw, asyncio.Future[Raw]]]] = defaultdict(list)

    @classmethod
    async def open(cls, address: Address) -> "Line":
        line = cls(address)
        await connect(
            address,
            client=line.client,
            reconnected=line._reconnected,
            closed=line._closed,
            failed=line._failed,
        )
        await line.client.subscribe(f"{line._inbox}.*", cb=line._hear)
        await line.client.subscribe(address.subject("new"), cb=line._hear_new)
        return line

    @property
    def is_closed(self) -> bool:
        return self.client.is_closed

    async def _reconnected(self) -> None:
        self.repeat_all()

    async def _closed(self) -> None:
        """Fail what waits, and let listeners end: the next call connects again, with new credentials."""
        if not self._is_closing:
            for message in list(self._waiting.values()):
                message.fail(_closed(self.display, self.client.last_error))
            self.hub.wake_all()

    def _failed(self, error: Exception) -> None:
        """Fail the requests at once that a missing permission of NATS prevents."""
        text = str(error).lower()
        if "permissions violation" in text:
            for message in list(self._waiting.values()):
                subject = self._address.subject("ask", message.verb)
                if f'"{subject}"'.lower() in text or f'"{self._inbox}'.lower() in text:
                    message.fail(_denied(self.display, text))

    async def ask(self, verb: str, request: Raw) -> Raw:
        """Send a request to the owner; return its response. Raises what the store raised.

        Requests of one verb that are made in the same turn of the event loop travel together.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Raw] = loop.create_future()
        if not self._next[verb]:
            loop.call_soon(self._send_next, verb)
        self._next[verb].append((request, future))
        return await future

    async def close(self) -> None:
        self._is_closing = True
        for verb in list(self._next):
            self._send_next(verb)
        for message in list(self._waiting.values()):
            message.fail(StoreError("the store was closed"))
        with suppress(*TRANSIENT):
            await self.client.close()
        await self.hub.close()

    # -- requests ------------------------------------------------------------------------------------

    def _send_next(self, verb: str) -> None:
        waiting = self._next.pop(verb, [])
        while waiting:
            size = number = 0
            while number < min(len(waiting), _MAX_TOGETHER) and (not number or size < _MAX_TOGETHER_BYTES):
                size += len(waiting[number][0])
                number += 1
            self._send(verb, waiting[:number])
            waiting = waiting[number:]

    def _send(self, verb: str, requests: list[tuple[Raw, "asyncio.Future[Raw]"]]) -> None:
        token = secrets.token_hex(8)
        data = encode_requests([request for request, _ in requests])
        message = _Message(self, token, verb, data, [future for _, future in requests])
        self._waiting[token] = message
        message.task = asyncio.create_task(message.run())

    async def publish(self, verb: str, token: str, data: bytes) -> None:
        for part, headers in in_parts(data):
            reply = f"{self._inbox}.{token}"
            await self.client.publish(self._address.subject("ask", verb), part, reply=reply, headers=headers)

    def forget(self, token: str) -> None:
        self._waiting.pop(token, None)

    async def _hear(self, msg: Msg) -> None:
        message = self._waiting.get(msg.subject.rpartition(".")[2])
        if message is not None:
            message.hear(msg)

    async def _hear_new(self, _: Msg) -> None:
        """A new owner serves: whatever the old one has not answered, it never will."""
        self.repeat_all()

    def repeat_all(self) -> None:
        for message in self._waiting.values():
            message.repeat.set()
        self.hub.wake_all()

    @property
    def display(self) -> str:
        return self._address.display


class _Message:
    """Requests of one verb that travel together."""

    def __init__(
        self, line: Line, token: str, verb: str, data: bytes, futures: "Sequence[asyncio.Future[Raw]]"
    ) -> None:
        self._line, self._token, self.verb, self._data = line, token, verb, data
        self._futures = futures
        self._parts = Parts()
        self._nobody = False  # there was no owner when it was sent last
        self.repeat = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Send it until it is answered, or the time is over, or nobody waits any more."""
        began = asyncio.get_running_loop().time()
        somebody = False
        try:
            async with asyncio.timeout(DEADLINE_SECONDS) as deadline:
                while not all(future.done() for future in self._futures):
                    self.repeat.clear()
                    with suppress(*TRANSIENT):
                        await self._line.publish(self.verb, self._token, self._data)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_REPEAT_SECONDS * uniform(0.8, 1.2)):
                            await self.repeat.wait()
                    somebody = somebody or not self._nobody
                    if self._nobody:
                        if not somebody:
                            deadline.reschedule(began + NOBODY_SECONDS)
                        self._nobody = False
                        await asyncio.sleep(_PAUSE_SECONDS * uniform(0.5, 1.5))
        except TimeoutError:
            self.fail(_timed_out(self._line.display) if somebody else _unowned(self._line.display))
        finally:
            self._line.forget(self._token)

    def hear(self, msg: Msg) -> None:
        if not msg.data and (msg.headers or {}).get("Status") == _NO_RESPONDERS:
            self._nobody = True
            self.repeat.set()
            return
        try:
            whole = self._parts.add(msg.data, msg.headers)
            if whole is None:
                return
            answers = decode_answers(whole, len(self._futures))
        except ValueError as error:
            self.fail(StoreUnavailable(f"the owner of the store sent an invalid answer: {error}"))
            return
        except StoreUnavailable as error:
            self.fail(error)
            return
        for future, answer in zip(self._futures, answers, strict=True):
            _resolve(future, answer)
        self.repeat.set()

    def fail(self, error: StoreError) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(error)
        self.repeat.set()


def _timed_out(place: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"timed out after {DEADLINE_SECONDS:.0f} s waiting for the owner of {place}: is a majority of the "
        f"NATS servers up? The request may still be carried out, and repeating it is safe"
    )


def _closed(place: str, why: Exception | None) -> StoreUnavailable:
    return StoreUnavailable(
        f"NATS at {place} closed the connection ({why}): check user, password or credentials, and the limits "
        f"of the account. The request may still be carried out, and repeating it is safe"
    )


def _denied(place: str, why: str) -> StoreError:
    return StoreError(f"the user of NATS at {place} lacks a permission ({why}): see docs/jetstream.md")


def _unowned(place: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"no process owns {place}, so nothing was carried out: start a worker, `windlass serve` or `windlass "
        f"owner` for it"
    )


def _resolve(future: "asyncio.Future[Raw]", answer: Answer) -> None:
    if future.done():
        return
    try:
        future.set_result(value_of(answer))
    except Exception as error:  # noqa: BLE001 - raised to the caller
        future.set_exception(error)


class Lines:
    """The lines of one handle, one for each event loop."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lines: dict[asyncio.AbstractEventLoop, asyncio.Task[Line]] = {}
        leave_in_children(self)

    async def line(self) -> Line:
        """Return the line of this event loop; connect on first use."""
        loop = asyncio.get_running_loop()
        opening = self._lines.get(loop)
        if opening is None or _is_over(opening):
            self._lines = {one: kept for one, kept in self._lines.items() if not one.is_closed()}
            opening = self._lines[loop] = loop.create_task(Line.open(self.address))
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Close the connections of this event loop and of others that still run."""
        lines, self._lines = self._lines, {}
        for loop, opening in lines.items():
            if loop is asyncio.get_running_loop():
                await _close(opening)
            elif loop.is_running():
                elsewhere = asyncio.run_coroutine_threadsafe(_close(opening), loop)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await asyncio.wrap_future(elsewhere)

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        never_free(self._lines)
        self._lines = {}


def _is_over(opening: "asyncio.Task[Line]") -> bool:
    """Whether it could not connect, or is connected no more and never will be."""
    if not opening.done():
        return False
    return opening.cancelled() or opening.exception() is not None or opening.result().is_closed


async def _close(opening: "asyncio.Task[Line]") -> None:
    with suppress(WindlassError, nats.errors.Error):
        await (await opening).close()
