"""`windlass history`: throughput, failures, waiting and running times."""

from collections.abc import Sequence

import click

from ..._documents.history import history_document
from ..._policy.history.points import HistoryTotal, Quantiles
from ..command import Cli, Command, on_store
from ..output import Column
from ..text import span

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 24  # of a sparkline


@click.command("history", cls=Command)
@click.option(
    "--period",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Time up to now to show; at most 91d",
)
@click.option("-q", "--queue", metavar="NAME", help="Only this queue  [default: all]")
@click.option("--type", "type_name", metavar="NAME", help="Only this task type  [default: all]")
@on_store
async def history(cli: Cli, period: str, queue: str | None, type_name: str | None) -> None:
    """Show tasks that ended in a period, and their times.

    Times are the median and the 95th percentile. The depth is the highest number of ready tasks. With
    --json, print one document with a point for each step of 10 seconds, a minute or an hour, as GET /history.
    """
    found = await cli.operator.history(period)
    if cli.output.as_json:
        cli.output.document(history_document(found, queue, type_name))
        return
    rows = [
        one for one in found.totals(_WIDTH) if queue in (None, one.queue) and type_name in (None, one.type)
    ]
    cli.output.items(rows, _COLUMNS, none=f"nothing has happened in the last {period}")


def _sparkline(numbers: Sequence[int]) -> str:
    most = max(numbers)
    return "".join(_BARS[-(-number * 7 // most)] for number in numbers) if most else ""


def _times(quantiles: Quantiles | None) -> str:
    return "" if quantiles is None else f"{span(quantiles.p50)} / {span(quantiles.p95)}"


def _depth(row: HistoryTotal) -> str:
    depth, oldest = row.total.depth, row.total.oldest
    return "" if not depth else f"{depth:,} ({span(oldest or 0.0)})"


_COLUMNS: Sequence[Column[HistoryTotal]] = (
    Column("queue", lambda row: row.queue, elastic=True),
    Column("type", lambda row: row.type, elastic=True, keeps_end=True),
    Column("completed", lambda row: f"{row.total.completed:,}", right=True),
    Column("failed", lambda row: (f"{row.total.failed:,}", "red" if row.total.failed else "dim"), right=True),
    Column("dead", lambda row: f"{row.total.buried:,}", right=True),
    Column(
        "cancelled", lambda row: f"{row.total.cancelled + row.total.expired:,}", right=True, optional=True
    ),
    Column("waited", lambda row: _times(row.total.wait), right=True),
    Column("ran", lambda row: _times(row.total.run), right=True),
    Column("depth (oldest)", _depth, right=True, optional=True),
    Column("completed over time", lambda row: _sparkline(row.completed), optional=True),
)
