"""Child processes for handlers that must be killable, and the messages between a worker and a child.

A child that dies costs one attempt, not the worker. Messages are length-prefixed JSON, never pickle.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec
from msgspec import Struct

from .._model.outcome import Failed, Outcome, Snoozed
from .._model.task import Error, Progress, Task
from .run import Run

_CHILD = "windlass._worker.child"
_EXIT_TIMEOUT = 1.0  # seconds for a child that has closed its pipes to exit
MAX_FRAME = 1 << 26  # bytes
_HEADER = 4


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """How to find the program: the import path and, if the program is a script, its file."""

    path: tuple[str, ...]
    script: str | None


class RunRequest(Struct, frozen=True, kw_only=True, tag="run"):
    """Run a task with this payload."""

    module: str
    qualname: str
    task: Task
    payload: bytes


class ProgressUpdate(Struct, frozen=True, kw_only=True, tag="progress"):
    """Progress of the running task."""

    progress: Progress


class Result(Struct, frozen=True, kw_only=True, tag="result"):
    """The handler returned."""

    result: bytes | None


class Failure(Struct, frozen=True, kw_only=True, tag="failure"):
    """The handler raised an error or asked to be snoozed."""

    error: Error | None = None
    fatal: bool = False
    retry_after: timedelta | None = None
    snooze: timedelta | None = None


Message: TypeAlias = Hello | RunRequest | ProgressUpdate | Result | Failure

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def pack(message: Message) -> bytes:
    """Encode a message for the pipe."""
    data = _encoder.encode(message)
    return len(data).to_bytes(_HEADER, "big") + data


async def receive(stream: asyncio.StreamReader) -> Message:
    """Read the next message. Raises IncompleteReadError when the other side has closed the pipe."""
    size = int.from_bytes(await stream.readexactly(_HEADER), "big")
    return _decoder.decode(await stream.readexactly(size))


def receive_blocking(stream: BinaryIO) -> Message | None:
    """Read the next message; None when the other side has closed the pipe."""
    header = stream.read(_HEADER)
    if len(header) < _HEADER:
        return None
    size = int.from_bytes(header, "big")
    data = stream.read(size)
    return _decoder.decode(data) if len(data) == size else None


class ChildDied(Exception):
    """The child process ended without a result."""


class ChildFailed(Exception):
    """The handler raised in the child process."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("the handler raised in its child process")
        self.outcome = outcome


class Processes:
    """A pool of at most `number` child processes; each runs one task at a time."""

    def __init__(self, number: int) -> None:
        self._free = asyncio.Semaphore(number)
        self._idle: list[_Child] = []

    async def run(self, run: Run, payload: bytes) -> bytes | None:
        """Run the handler in a child; return its result as JSON. Interrupting the run kills the child."""
        waiting = asyncio.current_task()
        assert waiting is not None
        run.interrupt = waiting.cancel
        async with self._free:
            child = await self._take()
            run.interrupt = child.kill
            run.start()
            try:
                result = await child.run(run, payload)
            except ChildFailed:
                await self._put_back(child)
                raise
            except BaseException:
                await child.end()
                raise
            await self._put_back(child)
            return result

    async def close(self) -> None:
        """Kill the idle children."""
        while self._idle:
            await self._idle.pop().end()

    async def _take(self) -> "_Child":
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
        return await _Child.start()

    async def _put_back(self, child: "_Child") -> None:
        """Keep a child for the next task, unless it was killed while it sent its result."""
        if child.is_alive:
            self._idle.append(child)
        else:
            await child.end()


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._killed = False

    @property
    def is_alive(self) -> bool:
        """Whether it can run a task. Asks the system, as asyncio notices an exit late."""
        if self._killed or self._process.returncode is not None:
            return False
        try:
            exited = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return exited is None

    @classmethod
    async def start(cls) -> "_Child":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _CHILD,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_FRAME,
            start_new_session=True,  # Ctrl-C in the terminal must reach the worker only
        )
        child = cls(process)
        try:
            await child._send(pack(Hello(path=tuple(sys.path), script=_script())))
        except BaseException:
            await child.end()
            raise
        return child

    async def run(self, run: Run, payload: bytes) -> bytes | None:
        handler = run.spec.handler
        request = RunRequest(
            module=handler.__module__, qualname=handler.__qualname__, task=run.task, payload=payload
        )
        try:
            await self._send(pack(request))
            while True:
                match await receive(self._stdout):
                    case ProgressUpdate(progress=progress):
                        run.report(run, progress)
                    case Result(result=result):
                        return result
                    case Failure() as failure:
                        raise ChildFailed(_outcome(failure))
                    case other:
                        raise ChildDied(f"unexpected message from the child process: {type(other).__name__}")
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChildDied(await self._exit_reason()) from None

    def kill(self) -> None:
        """Kill the child and the processes it started."""
        self._killed = True
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        self.kill()
        await self._process.wait()

    async def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    @property
    def _stdout(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    async def _exit_reason(self) -> str:
        try:
            code = await asyncio.wait_for(self._process.wait(), _EXIT_TIMEOUT)
        except TimeoutError:  # it closed its pipes but still runs
            await self.end()
            return "the child process closed its pipes and was killed"
        if code < 0:
            with suppress(ValueError):
                return f"the child process was killed by {signal.Signals(-code).name}"
        return f"the child process exited with status {code}"


def _outcome(failure: Failure) -> Outcome:
    if failure.error is None:
        return Snoozed(failure.snooze or timedelta(0))
    return Failed(error=failure.error, fatal=failure.fatal, retry_after=failure.retry_after)


def is_child() -> bool:
    """Whether this process is a child process of a worker."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _CHILD


def _script() -> str | None:
    """Return the file of the program if it was started as a script, where handlers may be declared."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return None if file is None or getattr(main, "__spec__", None) is not None else str(Path(file).resolve())
