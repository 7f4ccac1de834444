"""Child processes for handlers that must be killable, and the messages between a worker and a child.

A child that dies costs one attempt, not the worker. Messages are length-prefixed JSON, never pickle.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec
from msgspec import Struct

from .._handler.names import module_name
from .._model.brief import Brief
from .._model.outcome import Crashed, Failed, Outcome, Returned, Snoozed
from .._model.task import Error, Progress, Task
from .._policy.input.quote import counted
from ..errors import InvalidOption
from .child_logs import LogReceiver, levels
from .run import Run

logger = logging.getLogger("windlass.worker")

_CHILD = "windlass._worker.child"
_EXIT_TIMEOUT = 1.0  # seconds for a child that has closed its pipes to exit
MAX_FRAME = 1 << 26  # bytes
_HEADER = 4
_STDIN, _STDOUT = 0, 1


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """How to find the program: the import path and, if it is a script, its file. And levels of loggers.

    `imports`: modules to import before those of handlers.
    """

    path: tuple[str, ...]
    script: str | None
    levels: dict[str, int]
    imports: tuple[str, ...] = ()


class RunRequest(Brief, Struct, frozen=True, kw_only=True, tag="run"):
    """Run a task with this payload."""

    module: str
    qualname: str
    task: Task
    payload: bytes
    secrets: tuple[str, ...] = ()  # in the results that the payload has, to be masked in errors


class Leave(Struct, frozen=True, kw_only=True, tag="leave"):
    """Leave the lifespans within this time, then exit."""

    seconds: float


class Started(Struct, frozen=True, kw_only=True, tag="started"):
    """The handler is run now: the lifespans of the program have started, or it has none.

    Sent for the first task of a child, and whenever lifespans were started.
    """


class ProgressUpdate(Struct, frozen=True, kw_only=True, tag="progress"):
    """Progress of the running task."""

    progress: Progress


class NotesUpdate(Brief, Struct, frozen=True, kw_only=True, tag="notes"):
    """All notes of the running task so far."""

    notes: dict[str, Any]


ToChild: TypeAlias = Hello | RunRequest | Leave
FromChild: TypeAlias = Started | ProgressUpdate | NotesUpdate | Returned | Failed | Snoozed

_to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_from_child: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


def pack(message: ToChild | FromChild) -> bytes:
    data = msgspec.json.encode(message)
    return len(data).to_bytes(_HEADER, "big") + data


def receive_blocking(stream: BinaryIO) -> ToChild | None:
    """Read the next message in the child; None when the worker has closed the pipe."""
    header = stream.read(_HEADER)
    if len(header) < _HEADER:
        return None
    size = int.from_bytes(header, "big")
    data = stream.read(size)
    return _to_child.decode(data) if len(data) == size else None


class Processes:
    """A pool of at most `number` child processes; each runs one task at a time, lifespans once."""

    def __init__(self, number: int, *, has_lifespans: bool) -> None:
        self._has_lifespans = has_lifespans
        self._free = asyncio.Semaphore(number)
        self._idle: list[_Child] = []

    async def run(self, run: Run, payload: bytes) -> Outcome:
        """Run the handler in a child; Crashed if the child dies. Interrupting the run kills it."""
        run.interrupt = run.slot.cancel
        async with self._free:
            child = await self._take()
            run.interrupt = child.kill
            if child.has_started:
                run.start()
            try:
                outcome = await child.run(run, payload)
            except BaseException:
                await child.end()
                raise
            finally:
                run.interrupt = run.slot.cancel
            if child.is_alive:  # else it died, or was killed while it sent its outcome
                self._idle.append(child)
            else:
                await child.end()
            return outcome

    async def close(self, seconds: float, cut: asyncio.Event) -> None:
        """End the idle children; those that are in lifespans get this time, until `cut`, to leave them."""
        leaving = asyncio.gather(*(child.leave(seconds) for child in self._idle))
        cutting = asyncio.ensure_future(cut.wait())
        waiting: list[asyncio.Future[Any]] = [leaving, cutting]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not leaving.done():
            left = [child for child in self._idle if child.is_alive]
            text = "killing %s during the end of the lifespans: cut off by a second signal"
            logger.error(text, counted(len(left), "child process", "child processes"))
            for child in left:
                child.kill()
        cutting.cancel()
        await leaving
        self._idle.clear()

    async def _take(self) -> "_Child":
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
        return await _Child.start(has_lifespans=self._has_lifespans)


class _Child:
    def __init__(
        self, process: asyncio.subprocess.Process, logs: LogReceiver, *, has_lifespans: bool
    ) -> None:
        self._has_lifespans = has_lifespans
        self.has_started = not has_lifespans  # it has nothing to start, or has done so
        self._process = process
        self._logs = logs
        self._killed = False

    @property
    def is_alive(self) -> bool:
        """Whether it can run a task. Asks the system, as asyncio notices an exit late."""
        if self._killed or self._process.returncode is not None:
            return False
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    @classmethod
    async def start(cls, *, has_lifespans: bool) -> "_Child":
        logs = LogReceiver()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _CHILD,
                str(logs.fd),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_FRAME,
                start_new_session=True,  # Ctrl-C in the terminal must reach the worker only
                pass_fds=(logs.fd,),
            )
        except BaseException:
            logs.close()
            raise
        logs.start()
        child = cls(process, logs, has_lifespans=has_lifespans)
        try:
            await child._send(_hello())
        except BaseException:
            await child.end()
            raise
        return child

    async def run(self, run: Run, payload: bytes) -> Outcome:
        handler = run.spec.handler
        request = RunRequest(
            module=_module_in_child(handler),
            qualname=handler.__qualname__,
            task=run.task,
            payload=payload,
            secrets=run.secrets,
        )
        try:
            await self._send(request)
            while isinstance(message := await self._receive(), Started | ProgressUpdate | NotesUpdate):
                if isinstance(message, Started):
                    self.has_started = True
                    if self._has_lifespans:
                        run.start()
                elif isinstance(message, NotesUpdate):
                    _keep_notes(run, message.notes)
                else:
                    run.report_progress(message.progress)
        except (asyncio.IncompleteReadError, ConnectionError):
            reason = await self._exit_reason()
            if run.stop:
                return run.stop_outcome()
            return Crashed(error=Error(type="ProcessDied", message=reason))
        return message

    def kill(self) -> None:
        """Kill the child and the processes it started."""
        self._killed = True
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._close_pipes()

    def _close_pipes(self) -> None:
        """Close our ends of the pipes: a process that left the session may hold the others open for ever."""
        transport: asyncio.SubprocessTransport = self._process._transport  # type: ignore[attr-defined]  # noqa: SLF001
        to_child: Any = transport.get_pipe_transport(_STDIN)
        if not to_child.is_closing():
            to_child.abort()  # `close` would wait until all is written
        from_child: Any = transport.get_pipe_transport(_STDOUT)
        from_child.close()

    async def leave(self, seconds: float) -> None:
        """End it; if it is in lifespans, ask it to leave them first, and wait for this time."""
        if self._has_lifespans and self.has_started and self.is_alive:
            with suppress(ConnectionError, TimeoutError):
                await self._send(Leave(seconds=seconds))
                async with asyncio.timeout(seconds + _EXIT_TIMEOUT):
                    await self._process.wait()
        await self.end()

    async def end(self) -> None:
        self.kill()
        await self._process.wait()
        await asyncio.to_thread(self._logs.close)

    async def _send(self, message: ToChild) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(pack(message))
        await self._process.stdin.drain()

    async def _receive(self) -> FromChild:
        stream = self._process.stdout
        assert stream is not None
        size = int.from_bytes(await stream.readexactly(_HEADER), "big")
        return _from_child.decode(await stream.readexactly(size))

    async def _exit_reason(self) -> str:
        try:
            async with asyncio.timeout(_EXIT_TIMEOUT):
                code = await self._process.wait()
        except TimeoutError:  # it closed its pipes but still runs
            await self.end()
            return "the child process closed its pipes and was killed"
        if code < 0:
            with suppress(ValueError):
                return f"the child process was killed by {signal.Signals(-code).name}"
        return f"the child process exited with status {code}"


def _keep_notes(run: Run, notes: dict[str, Any]) -> None:
    """Keep the notes of a child; drop them if they are too long together with those of arounds."""
    try:
        run.keep_notes(notes)
    except InvalidOption as error:
        logger.warning("dropped the notes that the handler of task %s made: %s", run.task.id, error)


child_imports: list[str] = []
"""Modules that child processes import first, to set up a framework."""


def _hello() -> Hello:
    return Hello(path=tuple(sys.path), script=_script(), levels=levels(), imports=tuple(child_imports))


def _module_in_child(handler: Callable[..., Any]) -> str:
    """Name the module of a handler for a child, which runs a script again and imports all else."""
    return handler.__module__ if _script() is not None else module_name(handler) or handler.__module__


def is_child() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _CHILD


def _script() -> str | None:
    """Return the file of the program if it was started as a script, where handlers may be declared."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return None if file is None or getattr(main, "__spec__", None) is not None else str(Path(file).resolve())
