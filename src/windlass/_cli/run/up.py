"""`windlass up`: everything in one process, to begin with: the API, a worker and the keeper."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import click

from ..._worker.stop_signals import stopped_by_signals
from ...config import LOG_FORMATS, LOG_LEVELS
from ..command import Asked, Command, pass_asked
from .logs import set_up_by
from .serve import HOST, PORT, serving
from .worker import worker_settings

if TYPE_CHECKING:
    from ...app import App

logger = logging.getLogger("windlass.up")


@click.command("up", cls=Command)
@click.argument("target", required=False, metavar="[APP]")
@click.option("--host", default=HOST, show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="And on which port."
)
@click.option("--insecure", is_flag=True, help="Ask nobody for a key, wherever it listens.")
@click.option("--slots", type=int, help="How many tasks run at once.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log from this level on.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Lines for people, or JSON.")
@pass_asked
def up(asked: Asked, /, *, target: str | None, host: str, port: int, insecure: bool, **flags: Any) -> None:
    """Run the API, a worker for the tasks of APP, and the keeper, in one process, until told to stop.

    For development, and for small things that need no more. Without an app it serves the store, and leaves
    the work to workers elsewhere.
    """
    asked.flags |= flags
    if target is not None:
        asked.flags["app"] = target
    settings = asked.settings
    set_up_by(settings)
    http = serving()

    async def work(app: "App") -> None:
        await app.open()
        worker = app.worker(worker_settings(settings, drain=False)) if app.types else None
        server = await http.prepared(app, host=host, insecure=insecure, keeper=worker is None)

        stopping = asyncio.Event()

        def stop() -> None:
            stopping.set()
            server.stop()
            if worker is not None:
                worker.stop()

        with http.listening(host, port) as listener, stopped_by_signals(asyncio.get_running_loop(), stop):
            logger.info("%s", http.told(host, port, app.place, app.operator.promise))
            parts = [server.run(listener)] if worker is None else [server.run(listener), worker.run()]
            running = [asyncio.ensure_future(part) for part in parts]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.is_set():  # A part that ends by itself takes the other along, gently.
                stop()
            await asyncio.wait(running)
        for part in running:
            part.result()
        logger.info("everything has stopped")

    asked.run_alone(work, long=True)
