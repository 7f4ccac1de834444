"""The messages in one direction of a Postgres connection, as far as a proxy must tell them apart."""

import struct
from dataclasses import dataclass
from typing import Literal

QUERY, EXECUTE = b"Q", b"E"  # from the client
COMMAND_COMPLETE, ERROR, READY = b"C", b"E", b"Z"  # from the server
UNTYPED = b""
"""What a client says before it has started up, and the server's answer to that."""

HEADER = struct.Struct("!xi")
LENGTH_AND_CODE = struct.Struct("!ii")
ASKS_FOR_ENCRYPTION = {80877103, 80877104}  # SSL, GSS


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its kind, and all of its bytes."""

    kind: bytes
    whole: bytes

    @property
    def tag(self) -> str:
        """Of a COMMAND_COMPLETE: what was done, and to how many rows, as in `INSERT 0 1`."""
        return self.whole[5:-1].decode()

    @property
    def ends_transaction(self) -> bool:
        """Of a READY: whether no transaction is open."""
        return self.whole[5:6] == b"I"


class Messages:
    """Cuts what arrives into messages; a part of one waits for the rest of it."""

    def __init__(self, side: Literal["client", "server"]) -> None:
        self._rest = bytearray()
        self._is_starting = side == "client"
        self._answers = 0  # of a single byte, to requests for encryption

    def expect_answer(self) -> None:
        self._answers += 1

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now."""
        self._rest += data
        found = []
        start = 0
        while (end := self._end_of_message(start)) is not None:
            found.append(self._take(start, end))
            start = end
        del self._rest[:start]
        return found

    def _end_of_message(self, start: int) -> int | None:
        """`None` while it has not all arrived."""
        size = len(self._rest) - start
        if self._answers:
            return start + 1 if size else None
        if size < 5:
            return None
        if self._is_starting:
            end = start + LENGTH_AND_CODE.unpack_from(self._rest, start)[0] if size >= 8 else None
        else:
            end = start + 1 + HEADER.unpack_from(self._rest, start)[0]
        return end if end is not None and end <= len(self._rest) else None

    def _take(self, start: int, end: int) -> Message:
        whole = bytes(self._rest[start:end])
        if self._answers:
            self._answers -= 1
        elif self._is_starting:
            self._is_starting = asks_for_encryption(whole)
        else:
            return Message(whole[:1], whole)
        return Message(UNTYPED, whole)


def asks_for_encryption(whole: bytes) -> bool:
    """Whether an untyped message is answered with one byte, after which the client starts up once more."""
    return len(whole) == LENGTH_AND_CODE.size and LENGTH_AND_CODE.unpack(whole)[1] in ASKS_FOR_ENCRYPTION
