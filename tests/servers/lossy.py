"""A TCP proxy that loses requests or replies, and the connection with them, whatever protocol they are in.

with Lossy.start(server.port) as proxy:
    proxy.lose_replies(0.1)   # of ten requests one is carried out, and the client does not learn it
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import Literal, Self

Direction = Literal["request", "reply"]

CALL_SECONDS = 10.0
_CHUNK = 1 << 20


class Lossy:
    """A way to a port of this machine. Its methods may be called from any thread."""

    def __init__(self, target: int, seed: int) -> None:
        """Use `Lossy.start`."""
        self._target = target
        self._random = Random(seed)
        self._chances: dict[Direction, float] = {}
        self._ways: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lossy", daemon=True)
        self._listener: asyncio.Server | None = None
        self.port = 0
        self.lost: Counter[str] = Counter()

    @classmethod
    def start(cls, target: int, *, seed: int = 0) -> Self:
        """A proxy to that port."""
        proxy = cls(target, seed)
        proxy._thread.start()
        asyncio.run_coroutine_threadsafe(proxy._listen(), proxy._loop).result(CALL_SECONDS)
        return proxy

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    def lose_requests(self, chance: float) -> None:
        """Lose some requests before they reach the server."""
        self._chances["request"] = chance

    def lose_replies(self, chance: float) -> None:
        """Lose some replies after the server has carried out what was asked."""
        self._chances["reply"] = chance

    def spare(self) -> None:
        """Lose nothing any more."""
        self._chances.clear()

    def cut(self) -> None:
        """Reset all connections."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(CALL_SECONDS)

    async def _cut(self) -> None:
        for way in list(self._ways):
            way.transport.abort()

    def block(self) -> None:
        """Let no byte pass; connections stay as they are, and new ones wait."""
        self._loop.call_soon_threadsafe(self._is_open.clear)

    def unblock(self) -> None:
        """Let everything pass that has waited, and what follows."""
        self._loop.call_soon_threadsafe(self._is_open.set)

    def close(self) -> None:
        self.unblock()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(CALL_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    async def _close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        await self._cut()
        if self._pumps:
            await asyncio.wait(self._pumps)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, back}
        self._ways |= ends
        directions: list[tuple[Direction, asyncio.StreamReader, asyncio.StreamWriter]]
        directions = [("request", reader, back), ("reply", there, writer)]
        for direction, source, sink in directions:
            pump = self._loop.create_task(self._pump(direction, source, sink, ends))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        direction: Direction,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
    ) -> None:
        try:
            async for data in self._read(source):
                await self._is_open.wait()
                if self._random.random() < self._chances.get(direction, 0.0):
                    self.lost[direction] += 1
                    break
                self._send(direction, data, sink)
                await sink.drain()
        except (OSError, EOFError):
            pass
        finally:
            for end in ends:
                end.transport.abort()
            self._ways -= ends

    async def _read(self, source: asyncio.StreamReader) -> AsyncIterator[bytes]:
        while data := await source.read(_CHUNK):
            yield data

    def _send(self, direction: Direction, data: bytes, sink: asyncio.StreamWriter) -> None:
        sink.write(data)
