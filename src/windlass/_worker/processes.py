"""Child processes for handlers that must be killable. One child's death costs one attempt, not the worker."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from .._model.outcome import Failed, Outcome, Snoozed
from .child_messages import MAX_FRAME, Failure, Hello, Order, Result, Told, pack, receive
from .run import Run


class ChildDied(Exception):
    """The child process ended before it answered."""


class ChildFailed(Exception):
    """The handler failed in the child; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("the handler failed in its child process")
        self.outcome = outcome


_CHILD = "windlass._worker.child"
_LAST_BREATH = 1.0  # seconds for a child that no longer talks to be gone by itself


class Processes:
    """At most `number` children, each running one task at a time and kept for the next."""

    def __init__(self, number: int) -> None:
        self._free = asyncio.Semaphore(number)
        self._idle: list[_Child] = []

    async def run(self, run: Run, payload: bytes) -> bytes | None:
        """The JSON of the handler's result, from a child. Stopping the run kills the child."""
        waiting = asyncio.current_task()
        assert waiting is not None
        run.enforce = waiting.cancel
        async with self._free:
            child = await self._take()
            run.enforce = child.kill
            run.begin()
            try:
                result = await child.ask(run, payload)
            except ChildFailed:
                await self._keep(child)
                raise
            except BaseException:
                await child.end()
                raise
            await self._keep(child)
            return result

    async def close(self) -> None:
        """End the idle children."""
        while self._idle:
            await self._idle.pop().end()

    async def _take(self) -> "_Child":
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
        return await _Child.start()

    async def _keep(self, child: "_Child") -> None:
        """For the next task, unless it was killed while it gave its answer."""
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
        """Whether it can take a task. The loop hears of a death late, so this asks the system."""
        if self._killed or self._process.returncode is not None:
            return False
        try:
            died = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return died is None

    @classmethod
    async def start(cls) -> "_Child":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _CHILD,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_FRAME,
            start_new_session=True,  # the terminal's Ctrl-C is for the worker, which will decide
        )
        child = cls(process)
        try:
            await child._send(pack(Hello(path=tuple(sys.path), script=_script())))
        except BaseException:
            await child.end()
            raise
        return child

    async def ask(self, run: Run, payload: bytes) -> bytes | None:
        handler = run.declared.handler
        order = Order(
            module=handler.__module__, qualname=handler.__qualname__, task=run.task, payload=payload
        )
        try:
            await self._send(pack(order))
            while True:
                match await receive(self._stdout):
                    case Told(progress=progress):
                        run.report(run, progress)
                    case Result(result=result):
                        return result
                    case Failure() as failure:
                        raise ChildFailed(_outcome(failure))
                    case other:
                        raise ChildDied(
                            f"the child process said {type(other).__name__}, which makes no sense"
                        )
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChildDied(await self._epitaph()) from None

    def kill(self) -> None:
        """Kill it, and what it started in turn."""
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

    async def _epitaph(self) -> str:
        try:
            code = await asyncio.wait_for(self._process.wait(), _LAST_BREATH)
        except TimeoutError:  # it closed its pipes and went on
            await self.end()
            return "the child process stopped talking and was killed"
        if code < 0:
            with suppress(ValueError):
                return f"the child process was ended by {signal.Signals(-code).name}"
        return f"the child process exited with status {code}"


def _outcome(failure: Failure) -> Outcome:
    if failure.error is None:
        return Snoozed(failure.snooze or timedelta(0))
    return Failed(error=failure.error, fatal=failure.fatal, retry_after=failure.retry_after)


def is_child() -> bool:
    """Whether this very process is such a child."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _CHILD


def _script() -> str | None:
    """The file of the program itself, if that is where handlers may be declared."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return None if file is None or getattr(main, "__spec__", None) is not None else str(Path(file).resolve())
