"""Several server processes for one address: start, watch and stop them, replace those that die or stall.

All accept from one listening socket: a process that is stalled takes no new connections. See
docs/decisions/0019-server-processes.md.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from ...errors import Refused
from .control import READY, STOP, STOP_NOW

logger = logging.getLogger("windlass.http")

STALL_SECONDS = 5
"""Time without a sign of life after which a process is killed. Well below a lease."""

START_SECONDS = 60
STOP_SECONDS = 20
_STOP_NOW_SECONDS = 3.0
_LONGEST_PAUSE = 10.0
_STEADY_SECONDS = 30.0  # a process that ran for so long is restarted at once


def restart_pause(failures: int) -> float:
    """Return the seconds to wait before a process is started again that failed so many times in a row."""
    return 0.0 if failures <= 1 else min(0.25 * 2.0**failures, _LONGEST_PAUSE)


class Supervisor:
    """Runs `number` server processes.

    Each runs `command` with the descriptor of its control connection as the last argument, inherits
    `descriptors`, and is sent its `settings` as one line.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        settings: Callable[[int], bytes],
        listener: socket.socket,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._number = number
        self._command = command
        self._settings = settings
        self._listener = listener
        self._descriptors = (listener.fileno(), *descriptors)
        self._children: dict[int, _Child] = {}
        self._stopping = asyncio.Event()
        self._ready: set[int] = set()
        self._all_ready = asyncio.Event()

    def stop(self) -> None:
        """Let all processes finish their running requests; the second call does not wait for those."""
        order = STOP_NOW if self._stopping.is_set() else STOP
        self._stopping.set()
        self._listener.close()
        for child in self._children.values():
            child.order(order)
            if order == STOP_NOW:
                asyncio.get_running_loop().call_later(_STOP_NOW_SECONDS, child.kill)

    async def run(self, started: Callable[[], None]) -> None:
        """Run until stopped; `started` is called once, when all processes accept connections.

        Raises Refused if one of them ends before.
        """
        running = [asyncio.ensure_future(self._keep_running(number)) for number in range(1, self._number + 1)]
        ready = asyncio.ensure_future(self._all_ready.wait())
        try:
            await asyncio.wait([ready, *running], return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                started()
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            for one in done:
                one.result()
        finally:
            ready.cancel()
            for one in running:
                one.cancel()
            for child in self._children.values():
                child.kill()
            await asyncio.wait([ready, *running])

    async def _keep_running(self, number: int) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while not self._stopping.is_set():
            began = loop.time()
            child = self._children[number] = await self._start(number)
            try:
                reason = await child.watch(lambda: self._is_ready(number))
            finally:
                del self._children[number]
                await child.end()
            if self._stopping.is_set():
                return
            if not self._all_ready.is_set():
                raise Refused(f"server process {number} {reason} before it was ready; its log says why")
            failures = 1 if loop.time() - began > _STEADY_SECONDS else failures + 1
            pause = restart_pause(failures)
            logger.warning("server process %d %s; restarting it in %g s", number, reason, pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _start(self, number: int) -> "_Child":
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal must reach the supervisor only
                pass_fds=(theirs.fileno(), *self._descriptors),
            )
        child = _Child(process, *await asyncio.open_connection(sock=ours))
        child.order(self._settings(number))
        if self._stopping.is_set():
            child.order(STOP)
        return child

    def _is_ready(self, number: int) -> None:
        self._ready.add(number)
        if len(self._ready) == self._number:
            self._all_ready.set()


class _Child:
    """One server process."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    def order(self, order: bytes) -> None:
        """Send settings or an order."""
        self._writer.write(order)

    async def watch(self, ready: Callable[[], None]) -> str:
        """Return how the process ended; kill it if it gives no sign of life.

        Silence is counted in turns of our own loop: if that stood still itself, the signs wait in the buffer.
        """
        silent, longest = 0, START_SECONDS
        while True:
            try:
                signs = await asyncio.wait_for(self._reader.read(4096), 1.0)
            except TimeoutError:
                silent += 1
                if silent >= longest:
                    self.kill()
                    return f"(pid {self._process.pid}) gave no sign of life for {silent} s and was killed"
                continue
            except ConnectionError:
                signs = b""
            if not signs:
                return await self._how_it_ended()
            silent = 0
            if READY in signs:
                longest = STALL_SECONDS
                ready()

    async def _how_it_ended(self) -> str:
        try:
            code = await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self.kill()
            return f"(pid {self._process.pid}) closed its connection and was killed"
        if code < 0:
            return f"(pid {self._process.pid}) was killed by {signal.Signals(-code).name}"
        return f"(pid {self._process.pid}) exited with status {code}"

    def kill(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """Kill the process unless it has ended, and free what belongs to it."""
        if self._process.returncode is None:
            self.kill()
        await self._process.wait()
        self._writer.close()
