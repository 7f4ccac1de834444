"""One connection through the proxy: a client's half, a server's half, and what goes wrong between them."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.servers.messages import (
    COMMAND_COMPLETE,
    ERROR,
    EXECUTE,
    QUERY,
    READY,
    Message,
    Messages,
    asks_for_encryption,
)

RESET = struct.pack("ii", 1, 0)  # as SO_LINGER: what has not been sent is dropped, and the other side is told
Strike = Callable[[], bool]
"""Asked each time that the fault could happen: now?"""


def never() -> bool:
    return False


@dataclass(slots=True)
class Faults:
    """What is to go wrong on all links of a proxy, and what has. Belongs to the proxy's thread."""

    is_frozen: bool = False
    strikes_before: Strike = never
    strikes_after_commit: Strike = never
    is_commit: Callable[[str], bool] = bool
    cuts: Counter[str] = field(default_factory=Counter)


class Link:
    """A client, and the connection to the server that was made for it."""

    def __init__(self, faults: Faults, links: "set[Link]", target: tuple[str, int]) -> None:
        """Joins `links`, and leaves them when it has ended."""
        self.faults = faults
        self.client = Half(self.from_client, self.end)
        self.server = Half(self.from_server, self.end)
        self._links = links
        self._sent = Messages("client")
        self._answered = Messages("server")
        self._held: list[bytes] = []
        self._has_committed = False
        self._connecting = asyncio.ensure_future(self._connect(target))
        links.add(self)

    async def _connect(self, target: tuple[str, int]) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, *target)
        except OSError:
            self._reset()  # as a proxy does whose server is down
            return
        self.client.peer, self.server.peer = self.server, self.client
        self.let_flow()

    def let_flow(self) -> None:
        """Read from both halves, or from neither, as the faults have it."""
        for half in (self.client, self.server):
            half.hold("frozen", holds=self.faults.is_frozen)
            half.hold("alone", holds=half.peer is None)

    def from_client(self, data: bytes) -> None:
        passed = []
        for message in self._sent.feed(data):
            if message.kind in (QUERY, EXECUTE) and self.faults.strikes_before():
                self.cut("before")
                return
            if not message.kind and asks_for_encryption(message.whole):
                self._answered.expect_answer()
            passed.append(message.whole)
        self.server.send(b"".join(passed))

    def from_server(self, data: bytes) -> None:
        passed: list[bytes] = []
        for message in self._answered.feed(data):
            self._held.append(message.whole)
            if message.kind == READY:
                if self._ends_commit(message) and self.faults.strikes_after_commit():
                    self.cut("after_commit")
                    return
                self._has_committed = False
            self._note(message)
            if not self._has_committed:
                passed += self._held
                self._held.clear()
        self.client.send(b"".join(passed))

    def _ends_commit(self, ready: Message) -> bool:
        return self._has_committed and ready.ends_transaction

    def _note(self, message: Message) -> None:
        """Remember whether the reply that is passing speaks of what a commit may have made final."""
        if message.kind == ERROR:  # undoes what was done before it in the same transaction
            self._has_committed = False
        elif message.kind == COMMAND_COMPLETE and self.faults.strikes_after_commit is not never:
            self._has_committed |= self.faults.is_commit(message.tag)

    def cut(self, why: str) -> None:
        """Reset both halves, and count it."""
        self.faults.cuts[why] += 1
        self._reset()

    def _reset(self) -> None:
        self._connecting.cancel()
        for half in (self.client, self.server):
            half.reset()
        self._links.discard(self)

    def end(self) -> None:
        """One half has ended: let the other send what it still has, and end too."""
        if self.server.transport is None:
            self._connecting.cancel()
        for half in (self.client, self.server):
            half.close()
        self._links.discard(self)


class Half(asyncio.Protocol):
    """One of the two sockets of a link."""

    def __init__(self, receive: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: Half | None = None
        self._is_cut = False  # perhaps before there was a transport
        self._receive = receive
        self._end = end
        self._held_by = {"alone"}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._is_cut:
            self.reset()
        self._mind_holds()

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        """We cannot get rid of what the peer reads: it shall read less."""
        if self.peer is not None:
            self.peer.hold("full", holds=True)

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.hold("full", holds=False)

    def hold(self, reason: str, *, holds: bool) -> None:
        """Read nothing as long as there is a reason not to."""
        if holds:
            self._held_by.add(reason)
        else:
            self._held_by.discard(reason)
        self._mind_holds()

    def _mind_holds(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._held_by:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def send(self, data: bytes) -> None:
        if data and self.transport is not None:
            self.transport.write(data)

    def close(self) -> None:
        self._is_cut = True
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        self._is_cut = True
        if self.transport is None:
            return
        if not self.transport.is_closing():
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()
