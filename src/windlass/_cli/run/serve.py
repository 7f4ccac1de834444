"""`windlass serve`: the store and the API over HTTP."""

import asyncio
import logging
from importlib import import_module
from types import ModuleType
from typing import Any

import click

from ..._worker.process import stopped_by_signals
from ...errors import InvalidOption
from ..command import Cli, Command, pass_cli
from ..options import stacked
from .archive import archive_option
from .logs import log_options, set_up_logging

logger = logging.getLogger("windlass.http")

server_options = stacked(
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on"),
    click.option(
        "--port", type=click.IntRange(1, 65535), default=8765, show_default=True, help="Port to listen on"
    ),
    click.option("--insecure", is_flag=True, help="Require no API key, whatever the address"),
    click.option(
        "--max-connections",
        type=click.IntRange(1, 100_000),
        default=1_000,
        show_default=True,
        metavar="N",
        help="At most N requests in progress; health checks, heartbeats and settlements are served beyond",
    ),
    click.option(
        "--max-connections-per-address",
        type=click.IntRange(1, 100_000),
        metavar="N",
        help="At most N connections from one client address; a proxy is one  [default: no limit]",
    ),
    click.option(
        "--max-streams-per-key",
        type=click.IntRange(1, 100_000),
        metavar="N",
        help="At most N streams and long polls with one API key  [default: a quarter of the connections]",
    ),
)
"""The options of a command that listens for HTTP. Those named --max-… are passed on to the server."""


@click.command("serve", cls=Command)
@server_options
@click.option("--no-keeper", is_flag=True, help="Do not run a keeper; another process must")
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Web origin that may use the API from a browser, https://… (repeatable)  [default: none]",
)
@archive_option
@log_options
@pass_cli
def serve(
    cli: Cli,
    /,
    *,
    host: str,
    port: int,
    insecure: bool,
    no_keeper: bool,
    origins: tuple[str, ...],
    **limits: Any,
) -> None:
    """Serve the store and the API over HTTP until stopped.

    Programs use it as a store: `--store http://…`. If there are API keys (`windlass keys create`), every
    request needs one. Without keys it listens on this machine only, until the first key is made. It also
    runs a keeper, as workers do.
    """
    http = http_server()
    set_up_logging(cli)

    async def work() -> None:
        app = cli.app
        await app.open()
        server = await http.new_server(
            app,
            host=host,
            insecure=insecure,
            keeper=not no_keeper,
            origins=origins,
            limits=http.ServerLimits(**limits),
        )
        with http.listen(host, port) as listener, stopped_by_signals(asyncio.get_running_loop(), server.stop):
            logger.info("%s", http.start_line(host, port, app.store_name, app.operator.promise))
            await server.run(listener)
        logger.info("the server has stopped")

    cli.run(work, create=True, long=True)


def http_server() -> ModuleType:
    """Import the HTTP server; raises InvalidOption if its extra is not installed."""
    try:
        return import_module("windlass._http.server.run")
    except ModuleNotFoundError as missing:
        raise InvalidOption("serving HTTP needs an extra: pip install 'windlass[http]'") from missing
