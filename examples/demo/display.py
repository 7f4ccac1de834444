"""What the demo prints: a live picture on a terminal or plain lines in a pipe, and the report at the end."""

from pathlib import Path
from typing import Self

from rich import live
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from windlass import State

from .monitor import Snapshot
from .proof import FAILED, RELEASED, REPLAYED, RESCUED, UNEXPLAINED, Proof
from .shop import STORE
from .workers import WorkerPool

PLAIN_INTERVAL = 2.0  # seconds between lines
_STYLES = {State.RUNNING: "cyan", State.COMPLETED: "green", State.CANCELLED: "yellow", State.DEAD: "red"}
_STATUS_LINES = 16  # lines above the events
_BAR_WIDTH = 30


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun: "1 task", "2 tasks"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


class Plain:
    """Prints a line for each event, and one for the state every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        """Start."""
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the terminal."""

    def tell(self, seconds: float, text: str) -> None:
        """Show an event."""
        self._console.print(f"{seconds:5.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    def show(self, snapshot: Snapshot, pool: WorkerPool) -> None:
        """Show the state; here, unless it was shown a moment ago."""
        if snapshot.seconds - self._shown_at < PLAIN_INTERVAL:
            return
        self._shown_at = snapshot.seconds
        states = ", ".join(f"{number:,} {state}" for state in State if (number := snapshot.count(state)))
        workers = counted(len(pool.names), "worker")
        self.tell(snapshot.seconds, f"  {states}; {snapshot.rate:,.0f}/s; {workers}")


class Live(Plain):
    """Redraws the state several times a second, with the latest events below it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = live.Live(console=console, refresh_per_second=8, transient=True)
        self._events: list[tuple[float, str]] = []
        self._state: tuple[Snapshot, WorkerPool] | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        for seconds, text in self._events:
            self._console.print(_event(seconds, text))

    def tell(self, seconds: float, text: str) -> None:
        self._events.append((seconds, text))
        self._draw()

    def show(self, snapshot: Snapshot, pool: WorkerPool) -> None:
        self._state = (snapshot, pool)
        self._draw()

    def _draw(self) -> None:
        parts: list[RenderableType] = []
        if self._state is not None:
            snapshot, pool = self._state
            parts += [_counts(snapshot), Text(), _progress(snapshot), _workers(snapshot, pool), Text()]
        room = max(self._console.height - _STATUS_LINES, 4)
        parts += [_event(seconds, text) for seconds, text in self._events[-room:]]
        self._live.update(Group(*parts))


def _counts(snapshot: Snapshot) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold", show_footer=True, footer_style="bold")
    table.add_column("queue", "all", min_width=8)
    for state in State:
        table.add_column(state, f"{snapshot.count(state):,}", justify="right", style=_STYLES.get(state, ""))
    for queue in sorted({queue for queue, _ in snapshot.counts}):
        numbers = [snapshot.counts[queue, state] for state in State]
        table.add_row(queue, *(f"{number:,}" if number else "[dim]·[/]" for number in numbers))
    return table


def _progress(snapshot: Snapshot) -> Text:
    share = snapshot.ended / snapshot.total if snapshot.total else 0.0
    filled = round(share * _BAR_WIDTH)
    return Text.assemble(
        " ",
        ("━" * filled, "green"),
        ("━" * (_BAR_WIDTH - filled), "dim"),
        f" {snapshot.ended:,} of {snapshot.total:,} ended, {snapshot.rate:,.0f}/s, {snapshot.seconds:.0f} s",
    )


def _workers(snapshot: Snapshot, pool: WorkerPool) -> Text:
    text = Text(" ")
    for name in pool.names:
        text.append(f"{name} ", "cyan").append(f"{snapshot.running[name]}  ")
    for name in pool.killed:
        held = snapshot.running[name]
        text.append(f"{name} killed", "red").append(f", {held} to rescue  " if held else ", rescued  ")
    for name in pool.stopped:
        text.append(f"{name} stopped  ", "dim")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _event(seconds: float, text: str) -> Text:
    return Text.assemble((f"{seconds:5.1f} s  ", "dim"), text, no_wrap=True, overflow="ellipsis")


def show_proof(console: Console, proof: Proof) -> None:
    """Print the figures and whether the promise held."""

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


def show_next(console: Console, kept: Path | None) -> None:
    """Print commands to try next."""
    if kept:
        store = f"--store sqlite:///{kept / STORE}"
        lines = [f"windlass dead list {store}", f"windlass tasks list {store}"]
    else:
        lines = [
            "cd examples && python -m demo --keep    keep this store to explore it",
            "windlass --help                         all commands",
        ]
    console.print("\nTry next:")
    for line in (*lines, "windlass worker APP                     run a worker for your own app"):
        console.print(f"  {line}", markup=False, soft_wrap=True)
