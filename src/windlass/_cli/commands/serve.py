"""`windlass serve`: the store over HTTP, for workers and programs elsewhere. (I2, I4)"""

import logging
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import click

from ...config import LOG_FORMATS, LOG_LEVELS
from ...errors import InvalidOption
from ..asked import Asked, Command, pass_asked
from ..logs import set_up
from ..terminal import stderr

if TYPE_CHECKING:
    from ...app import App

logger = logging.getLogger("windlass.http")

PORT = 8765


@click.command("serve", cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="And on which port."
)
@click.option("--insecure", is_flag=True, help="Ask nobody for a key, wherever it listens.")
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
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Serve the store over HTTP until told to stop: `--store http://…` is then a store.

    If there are keys (`windlass keys create`) every request needs one. Without keys it listens on this
    machine alone, and asks for none until the first one is made.
    """
    serving = _serving()
    asked.flags |= {"log_level": log_level, "log_format": log_format}
    settings = asked.settings
    set_up(settings.log_level, settings.log_format, colour=stderr().is_terminal and not stderr().no_color)
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno > logging.INFO)

    async def work(app: "App") -> None:
        await app.open()
        has_keys = bool(await app.operator.keys.list())
        serving.check_safe(host, has_keys=has_keys, insecure=insecure)
        with serving.listening(host, port) as listener:
            server = serving.Server(app, open_to_all=insecure, open_until_keys=not has_keys)
            logger.info("%s", serving.told(host, port, app.place, app.operator.promise))
            if insecure or not has_keys:
                why = "--insecure" if has_keys else "there are no keys"
                logger.warning("%s: whoever can reach it may do everything", why)
            await server.until_told(listener)
        logger.info("the server has stopped")

    asked.run_anywhere(work)


def _serving() -> ModuleType:
    try:
        return import_module("windlass._http.serving")
    except ModuleNotFoundError as missing:
        raise InvalidOption("serving HTTP takes more: pip install 'windlass[http]'") from missing
