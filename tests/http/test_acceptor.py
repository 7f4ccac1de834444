"""Accepting connections from a shared listening socket."""

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest

from tests.loops.workers import eventually
from windlass._http.server import run as acceptor
from windlass._http.server.run import Acceptor


class Exhausted(socket.socket):
    """A listener of a process that has no descriptor left, once."""

    tried = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.tried += 1
        if self.tried == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class Accepted(asyncio.Protocol):
    """The connections of one process."""

    def __init__(self) -> None:
        self.transports: list[asyncio.BaseTransport] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transports.append(transport)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


async def test_connections_that_come_at_once_are_shared(listener: socket.socket) -> None:
    one, other = Accepted(), Accepted()
    clients = [socket.create_connection(listener.getsockname()) for _ in range(20)]
    with listener.dup() as same:
        acceptors = [Acceptor(listener, lambda: one), Acceptor(same, lambda: other)]
        await eventually(lambda: len(one.transports) + len(other.transports) == 20)
        for each in acceptors:
            each.close()
    assert min(len(one.transports), len(other.transports)) >= 5
    for client in clients:
        client.close()
    for transport in one.transports + other.transports:
        transport.close()


async def test_it_accepts_nothing_once_it_is_closed(listener: socket.socket) -> None:
    accepted = Accepted()
    Acceptor(listener, lambda: accepted).close()
    with socket.create_connection(listener.getsockname()):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.05)
        assert accepted.transports == []


async def test_it_tries_again_when_descriptors_were_exhausted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "_TROUBLE_SECONDS", 0.01)
    accepted = Accepted()
    with Exhausted() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        running = Acceptor(listener, lambda: accepted)
        with socket.create_connection(listener.getsockname()):
            await eventually(lambda: accepted.transports)
        running.close()
    assert "cannot accept connections: [Errno 24] Too many open files" in caplog.text
    accepted.transports[0].close()
