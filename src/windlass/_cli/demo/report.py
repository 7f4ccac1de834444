"""The report at the end of the demo: what became of every task, and what to try next."""

from pathlib import Path
from typing import TYPE_CHECKING

from ..._policy.input.quote import counted
from .proof import FAILED, RELEASED, REPLAYED, RESCUED, UNEXPLAINED, Proof
from .shop import STORE

if TYPE_CHECKING:
    from rich.console import Console


def show(console: "Console", proof: Proof) -> None:
    """Print the figures and whether the promise held."""
    table = _Table(console)
    console.print()
    table.line("enqueued", proof.enqueued, "each acknowledged as durable")
    table.line("= completed", proof.completed)
    table.line("+ cancelled", proof.cancelled)
    table.line("+ dead", proof.dead, "dead letters, kept for an operator")
    table.line("+ discarded", proof.discarded, "by an operator, in the audit log")
    table.fault("lost", proof.lost, "enqueued, but not in the store")
    table.fault("settled twice", proof.settled_twice, "by worker receipts and attempt log")
    table.fault("unknown", proof.unknown, "in the store, but never enqueued")
    if proof.unended:
        table.fault("not ended", proof.unended, "when the time ran out; see --seconds")
    console.print()
    table.line(
        "executions", proof.executions, f"of {counted(proof.executed, 'task')}, by the handlers' own log"
    )
    table.line("- repeated", proof.repeated, "why, by the attempt log:")
    for reason in (FAILED, RESCUED, RELEASED, REPLAYED):
        table.line(f"    {reason}", proof.reasons.get(reason, 0))
    table.fault(f"    {UNEXPLAINED}", proof.reasons.get(UNEXPLAINED, 0))
    table.fault("- twice under one lease", proof.started_twice)
    console.print()
    if proof.holds:
        console.print(
            f"[bold green]The promise held:[/] {counted(proof.enqueued, 'task')}, each ended exactly once."
        )
    elif proof.unended:
        console.print("[bold yellow]Not finished:[/] some tasks had not ended when the time ran out.")
    else:
        console.print(
            "[bold red]The promise is broken.[/] Please report it with the folder that demo --keep keeps."
        )


def show_next(console: "Console", kept: Path | None) -> None:
    """Print commands to try next."""
    store = f"--store sqlite:///{kept / STORE}" if kept else ""
    console.print("\nTry next:")
    lines = (
        f"windlass dead list {store}" if kept else "windlass demo --keep    keep this store to explore it",
        f"windlass tasks list {store}" if kept else "windlass --help         all commands",
        "windlass worker APP     run a worker for your own app",
    )
    for line in lines:
        console.print(f"  {line}", markup=False, soft_wrap=True)


class _Table:
    """Prints lines of a name, a number and a remark."""

    def __init__(self, console: "Console") -> None:
        self._console = console

    def line(self, name: str, number: int, remark: str = "", style: str = "") -> None:
        from rich.text import Text

        text = Text.assemble(f"  {name:<30}", (f"{number:>7,}", style or "none"), (f"   {remark}", "dim"))
        text.rstrip()
        self._console.print(text, soft_wrap=True)

    def fault(self, name: str, number: int, remark: str = "") -> None:
        """Print a line whose number must be zero."""
        self.line(name, number, remark, "bold red" if number else "green")
