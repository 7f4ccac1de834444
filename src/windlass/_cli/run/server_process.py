"""One of the processes of `windlass serve --processes`: `python -m windlass._cli.run.server_process`."""

import asyncio
import os
import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..._http.bounds.shared_buckets import SharedBuckets
from ..._model.brief import Brief
from ..._supervisor.control import Control
from ..._worker.process import stopped_by_signals
from ..command import Cli
from ..exit_codes import guarded
from .handlers import include_handlers
from .logs import ProcessFilter, set_up_logging
from .site import ServerOptions, new_site

COMMAND = (sys.executable, "-m", "windlass._cli.run.server_process")


class ProcessSettings(Brief, Struct, frozen=True, kw_only=True):
    """What a server process is told by its supervisor."""

    number: int
    seat: int  # no other living process has it
    path: tuple[str, ...]  # of imports
    flags: dict[str, Any]
    file: str | None
    listener: int  # descriptors
    buckets: int
    metrics: str  # directory
    server: ServerOptions
    keeper: bool  # of the processes, one runs it


def main() -> None:
    """Serve until the supervisor says stop, or dies."""
    supervisor, control = os.getppid(), Control(int(sys.argv.pop()))
    settings = msgspec.json.decode(control.receive_settings(), type=ProcessSettings)
    sys.path[:] = settings.path
    if find_spec("prometheus_client"):
        from ..._observe.process_metrics import share_metrics

        share_metrics(Path(settings.metrics), settings.seat, settings.number)
    code = guarded(lambda: _serve(control, settings), [])
    if os.getppid() != supervisor:  # it has died and cannot clean up
        shutil.rmtree(settings.metrics, ignore_errors=True)
    sys.exit(code)


def _serve(control: Control, settings: ProcessSettings) -> None:
    cli = Cli()
    cli.flags, cli.file = settings.flags, None if settings.file is None else Path(settings.file)
    set_up_logging(cli, ProcessFilter("server", settings.number))

    async def work() -> None:
        app, loop = cli.app, asyncio.get_running_loop()
        include_handlers(cli)
        await app.open()
        buckets = SharedBuckets(settings.buckets)
        server = await new_site(app, settings.server, keeper=settings.keeper, buckets=buckets)

        def stop() -> None:
            if not server.is_stopping:
                server.stop()

        def stop_now() -> None:
            stop()
            server.stop()

        with socket.socket(fileno=settings.listener) as listener, stopped_by_signals(loop, stop):
            control.start(loop, stop, stop_now)
            await server.run(listener, control.report_ready, is_shared=True)

    cli.run(work, create=True, long=True)


if __name__ == "__main__":
    main()
