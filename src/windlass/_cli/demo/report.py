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
    from rich.text import Text

    def line(name: str, number: int, remark: str = "", style: str = "none") -> None:
        text = Text.assemble(f"  {name:<30}", (f"{number:>7,}", style), (f"   {remark}", "dim"))
        text.rstrip()
        console.print(text, soft_wrap=True)

    def fault(name: str, number: int, remark: str = "") -> None:
        """Print a line whose number must be zero."""
        line(name, number, remark, "bold red" if number else "green")

    console.print()
    line("enqueued", proof.enqueued, "each acknowledged as durable")
    line("= completed", proof.completed)
    line("+ cancelled", proof.cancelled)
    line("+ dead", proof.dead, "dead letters, kept for an operator")
    line("+ discarded", proof.discarded, "by an operator, in the audit log")
    fault("lost", proof.lost, "enqueued, but not in the store")
    fault("settled twice", proof.settled_twice, "by worker receipts and attempt log")
    fault("unknown", proof.unknown, "in the store, but never enqueued")
    if proof.unended:
        fault("not ended", proof.unended, "when the time ran out; see --seconds")
    console.print()
    line("executions", proof.executions, f"of {counted(proof.executed, 'task')}, by the handlers' own log")
    line("- repeated", proof.repeated, "why, by the attempt log:")
    for reason in (FAILED, RESCUED, RELEASED, REPLAYED):
        line(f"    {reason}", proof.reasons.get(reason, 0))
    fault(f"    {UNEXPLAINED}", proof.reasons.get(UNEXPLAINED, 0))
    fault("- twice under one lease", proof.started_twice)
    console.print()
    if proof.holds:
        end = f"[bold green]The promise held:[/] {counted(proof.enqueued, 'task')}, each ended exactly once."
    elif proof.unended:
        end = "[bold yellow]Not finished:[/] some tasks had not ended when the time ran out."
    else:
        end = "[bold red]The promise is broken.[/] Please report it with the folder that demo --keep keeps."
    console.print(end)


def show_next(console: "Console", kept: Path | None) -> None:
    """Print commands to try next."""
    if kept:
        store = f"--store sqlite:///{kept / STORE}"
        lines = [f"windlass dead list {store}", f"windlass tasks list {store}"]
    else:
        lines = [
            "windlass demo --keep    keep this store to explore it",
            "windlass --help         all commands",
        ]
    console.print("\nTry next:")
    for line in (*lines, "windlass worker APP     run a worker for your own app"):
        console.print(f"  {line}", markup=False, soft_wrap=True)
