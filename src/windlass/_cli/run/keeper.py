"""`windlass keeper`: keep house, where no worker does."""

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING

import click

from ..._worker.stop_signals import stopped_by_signals
from ...config import LOG_FORMATS, LOG_LEVELS
from ..command import Asked, Command, pass_asked
from .logs import set_up_by

if TYPE_CHECKING:
    from ...app import App

logger = logging.getLogger("windlass.keeper")


@click.command("keeper", cls=Command)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log from this level on.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Lines for people, or JSON.")
@pass_asked
def keeper(asked: Asked, /, *, log_level: str | None, log_format: str | None) -> None:
    """Keep house until told to stop: fire schedules, promote, rescue, prune, alert.

    Every worker and `windlass serve` does so by itself; of all keepers the store lets one lead.
    """
    asked.flags |= {"log_level": log_level, "log_format": log_format}
    set_up_by(asked.settings)

    async def work(app: "App") -> None:
        await app.open()
        keeping = asyncio.ensure_future(app.keeper(name=f"{socket.gethostname()}-{os.getpid()}").run())
        logger.info("keeping house for %s", app.place)
        with stopped_by_signals(asyncio.get_running_loop(), keeping.cancel):
            await asyncio.wait([keeping])
        if not keeping.cancelled():
            keeping.result()
        logger.info("the keeper has stopped")

    asked.run_anywhere(work, long=True)
