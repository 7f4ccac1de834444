"""`windlass keeper`: run a keeper without a worker."""

import asyncio
import logging
import os
import socket

import click

from ..._worker.process import stopped_by_signals
from ..command import Cli, Command, pass_cli
from .archive import archive_option
from .logs import log_options, set_up_logging

logger = logging.getLogger("windlass.keeper")


@click.command("keeper", cls=Command)
@archive_option
@log_options
@pass_cli
def keeper(cli: Cli) -> None:
    """Run only the keeper until stopped.

    It fires schedules, promotes, rescues, prunes and sends alerts. Workers and `windlass serve` run a keeper
    as well; of all keepers of a store one leads.
    """
    set_up_logging(cli)

    async def work() -> None:
        app = cli.app
        await app.open()
        running = asyncio.ensure_future(app.keeper(name=f"{socket.gethostname()}-{os.getpid()}").run())
        logger.info("keeper started for %s", app.store_name)
        with stopped_by_signals(asyncio.get_running_loop(), running.cancel):
            await asyncio.wait([running])
        if not running.cancelled():
            running.result()
        logger.info("keeper stopped")

    cli.run(work, create=True, long=True)
