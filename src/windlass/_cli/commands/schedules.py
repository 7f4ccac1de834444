"""`windlass schedules`: what is enqueued when, and by which rule. (T2)"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from ..._client.builder import checked_payload
from ..._client.schedules import MAX_UPCOMING, ScheduleStatus
from ..._model.schedule import Missed, Overlap, Schedule
from ..._policy.schedule import MAX_AT_MOST, rule_text
from ..command import Asked, Commands, pass_asked
from ..documents import compact, plain, shown_payload
from ..operator_actions import audited, named
from ..options import duration, priority
from ..output import Column, Styled
from ..time_text import ago, iso, span, stamp

if TYPE_CHECKING:
    from ...app import App

_INTERNAL = {"name", "boost", "since", "next", "payload", "unique"}


@click.group(cls=Commands)
def schedules() -> None:
    """See what is enqueued when; add, pause, resume, trigger and remove schedules."""


@schedules.command("list")
@pass_asked
def list_schedules(asked: Asked) -> None:
    """List schedules: their rule, their next and their last tick."""

    async def work(app: "App") -> None:
        found = await app.operator.schedules.list()
        now = await app.operator.now()
        none = "there are no schedules; `windlass schedules add NAME TYPE '0 3 * * *'` makes one"
        asked.output.items(found, _columns(now), _document, none=none)
        stray = [one.schedule.name for one in found if _is_stray(app, one.schedule)]
        if stray:
            asked.output.note(
                f"declared in code, but not by this app: {', '.join(stray)}; if no other program declares "
                f"them any more, `windlass schedules remove` them"
            )

    asked.run(work)


@schedules.command("show")
@click.argument("name")
@click.option("--reveal", is_flag=True, help="Show secrets in the payload.")
@pass_asked
def show(asked: Asked, name: str, reveal: bool) -> None:
    """Show everything about one schedule."""

    async def work(app: "App") -> None:
        status = await app.operator.schedules.get(name)
        if asked.as_json:
            asked.output.document(_document(status, reveal=reveal))
        else:
            asked.output.fields(_fields(status, await app.operator.now(), reveal=reveal))

    asked.run(work)


@schedules.command("add")
@click.argument("name")
@click.argument("type")
@click.argument("rule")
@click.argument("payload", required=False, metavar="[JSON]")
@click.option("--zone", default="UTC", show_default=True, help="The time zone of a cron expression.")
@click.option(
    "--missed",
    type=click.Choice([str(one) for one in Missed]),
    default=str(Missed.SKIP),
    show_default=True,
    help="Of ticks that came while no keeper ran, fire none, the last one, or all.",
)
@click.option("--at-most", type=click.IntRange(1, MAX_AT_MOST), help="With all: the last so many (100).")
@click.option(
    "--overlap",
    type=click.Choice([str(one) for one in Overlap]),
    default=str(Overlap.ALLOW),
    show_default=True,
    help="Whether a tick is passed over while the task of an earlier one has not ended.",
)
@click.option("--jitter", type=duration, help="Delay each task by up to this much.")
@click.option("--queue", "-q", help="Into this queue (default: the type's own).")
@click.option("--tenant", help="On behalf of this tenant.")
@click.option("--priority", type=priority, help="Higher first: -100 to 100, or high, medium, low.")
@click.option("--max-attempts", type=int, help="Dead after so many failed attempts.")
@click.option("--timeout", type=duration, help="How long an attempt may run.")
@click.option("--replace", "instead", is_flag=True, help="In place of the one of that name.")
@click.option("--undeclared", is_flag=True, help="Of a type that the app does not declare.")
@audited
@pass_asked
def add(
    asked: Asked,
    /,
    *,
    name: str,
    type: str,
    rule: str,
    payload: str | None,
    instead: bool,
    undeclared: bool,
    **given: Any,
) -> None:
    """Add a schedule that enqueues a task of TYPE by RULE: a quoted cron expression, or an interval.

    With an app (--app) the payload is checked against the handler's parameters, and the type's own queue,
    attempts and timeout apply.
    """
    options: Any = {key: value for key, value in given.items() if value is not None}
    spec = None if undeclared or not asked.app.types else asked.app.declared(type)
    data = checked_payload(payload or "{}", spec)

    async def work(app: "App") -> None:
        operator = app.operator.schedules
        made = await operator.make(name, type, rule, data, spec, **options)
        await operator.put(made, instead=instead)
        status = await operator.get(name)
        when = "" if status.next_at is None else f"; next: {_wall(status.schedule, status.next_at)}"
        asked.output.say(f"added {name}{when}", _document(status))
        if status.schedule.paused:
            asked.output.note(f"it is paused, as the one before it was; `windlass schedules resume {name}`")

    asked.run_anywhere(work)


@schedules.command("pause")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@audited
@pass_asked
def pause(asked: Asked, names: tuple[str, ...]) -> None:
    """Fire no ticks of these until they are resumed; tasks that are there go on."""

    async def work(app: "App") -> None:
        for name in names:
            await app.operator.schedules.pause(name)
            asked.output.say(f"paused {name}", {"schedule": name, "paused": True})

    asked.run(work)


@schedules.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@audited
@pass_asked
def resume(asked: Asked, names: tuple[str, ...]) -> None:
    """Let these go on with their next tick; those in between are not made up for."""

    async def work(app: "App") -> None:
        for name in names:
            await app.operator.schedules.resume(name)
            asked.output.say(f"resumed {name}", {"schedule": name, "paused": False})

    asked.run(work)


@schedules.command("trigger")
@click.argument("name")
@named
@pass_asked
def trigger(asked: Asked, name: str) -> None:
    """Enqueue the task of a schedule now, and print its id. Its ticks come all the same."""

    async def work(app: "App") -> None:
        task_id = await app.operator.schedules.trigger(name)
        asked.output.say(task_id, {"schedule": name, "id": task_id})

    asked.run(work)


@schedules.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@audited
@pass_asked
def remove(asked: Asked, names: tuple[str, ...]) -> None:
    """Forget schedules; tasks that they have enqueued stay."""

    async def work(app: "App") -> None:
        for name in names:
            status = await app.operator.schedules.get(name)
            await app.operator.schedules.remove(name)
            asked.output.say(f"removed {name}", {"schedule": name, "removed": True})
            if status.schedule.declared:
                told = f"{name} is declared in code: it comes back when that declaration changes, not before"
                asked.output.note(told, warning=True)

    asked.run(work)


@schedules.command("next")
@click.argument("name")
@click.option("-n", "number", type=click.IntRange(1, MAX_UPCOMING), default=5, show_default=True)
@pass_asked
def upcoming(asked: Asked, name: str, number: int) -> None:
    """Show the next ticks of a schedule, in its own time zone and in UTC."""

    async def work(app: "App") -> None:
        schedule = (await app.operator.schedules.get(name)).schedule
        now = await app.operator.now()
        asked.output.items(
            await app.operator.schedules.upcoming(name, number),
            (
                Column("tick", lambda tick: _wall(schedule, tick)),
                Column("utc", iso),
                Column("", lambda tick: ago(tick, now)),
            ),
            lambda tick: {"schedule": name, "at": iso(tick)},
            none=f"{name} has no ticks to come",
        )
        if schedule.paused:
            asked.output.note(f"{name} is paused: none of them will be fired", warning=True)

    asked.run(work)


def _is_stray(app: "App", schedule: Schedule) -> bool:
    """Whether code declares it, or did, but not the code that is at hand."""
    return bool(app.types) and schedule.declared and schedule.name not in app.schedules.names


def _columns(now: datetime) -> Sequence[Column[ScheduleStatus]]:
    return (
        Column("schedule", lambda one: one.schedule.name, elastic=True, keeps_end=True),
        Column("rule", lambda one: rule_text(one.schedule)),
        Column("zone", lambda one: one.schedule.zone if one.schedule.cron else "", optional=True),
        Column("type", lambda one: one.schedule.type, elastic=True, keeps_end=True),
        Column("next", lambda one: ago(one.next_at, now)),
        Column("last", lambda one: ago(one.last_at, now)),
        Column("state", _state),
    )


def _state(status: ScheduleStatus) -> Styled:
    if status.error is not None:
        return "broken", "bold red"
    return ("paused", "yellow") if status.schedule.paused else ("active", "green")


def _wall(schedule: Schedule, instant: datetime) -> str:
    """An instant as the clocks of the schedule's zone show it."""
    if schedule.cron is None:
        return iso(instant)
    return instant.astimezone(ZoneInfo(schedule.zone)).strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _fields(status: ScheduleStatus, now: datetime, *, reveal: bool) -> list[tuple[str, str | Styled]]:
    schedule = status.schedule
    return [
        ("schedule", schedule.name),
        ("state", _state(status)),
        ("error", (status.error or "", "red")),
        ("rule", rule_text(schedule)),
        ("zone", schedule.zone if schedule.cron else ""),
        ("next", stamp(status.next_at, now)),
        ("last", stamp(status.last_at, now)),
        ("last task", status.task_id or ""),
        ("missed", _missed(schedule)),
        ("overlap", str(schedule.overlap)),
        ("jitter", _length(schedule.jitter)),
        ("type", schedule.type),
        ("queue", schedule.queue),
        ("tenant", schedule.tenant),
        ("priority", str(schedule.priority)),
        ("attempts", str(schedule.max_attempts)),
        ("timeout", _length(schedule.timeout)),
        ("declared", "in code" if schedule.declared else "by an operator"),
        ("payload", compact(shown_payload(schedule.payload, schedule.secret, reveal=reveal))),
    ]


def _missed(schedule: Schedule) -> str:
    bound = f", at most {schedule.at_most}" if schedule.missed is Missed.ALL else ""
    return f"{schedule.missed}{bound}"


def _length(duration: timedelta | None) -> str:
    return span(duration.total_seconds()) if duration else ""


def _document(status: ScheduleStatus, *, reveal: bool = False) -> dict[str, Any]:
    schedule = status.schedule
    return {
        "schedule": schedule.name,
        "next_at": None if status.next_at is None else iso(status.next_at),
        "last_at": None if status.last_at is None else iso(status.last_at),
        "task_id": status.task_id,
        "error": status.error,
        **{key: value for key, value in plain(schedule).items() if key not in _INTERNAL},
        "payload": shown_payload(schedule.payload, schedule.secret, reveal=reveal),
    }
