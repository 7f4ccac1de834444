"""Run the scenario in a temporary folder under a time limit, and report: `python -m demo` in examples/."""

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console

from . import shop
from .display import Live, Plain, show_next, show_proof
from .monitor import Monitor
from .proof import Proof, gather, prove
from .scenario import Scenario
from .workload import Plan

INTERRUPTED = 130
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option(
    "--tasks",
    type=click.IntRange(100, 50_000),
    default=3_000,
    show_default=True,
    help="Approximate number of tasks",
)
@click.option(
    "--workers", type=click.IntRange(2, 16), default=3, show_default=True, help="Number of worker processes"
)
@click.option(
    "--seconds", type=click.IntRange(5, 3600), default=120, show_default=True, help="Time limit in seconds"
)
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal")
@click.option("--keep", is_flag=True, help="Keep the folder with the store and the logs")
def demo(tasks: int, workers: int, seconds: int, plain: bool, keep: bool) -> None:
    """Run a busy shop on real worker processes.

    It takes half a minute. Some tasks fail and are retried, some always fail, some are cancelled; one worker
    is killed with -9 and another is replaced. At the end every task is accounted for. Everything happens on
    a new SQLite file in a temporary folder.
    """
    logging.getLogger("windlass.client").setLevel(logging.ERROR)  # the workers start after the first tasks
    console = Console(highlight=False)
    display = Plain(console) if plain or not console.is_terminal else Live(console)
    folder = Path(tempfile.mkdtemp(prefix="windlass-demo-"))
    try:
        proof = asyncio.run(run(folder, display, tasks=tasks, workers=workers, limit=seconds))
        show_proof(console, proof)
        show_next(console, folder if keep else None)
    except asyncio.CancelledError:
        sys.exit(INTERRUPTED)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if proof.holds else 1)


async def run(folder: Path, display: Plain, *, tasks: int, workers: int, limit: int) -> Proof:
    """Run the scenario on the shop's app, for at most `limit` seconds, and prove its outcome."""
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    for number in ENDING:  # workers and files are cleaned up before the process ends
        loop.add_signal_handler(number, this.cancel)
    app = shop.app
    app.use_store(f"sqlite:///{folder / shop.STORE}")
    monitor = Monitor(app, lambda snapshot: display.show(snapshot, scenario.workers))
    scenario = Scenario(app, folder, monitor, lambda text: display.tell(monitor.seconds, text))
    async with app:
        with display, suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await scenario.run(Plan.of(tasks), workers)
        return prove(await gather(app, folder, frozenset(scenario.ledger), scenario.discarded))


if __name__ == "__main__":
    demo()
