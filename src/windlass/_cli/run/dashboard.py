"""`windlass dashboard`: the dashboard of a store, without a worker, keeper or API for programs."""

from typing import Any

import click

from ..command import Cli, Command, pass_cli
from .logs import log_options, set_up_logging
from .serve import dashboard_options, http_options, http_server, processes_option, run_server


@click.command("dashboard", cls=Command)
@http_options
@processes_option
@dashboard_options
@log_options
@pass_cli
def dashboard(cli: Cli, /, *, host: str, port: int, processes: int, insecure: bool, **options: Any) -> None:
    """Serve the dashboard of a store until stopped.

    Its address is logged at the start. It runs no worker and no keeper, and of the API it serves what only
    reads; people act on the dashboard, unless it is --read-only. If there are API keys (`windlass keys
    create`), people sign in with one; without keys it listens on this machine only.
    """
    http_server()
    set_up_logging(cli)
    from .site import server_options

    chosen = server_options(host, insecure=insecure, options=options, reads_only=True)
    run_server(cli, port, processes, chosen, keeper=False, create=False)
