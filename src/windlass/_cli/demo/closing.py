"""The closing table: the promise, the figures that prove or break it, and what to try next."""

from pathlib import Path
from typing import TYPE_CHECKING

from .proof import FAILED, RELEASED, REPLAYED, RESCUED, UNEXPLAINED, Proof
from .shop import STORE

if TYPE_CHECKING:
    from rich.console import Console


def show(console: "Console", proof: Proof) -> None:
    """Print it."""
    table = _Table(console)
    console.print()
    table.line("enqueued", proof.enqueued, "each acknowledged as durable")
    table.line("= completed", proof.completed)
    table.line("+ cancelled", proof.cancelled)
    table.line("+ dead", proof.dead, "dead letters, kept for a person")
    table.line("+ discarded", proof.discarded, "by a person, says the audit log")
    table.fault("lost", proof.lost, "enqueued, and nowhere to be found")
    table.fault("settled twice", proof.settled_twice, "by receipts and attempt log")
    table.fault("out of nowhere", proof.strangers, "there, and never enqueued")
    if proof.unended:
        table.fault("not ended", proof.unended, "the time was up: see --seconds")
    console.print()
    table.line("executions", proof.executions, f"of {proof.executed:,} tasks, by the handlers' own log")
    table.line("- more than once", proof.again, "by the attempt log, because it")
    for reason in (FAILED, RESCUED, RELEASED, REPLAYED):
        table.line(f"    {reason}", proof.reasons.get(reason, 0))
    table.fault(f"    {UNEXPLAINED}", proof.reasons.get(UNEXPLAINED, 0))
    table.fault("- twice under one lease", proof.started_twice)
    console.print()
    if proof.holds:
        console.print(f"[bold green]The promise held:[/] {proof.enqueued:,} tasks, each ended exactly once.")
    elif proof.unended:
        console.print("[bold yellow]Not finished:[/] the promise is about ends, and not all tasks have one.")
    else:
        console.print("[bold red]The promise is broken.[/] Please report it, with the folder of demo --keep.")


def show_next(console: "Console", kept: Path | None) -> None:
    """What to try."""
    store = f"--store sqlite:///{kept / STORE}" if kept else ""
    console.print("\nTry next:")
    lines = (
        f"windlass dead list {store}"
        if kept
        else "windlass demo --keep    keep this store, to look around in it",
        f"windlass tasks list {store}"
        if kept
        else "windlass --help         everything the command line can do",
        "windlass worker APP     a worker for an app of your own",
    )
    for line in lines:
        console.print(f"  {line}", markup=False, soft_wrap=True)


class _Table:
    """Lines of a name, a number and a remark."""

    def __init__(self, console: "Console") -> None:
        self._console = console

    def line(self, name: str, number: int, remark: str = "", style: str = "") -> None:
        from rich.text import Text

        text = Text.assemble(f"  {name:<30}", (f"{number:>7,}", style or "none"), (f"   {remark}", "dim"))
        text.rstrip()
        self._console.print(text, soft_wrap=True)

    def fault(self, name: str, number: int, remark: str = "") -> None:
        """A line that must be zero."""
        self.line(name, number, remark, "bold red" if number else "green")
