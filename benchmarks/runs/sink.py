"""A sink for webhooks and e-mails: it answers at once and keeps nothing."""

import asyncio
import sys
from typing import Any, cast

from benchmarks.runs import probe


class HttpSink(asyncio.Protocol):
    """Answers every request with 204 and closes the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, complete, body = self._received.partition(b"\r\n\r\n")
        if not complete:
            return
        _, _, length = head.lower().partition(b"content-length:")
        if len(body) >= int(length.split(b"\r\n")[0] or 0):
            self._transport.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            self._transport.close()


class SmtpSink(asyncio.Protocol):
    """Accepts every message."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received, self._end = b"", b"\r\n"
        self._transport.write(b"220 sink\r\n")

    def data_received(self, data: bytes) -> None:
        self._received += data
        while True:
            line, complete, self._received = self._received.partition(self._end)
            if not complete:
                self._received = line
                return
            self._end = b"\r\n.\r\n" if line.upper() == b"DATA" and self._end == b"\r\n" else b"\r\n"
            self._transport.write(b"354 go on\r\n" if len(self._end) > 2 else b"250 fine\r\n")


def serve() -> dict[str, Any]:
    """Print the ports for HTTP and SMTP, and serve until the standard input ends."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(kind, "127.0.0.1", 0, backlog=4096) for kind in (HttpSink, SmtpSink)
        ]
        print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
        await asyncio.to_thread(sys.stdin.read)

    probe.looped(run())
    return {}


if __name__ == "__main__":
    serve()
