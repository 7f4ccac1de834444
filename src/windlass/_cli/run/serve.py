"""`windlass serve`: the store over HTTP, for workers and programs elsewhere. (I2, I4)"""

import asyncio
import logging
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import click

from ..._worker.stop_signals import stopped_by_signals
from ...config import LOG_FORMATS, LOG_LEVELS
from ...errors import InvalidOption
from ..command import Asked, Command, pass_asked
from .logs import set_up_by

if TYPE_CHECKING:
    from ...app import App

logger = logging.getLogger("windlass.http")

HOST, PORT = "127.0.0.1", 8765


@click.command("serve", cls=Command)
@click.option("--host", default=HOST, show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="And on which port."
)
@click.option("--insecure", is_flag=True, help="Ask nobody for a key, wherever it listens.")
@click.option("--no-keeper", is_flag=True, help="Leave the housekeeping to workers.")
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    help="Let pages from there use it in a browser: https://… (repeatable; default: none).",
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log from this level on.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Lines for people, or JSON.")
@pass_asked
def serve(
    asked: Asked,
    /,
    *,
    host: str,
    port: int,
    insecure: bool,
    no_keeper: bool,
    origins: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Serve the store over HTTP until told to stop: `--store http://…` is then a store.

    If there are keys (`windlass keys create`) every request needs one. Without keys it listens on this
    machine alone, and asks for none until the first one is made. It keeps house as well, as workers do.
    """
    http = serving()
    asked.flags |= {"log_level": log_level, "log_format": log_format}
    set_up_by(asked.settings)

    async def work(app: "App") -> None:
        await app.open()
        server = await http.prepared(app, host=host, insecure=insecure, keeper=not no_keeper, origins=origins)
        with (
            http.listening(host, port) as listener,
            stopped_by_signals(asyncio.get_running_loop(), server.stop),
        ):
            logger.info("%s", http.told(host, port, app.place, app.operator.promise))
            await server.run(listener)
        logger.info("the server has stopped")

    asked.run_anywhere(work, long=True)


def serving() -> ModuleType:
    """What serves, if it is installed."""
    try:
        return import_module("windlass._http.server.run")
    except ModuleNotFoundError as missing:
        raise InvalidOption("serving HTTP takes more: pip install 'windlass[http]'") from missing
