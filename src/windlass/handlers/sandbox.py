"""Run a function on bytes of strangers in a child process, with bounds of memory, time and output.

Parsers of images and pages may be made to use any amount of either, or to crash; then only the child ends.
It gets no environment, writes no files, and is killed when it takes too long.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from os import cpu_count, pathsep
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from .._policy.input.quote import counted
from .sandbox_child import framed, unframed

_CHILD = str(Path(__file__).with_name("sandbox_child.py"))
_MAX_NOTE = 4_096


_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()
"""At most one child for each processor runs at once: each may use much memory. By event loop."""


class Bounds(Struct, frozen=True, kw_only=True):
    """What a child may use: bytes of memory and of output, seconds of CPU time and of time in all."""

    memory: int = 512 << 20
    cpu: int = 20
    seconds: float = 60.0
    output: int = 64 << 20


class SandboxError(Exception):
    """The function refused its input, or used more than it may. Another attempt would end the same way."""


class SandboxTimeout(Exception):
    """The child did not end in time; on a machine that is less busy it may."""


async def run_in_sandbox(
    function: str, options: Any, inputs: Sequence[bytes], bounds: Bounds
) -> tuple[Any, list[bytes]]:
    """Call `path:function`, of a file that imports nothing of windlass; return its value and its outputs.

    `options` and the value are JSON. Raises SandboxError, SandboxTimeout.
    """
    request = {"function": function, "options": options, "memory": bounds.memory, "cpu": bounds.cpu}
    async with _turn():
        return await _run(framed(request, inputs), bounds)


def _turn() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        _turns[loop] = asyncio.Semaphore(cpu_count() or 1)
    return _turns[loop]


async def _run(request: bytes, bounds: Bounds) -> tuple[Any, list[bytes]]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        _CHILD,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(bounds.seconds):
            received = await _exchanged(child, request, bounds.output)
            status = await child.wait()
    except TimeoutError:
        raise SandboxTimeout(f"it took longer than {bounds.seconds:g} s") from None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await ended(child)
    if status != 0:
        raise SandboxError(_why(status, bounds))
    try:
        reply, outputs = unframed(received)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise SandboxError("the child process sent no result") from None
    if "error" in reply:
        raise SandboxError(str(reply["error"]))
    return reply["value"], outputs


async def _exchanged(child: asyncio.subprocess.Process, sent: bytes, most: int) -> bytes:
    """Send the input and return the output. Raises SandboxError if it is too large."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(ConnectionError):  # a child that has died tells by its status
        child.stdin.write(sent)
        await child.stdin.drain()
        child.stdin.close()
    received = bytearray()
    while part := await child.stdout.read(1 << 20):
        received += part
        if len(received) > most + _MAX_NOTE:
            raise SandboxError(f"the result is larger than {most:,} bytes")
    return bytes(received)


async def ended(child: asyncio.subprocess.Process) -> None:
    """Wait for a process that was killed.

    On Python 3.11 `wait` waits for the end of its pipes as well. That never comes if more is left in one than
    asyncio buffers, so they are closed.
    """
    child._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  there is no other way
    await child.wait()


def _why(status: int, bounds: Bounds) -> str:
    if -status in (signal.SIGXCPU, signal.SIGKILL):
        return f"it took more than {counted(bounds.cpu, 'second')} of CPU time, or was killed"
    try:
        return f"it crashed the child process: {signal.Signals(-status).name}"
    except ValueError:
        return f"it ended the child process with status {status}"
