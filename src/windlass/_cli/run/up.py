"""`windlass up`: the dashboard, the API, a worker and the keeper in one process."""

import asyncio
import logging
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING, Any

import click

from ..._worker.process import stopped_by_signals
from ..command import Cli, Command, pass_cli
from ..target import require_types
from ..worker.worker import app_argument, slots_option, worker_settings
from .archive import archive_option
from .handlers import handlers_option, include_handlers
from .health import Health
from .logs import log_options, set_up_logging
from .owner import owner_options, standing_by
from .serve import dashboard_options, http_options, http_server, no_dashboard_option

if TYPE_CHECKING:
    from ..._http.server.run import Server
    from ..._worker.worker import Worker

logger = logging.getLogger("windlass.up")


@click.command("up", cls=Command)
@app_argument
@http_options
@no_dashboard_option
@dashboard_options
@slots_option
@handlers_option
@archive_option
@owner_options
@log_options
@pass_cli
def up(
    cli: Cli,
    /,
    *,
    target: str | None,
    host: str,
    port: int,
    insecure: bool,
    **options: Any,
) -> None:
    """Run dashboard, API, worker and keeper in one process.

    The dashboard is at /dashboard/. For development and small deployments. The worker runs the tasks of APP
    and of ready-made handlers; without either only the dashboard, the API and the keeper run.
    """
    if target is not None:
        cli.flags["app"] = target
    settings = cli.settings
    set_up_logging(cli)
    http = http_server()
    from .site import new_site, server_options

    served = server_options(host, insecure=insecure, options=options)

    async def work() -> None:
        app = cli.app
        include_handlers(cli)
        if settings.app is not None:
            require_types(app, settings.app)
        async with standing_by(cli):
            await app.open()
            worker = app.worker(worker_settings(settings)) if app.types else None
            server = await new_site(app, served, keeper=worker is None)
            with http.listen(host, port) as listener:
                has_dashboard = served["dashboard"] is not None
                start_line = http.start_line(
                    host, port, app.store_name, app.operator.promise, dashboard=has_dashboard
                )
                await _run_together(server, worker, listener, lambda: server.announce(start_line))
        logger.info("everything has stopped")

    cli.run(work, create=True, private=True, long=True)


async def _run_together(
    server: "Server", worker: "Worker | None", listener: socket, announce: Callable[[], None]
) -> None:
    """Run server and worker until they are stopped; if one ends by itself, stop the other gracefully."""
    stopping, starting = asyncio.Event(), 1 if worker is None else 2
    health = Health(lambda: worker is None or not worker.outage.is_open)

    def stop() -> None:
        stopping.set()
        health.stopping()
        server.stop()
        if worker is not None:
            worker.stop()

    def started() -> None:
        nonlocal starting
        starting -= 1
        if not starting and not stopping.is_set():
            health.started()

    def serves() -> None:
        announce()
        started()

    async def run() -> None:
        parts = [server.run(listener, serves), *([] if worker is None else [worker.run(ready=started)])]
        running = [asyncio.ensure_future(part) for part in parts]
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            stop()
        await asyncio.wait(running)
        for part in running:
            part.result()

    with stopped_by_signals(asyncio.get_running_loop(), stop):
        await health.report_while(run())
