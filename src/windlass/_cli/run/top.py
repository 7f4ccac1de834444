"""`windlass top`: queues, workers and failures at a glance, again and again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import Struct
from msgspec.structs import replace

from ..._documents.queues import OverviewDocument, QueueDocument, QueueView
from ..._documents.tasks import failure_document
from ..._documents.workers import WorkerDocument, worker_document
from ..._model.filter import Failure
from ..._observe.overview import read_overview
from ..._policy.input.quote import counted
from ..._store.partial_answers import partial_answers
from ..._timers import wait_for_event
from ...errors import StoreError
from ..command import Cli, Command, on_store
from ..options import duration
from ..output import Column, Styled, stdout, table_rows
from ..task_tables import failure_columns
from ..text import ago, one_line, span

if TYPE_CHECKING:
    from rich.text import Text

_UNBOUNDED = 1_000_000
_GAP = 2
_MAX_FAILURES = 10
_MAX_TROUBLES = 5
_RATE_OVER = timedelta(minutes=5)
_COUNTED: Sequence[Literal["ready", "running", "scheduled"]] = ("ready", "running", "scheduled")


class Frame(Struct, frozen=True, kw_only=True):
    """What is shown at one moment, with the names of the raised alerts.

    `ended` has completed and failed runs a minute, by queue. `missing` are shards that did not answer.
    """

    overview: OverviewDocument
    workers: Sequence[WorkerDocument] = ()
    failures: Sequence[Failure] = ()
    ended: Mapping[str, tuple[float, float]] = {}
    alerts: Sequence[str] = ()
    missing: Sequence[str] = ()

    def as_document(self) -> dict[str, Any]:
        """The JSON document of `--json`."""
        return {
            "overview": self.overview,
            "workers": self.workers,
            "failures": [failure_document(one) for one in self.failures],
            "per_minute": {
                queue: {"completed": completed, "failed": failed}
                for queue, (completed, failed) in sorted(self.ended.items())
            },
            "alerts": self.alerts,
            "missing_shards": self.missing,
        }


@click.command("top", cls=Command)
@click.option("--once", is_flag=True, help="Print one frame and exit")
@click.option(
    "--interval",
    type=duration,
    default="2s",
    show_default=True,
    help="Time between frames, at least 0.2s",
)
@on_store
async def top(cli: Cli, once: bool, interval: timedelta) -> None:
    """Show queues, workers and failures, live.

    Ctrl-C ends it. The busiest queues and workers come first; what does not fit the terminal is left out. In
    a pipe one frame is printed after the other. With --json, each is one line.
    """
    frames = _frames(cli, max(interval.total_seconds(), 0.2), once=once)
    try:
        if cli.output.as_json:
            async for frame in frames:
                cli.output.document(_known(frame).as_document())
        elif once or not stdout().is_terminal:
            async for frame in frames:
                for line in frame_lines(_known(frame), stdout().width, _UNBOUNDED):
                    stdout().print(line, soft_wrap=True)
        else:
            await _show_live(frames)
    except asyncio.CancelledError:
        if once:
            raise


async def _frames(cli: Cli, seconds: float, *, once: bool) -> AsyncIterator[Frame | StoreError]:
    """Yield a frame again and again, or the error for which there is none."""
    never = asyncio.Event()
    while True:
        try:
            yield await read_frame(cli)
        except StoreError as error:
            if once or not error.transient:
                raise
            yield error
        if once:
            return
        await wait_for_event(never, seconds)


def _known(frame: Frame | StoreError) -> Frame:
    if isinstance(frame, StoreError):
        raise frame
    return frame


async def _show_live(frames: AsyncIterator[Frame | StoreError]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    console, last = stdout(), [Text("…")]
    with Live(console=console, screen=True, auto_refresh=False) as live:
        async for frame in frames:
            if isinstance(frame, StoreError):
                failed = Text(one_line(f"the store is not available, retrying: {frame}"), "bold red")
                shown = [failed, *last[1:]]
            else:
                shown = last = frame_lines(frame, console.width, console.height)
            shown[0].truncate(console.width, overflow="ellipsis")
            live.update(Group(*shown[: console.height]), refresh=True)


async def read_frame(cli: Cli) -> Frame:
    """Read what is shown now; of shards, of those that answer."""
    with partial_answers() as missing:
        frame = await _read_frame(cli)
    return replace(frame, missing=sorted(missing))


async def _read_frame(cli: Cli) -> Frame:
    seen = await read_overview(cli.app.store)
    view = QueueView(overview=seen, settings={one.name: one for one in seen.settings})
    minutes = _RATE_OVER.total_seconds() / 60
    completed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for row in (await cli.operator.history(_RATE_OVER)).totals(1):
        completed[row.queue] += row.total.completed
        failed[row.queue] += row.total.failed
    return Frame(
        overview=view.overview_document(),
        workers=[worker_document(one, seen.at) for one in seen.workers],
        alerts=sorted(name for name, is_raised in seen.alerts.items() if is_raised),
        failures=await cli.operator.failures(limit=_MAX_FAILURES),
        ended={
            queue: (round(completed[queue] / minutes, 1), round(failed[queue] / minutes, 1))
            for queue in {*completed, *failed}
        },
    )


def frame_lines(frame: Frame, width: int, height: int) -> "list[Text]":
    """Return the lines of a frame for a terminal of this size."""
    from rich.text import Text

    tables = _tables(frame, width)
    lines = _summary(frame, width)
    room = height - len(lines)
    for left, (title, rows) in zip(range(len(tables), 0, -1), tables, strict=True):
        # The room is shared evenly; what one table does not need is left to the next.
        most = max(room // left - 2, 2)
        shown = rows if len(rows) <= most else rows[: most - 1]
        lines += [[], [(title, "bold cyan")], *shown]
        if len(shown) < len(rows):
            lines.append([(f"… {len(rows) - len(shown):,} more", "dim")])
        room = height - len(lines)
    between = Text(" " * _GAP)
    texts = [between.join(Text(text, style) for text, style in line) for line in lines]
    for text in texts:
        text.truncate(width, overflow="ellipsis")
    return texts


def _summary(frame: Frame, width: int) -> list[list[Styled]]:
    """Return the lines above the tables: what counts for the whole store."""
    from rich.cells import cell_len

    seen, workers = frame.overview, frame.workers
    stuck = sum(len(one.stuck) for one in workers)
    parts: list[Styled] = [(f"{seen.at:%H:%M:%S} UTC", "dim")]
    parts += [(counted(len(workers), "worker"), ""), (f"{seen.busy}/{seen.slots} busy", "")]
    parts += [(f"{seen.counts[state]:,} {state}", "") for state in _COUNTED]
    parts += [(f"{seen.counts['dead']:,} dead", "red" if seen.counts["dead"] else "dim")]
    parts += [] if seen.keeper else [("no keeper", "bold red")]
    parts += [(f"{stuck:,} stuck", "bold red")] if stuck else []
    parts += [(f"alert {one_line(name)}", "bold red") for name in frame.alerts]
    parts += [(f"shard {name} does not answer", "bold red") for name in frame.missing]
    troubles = [f"no worker serves {queue}" for queue in seen.unserved or ()]
    troubles += [f"no worker of {one.queue} handles {one.type}" for one in seen.unhandled or ()]
    parts += [(one_line(text), "bold red") for text in troubles[:_MAX_TROUBLES]]
    if len(troubles) > _MAX_TROUBLES:
        parts += [(f"and {len(troubles) - _MAX_TROUBLES:,} more without a worker", "bold red")]
    lines: list[list[Styled]] = [[]]
    for part in parts:
        if lines[-1] and sum(cell_len(text) + _GAP for text, _ in [*lines[-1], part]) - _GAP > width:
            lines.append([])
        lines[-1].append(part)
    return lines


def _tables(frame: Frame, width: int) -> list[tuple[str, list[list[Styled]]]]:
    """Return the tables that have rows, with their titles; the first row is the head."""
    seen = frame.overview
    queues = sorted(seen.queues, key=lambda one: (-one.counts["ready"], -one.counts["running"], one.queue))
    workers = sorted(frame.workers, key=lambda one: (-one.busy, one.name))
    tables = (
        ("queues", table_rows(queues, _queue_columns(frame), width)),
        ("workers", table_rows(workers, _worker_columns(frame), width)),
        ("failures", table_rows(frame.failures, failure_columns(seen.at), width)),
    )
    return [(title, rows) for title, rows in tables if len(rows) > 1]


def _queue_columns(frame: Frame) -> Sequence[Column[QueueDocument]]:
    def ended(index: int, style: str) -> Any:
        def cell(queue: QueueDocument) -> Styled:
            number = frame.ended.get(queue.queue, (0.0, 0.0))[index]
            return f"{number:,.0f}" if number >= 10 else f"{number:g}", style if number else "dim"

        return cell

    return (
        Column("queue", lambda one: one.queue, elastic=True),
        Column("ready", lambda one: _number(one, "ready"), right=True),
        Column("running", lambda one: _number(one, "running", "cyan"), right=True),
        Column(
            "oldest",
            lambda one: span(one.oldest_ready) if one.oldest_ready else "",
            right=True,
            optional=True,
        ),
        Column("done/min", ended(0, "green"), right=True),
        Column("failed/min", ended(1, "red"), right=True, optional=True),
        Column("dead", lambda one: _number(one, "dead", "red"), right=True),
        Column("state", _state, optional=True),
        Column("scheduled", lambda one: _number(one, "scheduled"), right=True, optional=True),
        Column("waiting", lambda one: _number(one, "waiting"), right=True, optional=True),
    )


def _number(queue: QueueDocument, state: Any, style: str = "") -> Styled:
    number = queue.counts[state]
    return f"{'' if queue.exact else '~'}{number:,}", style if number else "dim"


def _state(queue: QueueDocument) -> Styled:
    if queue.paused:
        return "paused", "yellow"
    if queue.closed_until is not None:
        return "closed", "yellow"
    return ("", "") if queue.workers or not queue.counts["ready"] else ("no worker", "bold red")


def _worker_columns(frame: Frame) -> Sequence[Column[WorkerDocument]]:
    now = frame.overview.at
    return (
        Column("worker", lambda one: one.name, elastic=True, keeps_end=True),
        Column("busy", lambda one: f"{one.busy}/{one.slots}", right=True),
        Column("heartbeat", lambda one: ago(one.beat_at, now)),
        Column("started", lambda one: ago(one.started_at, now), optional=True),
        Column(
            "queues",
            lambda one: "all" if one.all_queues else ", ".join(one.queues),
            elastic=True,
        ),
    )
