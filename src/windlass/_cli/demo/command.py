"""The command: sets the stage, runs the story under a time limit, clears everything away, and reckons."""

import asyncio
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .display import Display
    from .proof import Proof

_TASKS, _WORKERS, _SECONDS = click.IntRange(100, 50_000), click.IntRange(2, 16), click.IntRange(5, 3600)


@click.command()
@click.option("--tasks", default=3_000, show_default=True, type=_TASKS, help="About how many.")
@click.option("--workers", default=3, show_default=True, type=_WORKERS, help="Worker processes.")
@click.option("--seconds", default=120, show_default=True, type=_SECONDS, help="Give up after this long.")
@click.option("--plain", is_flag=True, help="Lines of text, also on a terminal.")
@click.option("--keep", is_flag=True, help="Keep the folder with the store and the logs.")
def demo(tasks: int, workers: int, seconds: int, plain: bool, keep: bool) -> None:
    """A shop's busy day in half a minute, with real worker processes.

    Some tasks fail and are tried again, some are hopeless, some are cancelled; one worker is killed with -9
    and another is replaced. At the end every task is accounted for. All of it happens on a fresh SQLite file
    in a temporary folder.
    """
    from ..terminal import stdout
    from . import closing
    from .display import Living, Plain

    console = stdout()
    display = Plain(console) if plain or not console.is_terminal else Living(console)
    folder = Path(tempfile.mkdtemp(prefix="windlass-demo-"))
    try:
        proof = asyncio.run(_stage(folder, display, tasks=tasks, workers=workers, limit=seconds))
        closing.show(console, proof)
        closing.show_next(console, folder if keep else None)
    except asyncio.CancelledError:
        raise click.Abort from None
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    raise click.exceptions.Exit(0 if proof.holds else 1)


async def _stage(folder: Path, display: "Display", *, tasks: int, workers: int, limit: int) -> "Proof":
    """Run it all in this folder, on the shop's own app, and reckon."""
    from . import shop
    from .evidence import gather
    from .orders import Plan
    from .proof import reckon
    from .story import Story
    from .watch import Watch

    _stop_as_asked()
    app = shop.app
    before = app.use_store(f"sqlite:///{folder / shop.STORE}")
    watch = Watch(app, lambda seen: display.show(seen, story.crew))
    story = Story(app, folder, watch, lambda text: display.tell(watch.seconds, text))
    try:
        await app.open()
        with display, suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await story.run(Plan.of(tasks), workers)
        return reckon(await gather(app, folder, frozenset(story.ledger), story.gone))
    finally:
        await app.close()
        app.use_store(before)


def _stop_as_asked() -> None:
    """SIGTERM and SIGHUP do what Ctrl-C does: workers and files are cleared away first."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
