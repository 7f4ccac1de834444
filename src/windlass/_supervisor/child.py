"""One supervised process, as its supervisor sees it."""

import asyncio
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from .control import READY, REPLACE

START_SECONDS = 60
EXIT_SECONDS = 20


class Child:
    """A process that was started. `ended` is done once it is gone, with words that say how."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        seat: int,
        stall_seconds: float,
    ) -> None:
        self.seat = seat
        self.lasted = 0.0  # seconds, known when it has ended
        self._began = asyncio.get_running_loop().time()
        self.wants_replacement = asyncio.Event()
        self._process = process
        self._reader = reader
        self._writer = writer
        self._stall_seconds = stall_seconds
        self._ready = asyncio.Event()
        self.ended = asyncio.ensure_future(self._watch())

    @classmethod
    async def start(
        cls, command: Sequence[str], descriptors: Sequence[int], seat: int, stall_seconds: float
    ) -> Self:
        """Start a process with the descriptor of its control connection as the last argument."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C in the terminal must reach the supervisor only
                    pass_fds=(theirs.fileno(), *descriptors),
                )
            except BaseException:
                ours.close()
                raise
        return cls(process, *await asyncio.open_connection(sock=ours), seat, stall_seconds)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set() and not self.ended.done()

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode

    def order(self, order: bytes) -> None:
        """Send settings or an order."""
        self._writer.write(order)

    async def until_ready(self) -> bool:
        """Wait until it is ready; False if it ended before."""
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait([ready, self.ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        return self._ready.is_set()

    def kill(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _watch(self) -> str:
        """Return how the process ended, once it is gone; kill it if it gives no sign of life."""
        try:
            return await self._until_end()
        finally:
            if self._process.returncode is None:
                self.kill()
            await self._process.wait()
            self.lasted = asyncio.get_running_loop().time() - self._began
            self._writer.close()

    async def _until_end(self) -> str:
        """Silence is counted in turns of our own loop: if that stood still, the signs wait in the buffer."""
        silent, longest = 0, float(START_SECONDS)
        while True:
            try:
                async with asyncio.timeout(1.0):
                    signs = await self._reader.read(4096)
            except TimeoutError:
                silent += 1
                if silent >= longest:
                    self.kill()
                    return f"(pid {self.pid}) gave no sign of life for {silent} s and was killed"
                continue
            except ConnectionError:
                signs = b""
            if not signs:
                return await self._how_it_ended()
            silent = 0
            if READY in signs:
                longest = self._stall_seconds
                self._ready.set()
            if REPLACE in signs:
                self.wants_replacement.set()

    async def _how_it_ended(self) -> str:
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            self.kill()
            return f"(pid {self.pid}) closed its connection and was killed"
        if code < 0:
            with suppress(ValueError):  # a real-time signal has no name
                return f"(pid {self.pid}) was killed by {signal.Signals(-code).name}"
        return f"(pid {self.pid}) exited with status {code}"
