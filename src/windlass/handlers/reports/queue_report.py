"""What the queue did in a period, as blocks of a report: throughput, failures, slow types, tenants."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..._model.filter import Dimension, Filter
from ..._model.state import State
from ..._policy.history.buckets import HOUR, bucket_name
from ..._policy.history.points import History, HistoryPoint
from .period import Period

if TYPE_CHECKING:
    from ...app import App

_NONE = "\N{EN DASH}"
_MOST = 25  # rows of a table
_BY_DAY = 3  # of more days, bars are days and not hours


async def queue_report(app: "App", period: Period, now: datetime) -> list[dict[str, Any]]:
    """Return the blocks of a report on the app's store."""
    history = await _history(app, period, now)
    total = history.total()
    where = _ended_in(period)
    return [
        {"figures": _figures(total)},
        *_so_far(history, period),
        {"heading": "Throughput"},
        {"bars": _bars(history, period, {"completed": "completed", "failed": "failed attempts"})},
        *_types(history),
        *await _dead_letters(app, where),
        *await _ended(app, where, Dimension.TENANT, "Tenants"),
    ]


async def tenant_report(app: "App", period: Period, tenant: str) -> list[dict[str, Any]]:
    """Return the blocks of a report on one tenant's tasks, who must learn nothing of the others.

    History is not kept by tenant, so it has no times and no chart.
    """
    where = replace(_ended_in(period), tenants=(tenant,))
    counts = {one.values[0]: one.number for one in await app.operator.count(where, [Dimension.STATE])}
    return [
        {"figures": [(f"tasks {state}", f"{counts.get(state, 0):,}") for state in _ENDED]},
        *await _ended(app, where, Dimension.TYPE, "Task types"),
        *await _dead_letters(app, where),
    ]


def _ended_in(period: Period) -> Filter:
    return Filter(finished_after=period.since, finished_before=period.until)


async def _history(app: "App", period: Period, now: datetime) -> History:
    """Return the history of a period, as far as it is kept."""
    longest = HOUR.kept - HOUR.length
    found = await app.operator.history(min(max(now - period.since, timedelta(0)) + HOUR.length, longest))
    since, until = max(period.since, found.since), min(period.until, found.until)
    low, high = (bucket_name(found.resolution, at) for at in (since, until))
    buckets = tuple(one for one in found.buckets if low <= one.name < high)
    return replace(found, since=since, until=max(since, until), buckets=buckets)


def _so_far(history: History, period: Period) -> list[dict[str, Any]]:
    """Say until when figures and chart reach, if the period is not over."""
    if history.until >= period.until:
        return []
    at = history.until.astimezone(period.zone)
    return [{"text": f"The period is not over: figures, chart and task types reach to {at:%Y-%m-%d %H:%M}."}]


def _figures(total: HistoryPoint) -> list[tuple[str, str]]:
    attempts = total.completed + total.failed
    share = f"{100 * total.failed / attempts:.1f} %" if attempts else _NONE
    return [
        ("tasks completed", f"{total.completed:,}"),
        ("failed attempts", f"{total.failed:,}"),
        ("failure rate", share),
        ("dead letters", f"{total.buried:,}"),
        ("cancelled", f"{total.cancelled:,}"),
        ("p95 wait", _seconds(total.wait.p95 if total.wait else None)),
        ("p95 run time", _seconds(total.run.p95 if total.run else None)),
        ("highest backlog", _NONE if total.depth is None else f"{total.depth:,}"),
    ]


def _bars(history: History, period: Period, series: dict[str, str]) -> dict[str, Any]:
    """Return bars for the hours of a day, or for the days of a longer period, in its zone."""
    by_day = period.days > _BY_DAY
    sums = {label: dict.fromkeys(series, 0) for label in _labels(period, by_day=by_day)}
    for point in history.points():
        label = _label(point.at.astimezone(period.zone), by_day=by_day)
        for name in series if label in sums else ():
            sums[label][name] += getattr(point, name)
    shown = [label.partition(" ")[2] or label for label in sums]
    named = [{"name": text, "values": [one[name] for one in sums.values()]} for name, text in series.items()]
    return {"labels": shown, "series": named}


def _labels(period: Period, *, by_day: bool) -> list[str]:
    labels: dict[str, None] = {}
    at = period.since
    while at < period.until:
        labels[_label(at.astimezone(period.zone), by_day=by_day)] = None
        at += timedelta(hours=1)
    return [*labels]


def _label(at: datetime, *, by_day: bool) -> str:
    return f"{at:%m-%d}" if by_day else f"{at:%m-%d %H}:00"


def _types(history: History) -> list[dict[str, Any]]:
    """Return a table of types, those that took most time to run first."""
    totals = {name: history.total(type=name) for name in {type_name for _, type_name in history.names()}}
    rows = [
        [
            name,
            one.completed,
            one.failed,
            one.buried,
            *(_seconds(at) for at in ((one.run.p50, one.run.p95) if one.run else (None, None))),
            _seconds(one.wait.p95 if one.wait else None),
        ]
        for name, one in sorted(totals.items(), key=lambda item: -(item[1].run.p95 if item[1].run else 0.0))
        if one.completed or one.failed or one.cancelled
    ]
    columns = ["type", "completed", "failed", "dead", "p50 run", "p95 run", "p95 wait"]
    return _section("Task types, slowest first", columns, rows)


async def _dead_letters(app: "App", where: Filter) -> list[dict[str, Any]]:
    found = await app.operator.failures(where, limit=_MOST)
    rows = [
        [one.number, one.type, one.error.type if one.error else "", one.error.message if one.error else ""]
        for one in found
    ]
    return _section("Dead letters, most frequent first", ["number", "type", "error", "message"], rows)


async def _ended(app: "App", where: Filter, by: Dimension, title: str) -> list[dict[str, Any]]:
    """Return a table of how many tasks ended how, by tenant or type, the most first."""
    counted = await app.operator.count(where, [by, Dimension.STATE])
    sums: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_ENDED, 0))
    for one in counted:
        name, state = one.values
        if state in _ENDED:
            sums[name][state] += one.number
    rows = [
        [name or "(none)", *states.values()]
        for name, states in sorted(sums.items(), key=lambda item: -sum(item[1].values()))
    ]
    return _section(title, [by.value, *_ENDED], rows)


_ENDED = tuple(state.value for state in (State.COMPLETED, State.DEAD, State.CANCELLED))


def _section(title: str, columns: list[str], rows: list[list[Any]]) -> list[dict[str, Any]]:
    """Return a heading and a table; or a sentence if there are no rows."""
    if not rows:
        return [{"heading": title}, {"text": "None."}]
    blocks: list[dict[str, Any]] = [{"heading": title}, {"table": {"columns": columns, "rows": rows[:_MOST]}}]
    if len(rows) > _MOST:
        blocks.append({"text": f"{len(rows) - _MOST:,} more are left out."})
    return blocks


def _seconds(value: float | None) -> str:
    if value is None:
        return _NONE
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"
