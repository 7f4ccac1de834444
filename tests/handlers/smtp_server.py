"""An SMTP server on the loopback that keeps what it accepts, and answers as it is told."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from typing import Any, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session


@dataclass(frozen=True)
class Accepted:
    """A message that the server has taken: its envelope, and its bytes."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes

    @property
    def message(self) -> EmailMessage:
        return cast(EmailMessage, message_from_bytes(self.content, policy=POLICY))


@dataclass
class MailServer:
    """Answers to the commands MAIL, DATA and RCPT (by address); the first of each is used up."""

    port: int = 0
    accepted: list[Accepted] = field(default_factory=list)
    connections: int = 0
    mail: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    rcpt: dict[str, list[str]] = field(default_factory=dict)
    before_reply: Callable[[], Any] = lambda: None  # after a message was accepted
    cut: int = 0  # so many replies to DATA are lost: the connection is closed instead

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def handle_MAIL(  # noqa: N802  the names that aiosmtpd calls
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.mail:
            return self.mail.pop(0)
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.rcpt.get(address):
            return self.rcpt[address].pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        if self.data:
            return self.data.pop(0)
        content = envelope.content if isinstance(envelope.content, bytes) else b""
        self.accepted.append(Accepted(envelope.mail_from or "", tuple(envelope.rcpt_tos), content))
        await asyncio.get_running_loop().run_in_executor(None, self.before_reply)
        if self.cut:
            self.cut -= 1
            assert server.transport is not None
            server.transport.close()
        return "250 OK queued"


def authenticator(
    server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
) -> AuthResult:
    return AuthResult(success=(data.login, data.password) == (b"shop", b"rope"), handled=False)


@contextmanager
def mail_server(*, tls: ssl.SSLContext | None = None, login: bool = False) -> Iterator[MailServer]:
    """A server at work, in a thread with a loop of its own, until the end of the block."""
    state = MailServer()
    loop = asyncio.new_event_loop()

    def made() -> SMTP:
        state.connections += 1
        return SMTP(
            state,
            loop=loop,
            hostname="mail.example",
            tls_context=tls,
            authenticator=authenticator,
            auth_required=login,
            auth_require_tls=tls is not None,
        )

    async def close(server: asyncio.Server) -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await loop.shutdown_default_executor()

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(loop.create_server(made, "127.0.0.1", 0), loop).result(10)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        asyncio.run_coroutine_threadsafe(close(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
