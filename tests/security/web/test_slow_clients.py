"""Slow and half-closed connections to `windlass serve --processes 2`: nobody else waits. (P7)"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from time import monotonic

import pytest

from tests.examples import FULL
from tests.system.server_processes import ServerProcesses

pytestmark = [pytest.mark.system, pytest.mark.more, pytest.mark.timeout(180)]

HOLDERS = 130 if FULL else 20  # of each kind
BOUND = 5.0  # seconds for one answer, on a busy machine
TASK = b'{"type":"held"}'
HEAD = b"POST /tasks HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LOGIN = (
    b"POST /dashboard/login HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/x-www-form-urlencoded\r\n"
)
KINDS: dict[str, tuple[bytes, bytes]] = {  # sent at once, then again and again
    "silent": (b"", b""),
    "a head": (b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n", b"x: y\r\n"),
    "a head by bytes": (b"G", b"E"),
    "blank lines": (b"\r\n", b"\r\n"),
    "a body": (HEAD + b"content-length: 1000\r\n\r\n{", b" "),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "an extension": (CHUNKED + b"1;", b"a=b;"),
    "a login": (LOGIN + b"content-length: 200\r\n\r\nkey=wl_", b"a"),
    "trailers": (CHUNKED + b"f\r\n" + TASK + b"\r\n0\r\n", b"x: y\r\n"),
    "unread answers": (b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 20, b""),
    "half a pipeline": (b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nPOST /ta", b""),
}
HALF_CLOSED = ("silent", "a head", "a body", "chunks", "trailers")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcesses]:
    with ServerProcesses(tmp_path, 2, "--no-keeper") as server:
        yield server


def dialled(server: ServerProcesses) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def slowest(server: ServerProcesses, number: int) -> float:
    """The longest time that one of these requests took, each on a connection of its own."""
    took = 0.0
    for at in range(number):
        client, began = server.client(), monotonic()
        request = ("GET", "/healthz", None) if at % 2 else ("POST", "/tasks", '{"type":"served"}')
        status, _ = client(*request)
        took = max(took, monotonic() - began)
        assert status in (200, 201)
        client.close()
    return took


def test_nobody_waits_for_the_slow(server: ServerProcesses) -> None:
    assert slowest(server, 10) < BOUND  # as it is without them
    with ExitStack() as opened:
        lines: list[tuple[socket.socket, bytes]] = []
        for name, (first, more) in KINDS.items():
            for _ in range(HOLDERS):
                line = opened.enter_context(closing(dialled(server)))
                line.sendall(first)
                lines.append((line, more))
                if name in HALF_CLOSED and len(lines) % 2:
                    line.shutdown(socket.SHUT_WR)
        took = 0.0
        for _ in range(10):
            for line, more in lines:
                with suppress(OSError):
                    line.sendall(more)
            took = max(took, slowest(server, 4))
        assert len(lines) >= (1_400 if FULL else 200)
        assert took < BOUND
    status, body = server.client()("GET", "/tasks?type=held", None)
    assert (status, body) == (200, b'{"items":[],"cursor":null}')
