"""`windlass keeper`: run a keeper without a worker."""

import asyncio
import logging
import os
import socket

import click

from ..._store.outage import Outage
from ..._worker.process import stopped_by_signals
from ..command import Cli, Command, pass_cli
from .archive import archive_option
from .health import Health, health_options, serve_health
from .logs import log_options, set_up_logging

logger = logging.getLogger("windlass.keeper")


@click.command("keeper", cls=Command)
@health_options
@archive_option
@log_options
@pass_cli
def keeper(cli: Cli) -> None:
    """Run only the keeper until stopped.

    It fires schedules, promotes, rescues, prunes and sends alerts. Workers and `windlass serve` run a keeper
    as well; of all keepers of a store one leads.
    """
    set_up_logging(cli)
    outage = Outage()
    health = Health(lambda: not outage.is_open)
    serve_health(cli.settings, health)

    async def work() -> None:
        app = cli.app
        await app.open()
        name = f"{socket.gethostname()}-{os.getpid()}"
        running = asyncio.ensure_future(app.keeper(name=name, outage=outage).run())

        def stop() -> None:
            health.stopping()
            running.cancel()

        async def until_stopped() -> None:
            await asyncio.wait([running])

        logger.info("keeper started for %s", app.store_name)
        health.started()
        with stopped_by_signals(asyncio.get_running_loop(), stop):
            await health.report_while(until_stopped(), cli.settings.health_file)
        if not running.cancelled():
            running.result()
        logger.info("keeper stopped")

    cli.run(work, create=True, long=True)
