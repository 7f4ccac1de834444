"""`windlass serve`: the store and the API over HTTP."""

import asyncio
import logging
import sys
from collections.abc import Callable
from importlib import import_module
from socket import socket
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from msgspec import json

from ..._model.key import Role
from ..._policy.input.quote import quoted
from ..._worker.process import stopped_by_signals
from ...errors import InvalidOption
from ..command import Cli, Command, pass_cli
from ..options import number_option, stacked
from .archive import archive_option
from .handlers import include_handlers
from .health import Health
from .logs import log_options, set_up_logging
from .owner import owner_options, standing_by

if TYPE_CHECKING:
    from ..._http.server.run import Server
    from .site import ServerOptions

logger = logging.getLogger("windlass.http")

MAX_PROCESSES = 64

http_options = stacked(
    click.option(
        "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on"
    ),
    click.option(
        "--port",
        type=click.IntRange(1, 65535),
        default=8765,
        show_default=True,
        metavar="PORT",
        help="Port to listen on",
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
    click.option(
        "--max-queues-per-tenant",
        type=click.IntRange(1, 1_000_000),
        default=10_000,
        show_default=True,
        metavar="N",
        help="Keys bound to a tenant enqueue into at most N queues of it",
    ),
    click.option(
        "--max-types-per-tenant",
        type=click.IntRange(1, 1_000_000),
        default=10_000,
        show_default=True,
        metavar="N",
        help="Keys bound to a tenant enqueue tasks of at most N types for it",
    ),
    click.option(
        "--max-queue-type-pairs-per-tenant",
        type=click.IntRange(1, 10_000_000),
        metavar="N",
        help="Keys bound to a tenant use at most N pairs of queue and type  [default: twice the larger of "
        "the two above]",
    ),
)
"""The options of a command that listens for HTTP. Those named --max-… are passed on to the server."""


def _trace_url(_context: click.Context, _option: click.Parameter, url: str) -> str:
    if url and not (url.startswith(("https://", "http://")) and "{trace}" in url):
        raise click.BadParameter(f"{quoted(url)} is not a URL such as https://traces.example.org/{{trace}}")
    return url


dashboard_options = stacked(
    click.option("--read-only", is_flag=True, help="Let the dashboard only show, whatever the key allows"),
    click.option(
        "--trace-url",
        default="",
        metavar="URL",
        callback=_trace_url,
        help="Where traces are shown, with {trace} for the id: tasks link there  [default: none]",
    ),
    click.option(
        "--trust-user-header",
        "user_header",
        default="",
        metavar="HEADER",
        help="Header in which a proxy names the user whom it has authenticated, for the dashboard; needs "
        "--trusted-proxy  [default: none]",
    ),
    click.option(
        "--trusted-proxy",
        "trusted_proxies",
        multiple=True,
        metavar="NETWORK",
        help="Address or network of proxies whose X-Forwarded-For and user header are trusted, 10.0.0.0/8 "
        "(repeatable)",
    ),
    click.option(
        "--proxy-role",
        type=click.Choice([*Role], case_sensitive=False),
        default=Role.READ,
        help="What users whom a proxy names may do on the dashboard  [default: read]",
    ),
)
"""The options of a command that serves the dashboard."""

no_dashboard_option = click.option("--no-dashboard", is_flag=True, help="Serve the API only")
processes_option = number_option(
    "--processes",
    most=MAX_PROCESSES,
    default=1,
    help="Server processes for the address; if one dies or stalls the others go on, and it is replaced",
)


@click.command("serve", cls=Command)
@http_options
@processes_option
@click.option("--no-keeper", is_flag=True, help="Do not run a keeper; another process must")
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Web origin that may use the API from a browser, https://… (repeatable)  [default: none]",
)
@no_dashboard_option
@dashboard_options
@archive_option
@owner_options
@log_options
@pass_cli
def serve(
    cli: Cli,
    /,
    *,
    host: str,
    port: int,
    processes: int,
    insecure: bool,
    no_keeper: bool,
    origins: tuple[str, ...],
    **options: Any,
) -> None:
    """Serve the dashboard, the API and the store over HTTP.

    The dashboard is at /dashboard/. Programs use the server as a store: `--store http://…`. If there are API
    keys (`windlass keys create`), every request needs one. Without keys it listens on this machine only,
    until the first key is made. It also runs a keeper, as workers do.
    """
    http_server()
    set_up_logging(cli)
    from .site import server_options

    chosen = server_options(host, insecure=insecure, options=options, origins=origins)
    run_server(cli, port, processes, chosen, keeper=not no_keeper, create=True)


