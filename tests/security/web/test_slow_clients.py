"""Slow and half-closed connections to `windlass serve --processes 2`: nobody else waits. (P7)"""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from time import monotonic

import pytest

from tests.examples import FULL
from tests.system.server_processes import ServerProcesses
from windlass import App

pytestmark = [pytest.mark.system, pytest.mark.more, pytest.mark.timeout(180)]

HOLDERS = 130 if FULL else 20  # of each kind
MANY = 1_500  # of one kind
BOUND = 5.0  # seconds for one answer, on a busy machine
TASK = b'{"type":"held"}'
HOST = b"host: 127.0.0.1\r\n"
HEAD = b"POST /tasks HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"
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


def slowest(server: ServerProcesses, number: int, key: str = "") -> float:
    """The longest time that one of these requests took, each on a connection of its own."""
    took = 0.0
    for at in range(number):
        client, began = server.client(key), monotonic()
        request = ("GET", "/healthz", None) if at % 2 else ("POST", "/tasks", '{"type":"served"}')
        status, _ = client(*request)
        took = max(took, monotonic() - began)
        assert status in (200, 201)
        client.close()
    return took


class Held(ExitStack):
    """Connections that send slowly."""

    def __init__(self, server: ServerProcesses) -> None:
        super().__init__()
        self.server = server
        self.lines: list[tuple[socket.socket, bytes]] = []

    def hold(self, name: str, number: int, key: str = "") -> None:
        """Open so many of one kind, with this key where one is needed."""
        first, more = KINDS[name]
        signed = first.replace(HOST, HOST + f"authorization: Bearer {key}\r\n".encode()) if key else first
        for _ in range(number):
            line = self.enter_context(closing(dialled(self.server)))
            line.sendall(signed)
            self.lines.append((line, more))
            if name in HALF_CLOSED and len(self.lines) % 2:
                line.shutdown(socket.SHUT_WR)

    def slowest(self, key: str = "") -> float:
        """The longest time that others' requests took while they send on."""
        took = 0.0
        for _ in range(10):
            for line, more in self.lines:
                with suppress(OSError):
                    line.sendall(more)
            took = max(took, slowest(self.server, 4, key))
        status, body = self.server.client(key)("GET", "/tasks?type=held", None)
        assert (status, body) == (200, b'{"items":[],"cursor":null}')
        return took


def test_nobody_waits_for_the_slow(server: ServerProcesses) -> None:
    assert slowest(server, 10) < BOUND  # as it is without them
    with Held(server) as held:
        for kind in KINDS:
            held.hold(kind, HOLDERS)
        assert len(held.lines) >= (1_400 if FULL else 200)
        assert held.slowest() < BOUND


@pytest.mark.full
@pytest.mark.parametrize("kind", ["silent", "a head", "a body", "a login"])
def test_nobody_waits_for_more_than_there_is_room_for(kind: str, tmp_path: Path) -> None:
    """A server process has 1,000 requests in progress at most: those that send slowly make room."""
    keys = App(f"sqlite:///{tmp_path}/windlass.db").sync_operator.keys
    attacker, other = (keys.create(name, scopes=["enqueue", "read"]).text for name in ("attacker", "other"))
    with ServerProcesses(tmp_path, 1, "--no-keeper") as server, Held(server) as held:
        held.hold(kind, MANY, attacker)
        took = held.slowest(other)

    sys.stdout.write(f"\n{MANY:,} x {kind}: slowest answer {took:.2f} s\n")
    assert took < BOUND
