"""`windlass owner`: own a store on NATS, or stand by; and the owner that workers and servers start."""

import asyncio
import logging
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import click
from msgspec import json

from ..._supervisor.supervisor import Kind, Supervisor
from ..._worker.process import stopped_by_signals
from ...errors import InvalidOption
from ..command import Cli, Command, pass_cli, setting_option
from ..options import stacked
from .health import Health, health_options, serve_health
from .logs import log_options, set_up_logging

logger = logging.getLogger("windlass.owner")

ENOUGH = 3
"""So many processes own the store or stand by, of all workers and servers that could."""

_STALL_SECONDS = 30.0


def _no_owner(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        context.ensure_object(Cli).flags["owner"] = False


_folder_option = setting_option(
    "--owner-folder",
    metavar="DIR",
    help="Directory for the copy of a store on NATS  [default: a temporary one]",
)
owner_options = stacked(
    click.option(
        "--no-owner",
        is_flag=True,
        expose_value=False,
        callback=_no_owner,
        help="Do not own a store on NATS, nor stand by; another process must",
    ),
    _folder_option,
)
"""The options of a command that starts an owner by itself."""


@click.command("owner", cls=Command)
@_folder_option
@health_options
@log_options
@pass_cli
def owner(cli: Cli) -> None:
    """Own a store on NATS, or stand by, until stopped.

    One process owns the store and carries out all requests; the others follow its log, and one of them takes
    over when it dies. Run at least two, on different machines. SIGTERM hands the store over. Workers and
    servers start an owner by themselves, unless three run already.
    """
    set_up_logging(cli)
    _require_needed(cli)
    health = Health()
    serve_health(cli.settings, health)

    async def work() -> None:
        with owner_folder(cli.settings.owner_folder) as folder:
            made = cli.app.owner(folder)

            def stop() -> None:
                health.stopping()
                made.stop()

            logger.info("owner %s starts for %s", made.name, cli.app.store_name)
            health.started()
            with stopped_by_signals(asyncio.get_running_loop(), stop):
                await health.report_while(made.run(), cli.settings.health_file)
        logger.info("owner stopped")

    cli.run(work, create=True, long=True)


@contextmanager
def owner_folder(chosen: str | None) -> Iterator[Path]:
    """Yield the directory for copies of the store, by default a temporary one of this user."""
    if chosen is None:
        private = _private_folder()
        if private is not None:
            yield private
            return
        with TemporaryDirectory(prefix="windlass-owner-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    folder = Path(chosen).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption(f"cannot use {chosen} for a copy of the store: {error.strerror}") from error
    yield folder


def _private_folder() -> Path | None:
    """Return a directory that later owners find again, to delete copies that killed ones have left.

    None if it is not this user's alone: anybody could have created it under that name.
    """
    if sys.platform == "win32":
        return None
    folder = Path(gettempdir()) / f"windlass-owner-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return folder if is_private else None


@asynccontextmanager
async def standing_by(cli: Cli) -> AsyncIterator[None]:
    """Start an owner process for this time, one for each shard that needs one, unless it is forbidden.

    It outlives what it serves: tasks that finish at the end are settled before it hands the store over.
    """
    urls = cli.app.owned_urls
    if not urls or cli.settings.owner is False:
        yield
        return
    supervisor = Supervisor(len(urls), _kind(cli, urls))
    started = asyncio.Event()
    running = asyncio.ensure_future(supervisor.run(started.set))
    running.add_done_callback(lambda _: started.set())
    try:
        await started.wait()
        if running.done():
            running.result()
        yield
    finally:
        supervisor.stop()
        await asyncio.wait([running])


def _kind(cli: Cli, urls: Sequence[str]) -> Kind:
    from .owner_process import COMMAND, OwnerProcessSettings

    def settings(number: int, seat: int) -> bytes:  # noqa: ARG001  seats are for what is replaced
        chosen = OwnerProcessSettings(
            path=tuple(sys.path),
            flags={**_plain(cli.flags), "store": urls[number - 1]},
            file=None if cli.file is None else str(cli.file),
        )
        return json.encode(chosen) + b"\n"

    return Kind(noun="owner", command=COMMAND, settings=settings, logger=logger, stall_seconds=_STALL_SECONDS)


def _plain(flags: dict[str, Any]) -> dict[str, Any]:
    """Leave out what another process does not need: it only opens the store."""
    kept: Callable[[str], bool] = {"store", "app", "owner_folder", "log_level", "log_format"}.__contains__
    return {name: value for name, value in flags.items() if kept(name)}


def _require_needed(cli: Cli) -> None:
    urls = cli.app.owned_urls
    if not urls:
        raise InvalidOption(
            f"the store {cli.app.store_name} needs no owner: only a store on NATS is owned by a process; "
            f"choose one with --store nats://host:4222/name"
        )
    if cli.app.store_name.startswith("shards://"):
        raise InvalidOption(
            f"each shard of {cli.app.store_name} on NATS has owners of its own: run `windlass owner --store "
            f"URL` with the URL of the shard"
        )
