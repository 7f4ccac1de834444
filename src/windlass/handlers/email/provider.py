"""What sends a message: the interface of SMTP, SendGrid and Mailgun."""

from typing import Protocol

from msgspec import Struct, field

from ...signals import Signal
from .message import Mail


class Sent(Struct, frozen=True, kw_only=True):
    """Who got a message: addresses that were accepted, those refused for good and those to be tried again.

    `response`: the last line of the provider.
    """

    accepted: tuple[str, ...]
    refused: dict[str, str] = field(default_factory=dict)
    deferred: dict[str, str] = field(default_factory=dict)
    response: str = ""


class NotSent(Exception):
    """The message was certainly not sent; `signal` says whether to try again."""

    def __init__(self, signal: Signal) -> None:
        super().__init__(str(signal))
        self.signal = signal


class Provider(Protocol):
    """Sends messages. Anything but NotSent that it raises leaves open whether the message was sent."""

    async def send(self, mail: Mail, recipients: tuple[str, ...]) -> Sent:
        """Send to these recipients of the message."""

    async def was_sent(self, mail: Mail) -> bool | None:
        """Return whether an earlier attempt has sent it; None if the provider cannot tell."""

    async def close(self) -> None:
        """Close idle connections."""