def run_server(
    cli: Cli, port: int, processes: int, options: "ServerOptions", *, keeper: bool, create: bool
) -> None:
    """Serve until stopped. `create`: make the store if there is none."""
    http = http_server()
    from .site import new_site

    async def work() -> None:
        include_handlers(cli)
        async with standing_by(cli):
            await serve_opened()
        logger.info("the server has stopped")

    async def serve_opened() -> None:
        app, host = cli.app, options["host"]
        await app.open()
        server = await new_site(app, options, keeper=keeper)
        has_dashboard = options["dashboard"] is not None
        start_line = http.start_line(
            host, port, app.store_name, app.operator.promise, dashboard=has_dashboard
        )

        def announce() -> None:
            server.announce(start_line)

        with http.listen(host, port) as listener:
            if processes > 1:
                await app.close()
                await _supervise(cli, processes, listener, options, 1 if keeper else None, announce)
            else:
                await _serve_alone(server, listener, announce)

    cli.run(work, create=create, long=True)


async def _serve_alone(server: "Server", listener: socket, announce: Callable[[], None]) -> None:
    """Serve in this process until stopped."""
    health = Health()

    def started() -> None:
        announce()
        health.started()

    def stop() -> None:
        health.stopping()
        server.stop()

    with stopped_by_signals(asyncio.get_running_loop(), stop):
        await health.report_while(server.run(listener, started))


async def _supervise(
    cli: Cli,
    number: int,
    listener: socket,
    options: "ServerOptions",
    keeper: int | None,
    announce: Callable[[], None],
) -> None:
    """Run server processes until stopped; the one with the number `keeper` runs that, too."""
    from ..._http.bounds.shared_buckets import new_bucket_file
    from ..._supervisor.supervisor import Kind, Supervisor
    from .server_process import COMMAND, ProcessSettings

    with new_bucket_file() as buckets, TemporaryDirectory(prefix="windlass-") as metrics:

        def settings(one: int, seat: int) -> bytes:
            chosen = ProcessSettings(
                number=one,
                seat=seat,
                path=tuple(sys.path),
                flags=cli.flags,
                file=None if cli.file is None else str(cli.file),
                listener=listener_number,
                buckets=buckets.fileno(),
                metrics=metrics,
                server=options,
                keeper=one == keeper,
            )
            return json.encode(chosen) + b"\n"

        listener_number = listener.fileno()
        kind = Kind(
            noun="server process",
            command=COMMAND,
            settings=settings,
            logger=logger,
            descriptors=[listener_number, buckets.fileno()],
        )
        supervisor = Supervisor(number, kind)
        health = Health(lambda: supervisor.ready == number)

        def started() -> None:
            announce()
            health.started()

        def stop() -> None:
            health.stopping()
            listener.close()
            supervisor.stop()

        with supervisor.handle_signals(stop):
            await health.report_while(supervisor.run(started))


def http_server() -> ModuleType:
    """Import the HTTP server; raises InvalidOption if its extra is not installed."""
    try:
        return import_module("windlass._http.server.run")
    except ModuleNotFoundError as missing:
        raise InvalidOption("serving HTTP needs an extra: pip install 'windlass[http]'") from missing
