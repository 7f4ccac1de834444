"""The owner that a worker or server starts: `python -m windlass._cli.run.owner_process`."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..._model.brief import Brief
from ..._supervisor.control import Control
from ..command import Cli
from ..exit_codes import guarded
from .logs import ProcessFilter, set_up_logging
from .owner import ENOUGH, owner_folder

COMMAND = (sys.executable, "-m", "windlass._cli.run.owner_process")


class OwnerProcessSettings(Brief, Struct, frozen=True, kw_only=True):
    """What an owner process is told by its supervisor."""

    path: tuple[str, ...]  # of imports
    flags: dict[str, Any]
    file: str | None


def main() -> None:
    """Own the store or stand by until the supervisor says stop, or dies."""
    control = Control(int(sys.argv.pop()))
    settings = msgspec.json.decode(control.receive_settings(), type=OwnerProcessSettings)
    sys.path[:] = settings.path
    # A service manager signals the whole group: this process must outlive the tasks that it settles for.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(guarded(lambda: _own(control, settings), []))


def _own(control: Control, settings: OwnerProcessSettings) -> None:
    cli = Cli()
    cli.flags, cli.file = settings.flags, None if settings.file is None else Path(settings.file)
    set_up_logging(cli, ProcessFilter("owner", 1))

    async def work() -> None:
        with owner_folder(cli.settings.owner_folder) as folder:
            made = cli.app.owner(folder, if_fewer_than=ENOUGH)
            loop = asyncio.get_running_loop()
            running = asyncio.ensure_future(made.run())

            def stop_now() -> None:
                running.cancel()

            control.start(loop, made.stop, stop_now)
            control.report_ready()
            await asyncio.wait([running])
            if not running.cancelled():
                running.result()

    cli.run(work, create=True, long=True)


if __name__ == "__main__":
    main()
