"""run_command: run a program that the settings allow, without a shell and within bounds."""

import asyncio
import errno
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta, Struct, field

from .._handler.context import INJECTED, Context
from .._model.brief import Brief
from ..errors import InvalidOption
from ..signals import Fatal
from ..tasktype import TaskType
from .responses import noted_text
from .sandbox import ended
from .settings import HandlerSettings, check_kinds

if TYPE_CHECKING:
    from ..app import App

_LAUNCHER = str(Path(__file__).with_name("command_child.py"))
_EXAMPLE = {"program": "convert", "args": ["in.wav", "out.mp3"]}


class Program(Brief, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that may be run: `argv` has its path and its first arguments, those of the task follow.

    `options`: whether arguments of tasks may begin with "-". `fatal`: exit statuses after which a retry
    cannot help.
    """

    argv: tuple[str, ...]
    options: bool = False
    fatal: tuple[int, ...] = (64, 65, 66, 77, 78)  # of sysexits.h: wrong usage, data, input, rights, settings


class CommandFailed(Exception):
    """A program that ended with another status than 0, or by a signal."""


class Commands(HandlerSettings, frozen=True):
    """Settings of run_command, which is off unless `programs` has some.

    `programs`: by name. `environment`: the variables that they get, and no others. `timeout`: seconds.
    `memory`: bytes of each process. `output`: bytes of stdout and of stderr that are kept; a program that
    writes more is killed.
    """

    table: ClassVar[str] = "commands"
    task: ClassVar[str] = "run_command"

    programs: dict[str, Program] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
    timeout: float = 60.0
    memory: int = 1 << 30
    output: int = 256 * 1024
    queue: str = "commands"
    max_attempts: int = 3

    def __post_init__(self) -> None:
        if not self.programs:
            raise InvalidOption("run_command needs `programs` that it may run")
        check_kinds("programs", self.programs, Program)
        for name, program in self.programs.items():
            if not program.argv or not Path(program.argv[0]).is_absolute():
                raise InvalidOption(f"program {name}: argv must begin with an absolute path")
            if not os.access(program.argv[0], os.X_OK):
                raise InvalidOption(f"program {name}: {program.argv[0]} cannot be run")

    def __call__(self, app: "App") -> TaskType[..., Any, "CommandResult"]:
        """Declare run_command."""
        declared: TaskType[..., Any, CommandResult] = app.task(
            name=self.task,
            queue=self.queue,
            max_attempts=self.max_attempts,
            timeout=self.timeout + 10,
            example=_EXAMPLE,
        )(_Runner(self).run_command)
        return declared


class CommandResult(Brief, Struct, frozen=True, kw_only=True):
    """The result: what the program wrote."""

    stdout: str
    stderr: str


class _Runner:
    def __init__(self, settings: Commands) -> None:
        self._settings = settings

    async def run_command(
        self,
        program: str,
        args: Annotated[list[str], Meta(max_length=100)] | None = None,
        stdin: str = "",
        *,
        ctx: Context = INJECTED,
    ) -> CommandResult:
        """Run a program that the settings name, in a folder of its own that is removed afterwards.

        `args`: its arguments, each passed as it is: there is no shell. `stdin`: what it reads.
        """
        argv = self._argv(program, args or [])
        with TemporaryDirectory(prefix="windlass-command-") as folder:
            status, stdout, stderr = await self._run(argv, stdin.encode(), folder)
        ctx.note(status=status, stderr=noted_text(stderr, 2_000))
        if status != 0:
            raise self._failure(program, status, stderr)
        return CommandResult(stdout=_text(stdout), stderr=_text(stderr))

    def _argv(self, name: str, args: list[str]) -> list[str]:
        program = self._settings.programs.get(name)
        if program is None:
            known = ", ".join(sorted(self._settings.programs))
            raise Fatal(f"there is no program {name[:100]!r}; allowed are: {known}")
        if not program.options and any(one.startswith("-") for one in args):
            raise Fatal(f"arguments of {name} must not begin with '-': its settings do not allow options")
        return [*program.argv, *args]

    def _failure(self, name: str, status: int, stderr: bytes) -> Exception:
        how = f"status {status}"
        if status < 0:
            with suppress(ValueError):
                how = signal.Signals(-status).name
        message = f"{name} ended with {how}: {_text(stderr)[-500:]}"
        is_fatal = status in self._settings.programs[name].fatal
        return Fatal(message) if is_fatal else CommandFailed(message)

    async def _run(self, argv: list[str], stdin: bytes, folder: str) -> tuple[int, bytes, bytes]:
        settings = self._settings
        child = await self._started(argv, folder)
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            async with asyncio.timeout(settings.timeout):
                _, stdout, stderr = await asyncio.gather(
                    _write(child.stdin, stdin), self._read(child.stdout), self._read(child.stderr)
                )
                return await child.wait(), stdout, stderr
        except TimeoutError:
            raise CommandFailed(f"it ran longer than {settings.timeout:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # also what it has started
            await ended(child)

    async def _started(self, argv: list[str], folder: str) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                _LAUNCHER,
                str(self._settings.memory),
                str(os.getpid()),
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._settings.environment,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise Fatal("the arguments are longer than the system allows") from None
            raise

    async def _read(self, stream: asyncio.StreamReader) -> bytes:
        received = bytearray()
        while part := await stream.read(64 * 1024):
            received += part
            if len(received) > self._settings.output:
                raise Fatal(f"it wrote more than {self._settings.output:,} bytes")
        return bytes(received)


async def _write(stream: asyncio.StreamWriter, content: bytes) -> None:
    with suppress(ConnectionError):  # it need not read
        stream.write(content)
        await stream.drain()
    stream.close()


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace").replace("\0", "\ufffd")
