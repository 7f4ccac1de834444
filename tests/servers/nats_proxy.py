"""A proxy between a client and a NATS server that loses, repeats and delays messages; the connection stays.

with NatsProxy.start(server.port) as proxy:
    proxy.disturb(Disturbance(lost=0.1, doubled=0.1, late=0.2), subject=".log")
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

from tests.servers.lossy import Direction, Lossy

SENT = (b"PUB", b"HPUB")
RECEIVED = (b"MSG", b"HMSG")
INBOX = b"_INBOX."


@dataclass(frozen=True)
class Disturbance:
    """How likely each fault is for a message, and the longest delay in seconds."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    delay: float = 0.5


PEACE = Disturbance()


class NatsProxy(Lossy):
    """A way to a NATS server. Disturbs what clients publish to chosen subjects, and the replies they get."""

    def __init__(self, target: int, seed: int) -> None:
        """Use `NatsProxy.start`."""
        super().__init__(target, seed)
        self._disturbance, self._subject = PEACE, b""

    def disturb(self, how: Disturbance, *, subject: str = "") -> Self:
        """Disturb what is published to subjects that end with this, and all replies to requests."""
        self._disturbance, self._subject = how, subject.encode()
        return self

    def spare(self) -> None:
        super().spare()
        self._disturbance = PEACE

    async def _read(self, source: asyncio.StreamReader) -> AsyncIterator[bytes]:
        while line := await source.readline():
            words = line.split()
            if words and words[0] in SENT + RECEIVED:
                line += await source.readexactly(int(words[-1]) + 2)
            yield line

    def _send(self, direction: Direction, data: bytes, sink: asyncio.StreamWriter) -> None:
        how = self._disturbance
        if how is PEACE or not self._is_meant(data):
            sink.write(data)
            return
        draw = self._random.random()
        if draw < how.lost:
            self.lost[f"{direction} lost"] += 1
        elif draw < how.lost + how.doubled:
            self.lost[f"{direction} doubled"] += 1
            sink.write(data + data)
        elif draw < how.lost + how.doubled + how.late:
            self.lost[f"{direction} late"] += 1
            self._loop.call_later(self._random.uniform(0, how.delay), _write, sink, data)
        else:
            sink.write(data)

    def _is_meant(self, data: bytes) -> bool:
        verb, subject, *_ = [*data[:512].split(b" ", 2), b""]
        if verb in SENT:
            return subject.endswith(self._subject)
        return verb in RECEIVED and subject.startswith(INBOX)


def _write(sink: asyncio.StreamWriter, data: bytes) -> None:
    if not sink.is_closing():
        sink.write(data)
