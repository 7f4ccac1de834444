"""`windlass demo`: runs the scenario in a temporary folder under a time limit, and reports."""

import asyncio
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..command import cancelled_by
from ..options import number_option

if TYPE_CHECKING:
    from .display import Plain
    from .proof import Proof


@click.command()
@number_option("--tasks", least=100, most=50_000, default=3_000, help="Approximate number of tasks")
@number_option("--workers", least=2, most=16, default=3, help="Number of worker processes")
@number_option("--seconds", least=5, most=3600, default=120, help="Time limit in seconds")
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal")
@click.option("--keep", is_flag=True, help="Keep the folder with the store and the logs")
def demo(tasks: int, workers: int, seconds: int, plain: bool, keep: bool) -> None:
    """Run a busy shop on real worker processes.

    It takes half a minute. Some tasks fail and are retried, some always fail, some are cancelled; one worker
    is killed with -9 and another is replaced. At the end every task is accounted for. Everything happens on
    a new SQLite file in a temporary folder.
    """
    from ..output import stdout
    from .display import Live, Plain, show_next, show_proof

    console = stdout()
    display = Plain(console) if plain or not console.is_terminal else Live(console)
    folder = Path(tempfile.mkdtemp(prefix="windlass-demo-"))
    try:
        proof = asyncio.run(_run(folder, display, tasks=tasks, workers=workers, limit=seconds))
        show_proof(console, proof)
        show_next(console, folder if keep else None)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    raise click.exceptions.Exit(0 if proof.holds else 1)


async def _run(folder: Path, display: "Plain", *, tasks: int, workers: int, limit: int) -> "Proof":
    """Run the scenario on the shop's app, for at most `limit` seconds, and prove its outcome."""
    from . import shop
    from .monitor import Monitor
    from .proof import gather, prove
    from .scenario import Scenario
    from .workload import Plan

    app = shop.app
    before = app.use_store(f"sqlite:///{folder / shop.STORE}")
    monitor = Monitor(app, lambda snapshot: display.show(snapshot, scenario.workers))
    scenario = Scenario(app, folder, monitor, lambda text: display.tell(monitor.seconds, text))
    # Workers and files are cleaned up before the process ends.
    with cancelled_by(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            await app.open()
            with display, suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await scenario.run(Plan.of(tasks), workers)
            return prove(await gather(app, folder, frozenset(scenario.ledger), scenario.discarded))
        finally:
            await app.close()
            app.use_store(before)
