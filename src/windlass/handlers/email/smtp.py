"""Send by SMTP, over a few connections that are kept open for a while."""

import asyncio
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from ..._model.brief import Brief
from ...errors import InvalidOption
from ...signals import Fatal, Retry, Signal
from ..settings import required
from .message import Mail
from .provider import NotSent, Sent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiosmtplib import SMTP
    from aiosmtplib.errors import SMTPResponseException

StartTls = Literal["required", "offered", "never"]

_IDLE = 30.0  # seconds for which an unused connection is kept
_QUIT = 2.0
_UNAUTHORISED = (530, 534, 535, 538)  # the settings are wrong, not the message


class SmtpServer(Brief, Struct, frozen=True, kw_only=True):
    """A server, from smtp://user:password@host:port or smtps://…"""

    host: str
    port: int
    tls: bool
    username: str | None
    password: str | None

    @classmethod
    def parse(cls, url: str, username: str | None, password: str | None) -> "SmtpServer":
        """Parse a URL; a user name and password given apart win. Raises InvalidOption, without showing it."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidOption("smtp must be a URL such as smtp://mail.example.org:587") from None
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
            raise InvalidOption("smtp must be a URL such as smtp://mail.example.org:587 or smtps://…")
        tls = parts.scheme == "smtps"
        return cls(
            host=parts.hostname,
            port=port or (465 if tls else 587),
            tls=tls,
            username=username or (unquote(parts.username) if parts.username else None),
            password=password or (unquote(parts.password) if parts.password else None),
        )


class SmtpProvider:
    """Sends over at most `connections` at once; waits for a free one."""

    def __init__(self, server: SmtpServer, starttls: StartTls, connections: int, timeout: float) -> None:
        self._library = required("aiosmtplib", "email", "send_email over SMTP")
        self._server = server
        self._starttls = {"required": True, "offered": None, "never": False}[starttls]
        self._free = asyncio.Semaphore(connections)
        self._timeout = timeout
        self._idle: list[tuple[SMTP, float]] = []

    async def send(self, mail: Mail, recipients: tuple[str, ...]) -> Sent:
        async with self._connection() as client:
            refused, deferred = await self._envelope(client, mail, recipients)
            accepted = tuple(one for one in recipients if one not in refused and one not in deferred)
            if not accepted:
                await self._reset(client)
                reasons = "; ".join(f"{one}: {why}" for one, why in {**refused, **deferred}.items())
                raise NotSent(Retry(reasons) if deferred else Fatal(reasons))
            try:
                response = await client.data(mail.as_bytes())
            except self._library.SMTPDataError as error:
                raise NotSent(_signal(error)) from None
            return Sent(
                accepted=accepted, refused=refused, deferred=deferred, response=response.message[:300]
            )

    async def was_sent(self, mail: Mail) -> bool | None:  # noqa: ARG002  SMTP has no way to ask
        return None

    async def close(self) -> None:
        while self._idle:
            client, _ = self._idle.pop()
            if client.loop is asyncio.get_running_loop():
                await self._quit(client)

    async def _envelope(
        self, client: "SMTP", mail: Mail, recipients: tuple[str, ...]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Announce sender and recipients; return why some are refused, and why some are deferred."""
        refused: dict[str, str] = {}
        deferred: dict[str, str] = {}
        try:
            await client.mail(mail.sender.addr_spec)
            for one in recipients:
                try:
                    await client.rcpt(one)
                except self._library.SMTPRecipientRefused as error:
                    (deferred if error.code < 500 else refused)[one] = _reason(error)
        except self._library.SMTPResponseException as error:
            raise NotSent(_signal(error)) from None
        except (self._library.SMTPException, OSError) as error:
            raise NotSent(Retry(f"the connection to the mail server failed: {_name(error)}")) from None
        return refused, deferred

    @asynccontextmanager
    async def _connection(self) -> "AsyncIterator[SMTP]":
        """Lend a connection. One over which an error came is closed, unless the server reported it."""
        async with self._free:
            client = await self._idle_client() or await self._new_client()
            try:
                yield client
            except NotSent:
                self._keep(client)
                raise
            except BaseException:
                client.close()
                raise
            self._keep(client)

    def _keep(self, client: "SMTP") -> None:
        if client.is_connected:
            self._idle.append((client, monotonic()))

    async def _idle_client(self) -> "SMTP | None":
        """Return an open connection that the server still serves, if there is one."""
        while self._idle:
            client, since = self._idle.pop()
            if client.loop is not asyncio.get_running_loop():  # which was closed, and the connection with it
                continue
            if monotonic() - since < _IDLE and client.is_connected:
                with suppress(self._library.SMTPException, OSError):
                    await client.rset()
                    return client
            client.close()
        return None

    async def _new_client(self) -> "SMTP":
        server = self._server
        client: SMTP = self._library.SMTP(
            hostname=server.host,
            port=server.port,
            username=server.username,
            password=server.password,
            timeout=self._timeout,
            use_tls=server.tls,
            start_tls=False if server.tls else self._starttls,
            local_hostname="localhost",  # looking up the own name may take seconds
        )
        try:
            await client.connect()
        except self._library.SMTPResponseException as error:
            raise NotSent(Retry(f"the mail server refused the connection: {_reason(error)}")) from None
        except (self._library.SMTPException, OSError) as error:
            raise NotSent(Retry(f"no connection to the mail server: {_name(error)}")) from None
        return client

    async def _reset(self, client: "SMTP") -> None:
        with suppress(self._library.SMTPException, OSError):
            await client.rset()

    async def _quit(self, client: "SMTP") -> None:
        with suppress(self._library.SMTPException, OSError):
            await client.quit(timeout=_QUIT)
        client.close()


def _signal(error: "SMTPResponseException") -> Signal:
    transient = error.code < 500 or error.code in _UNAUTHORISED
    return (Retry if transient else Fatal)(f"the mail server responded with {_reason(error)}")


def _reason(error: "SMTPResponseException") -> str:
    return f"{error.code} {error.message}"[:300]


def _name(error: Any) -> str:
    return f"{type(error).__name__}: {error}"[:300]
