"""`windlass schedules`: list, add, pause, resume, trigger and remove schedules."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from ..._client.builder import checked_payload
from ..._client.schedules import MAX_UPCOMING, ScheduleStatus
from ..._documents.schedules import schedule_document
from ..._model.schedule import Missed, Overlap, Schedule
from ..._policy.schedule import MAX_AT_MOST, rule_text
from ..command import Cli, Commands, on_store, pass_cli
from ..operator_actions import audit_options, name_command, reveal_option
from ..options import choice_option, duration, number_option
from ..output import Column, Document, Styled
from ..text import ago, duration_text, iso, json_text, stamp
from .enqueue import declared_type, task_options


@click.group(cls=Commands)
def schedules() -> None:
    """List, add, pause, trigger and remove schedules."""


@schedules.command("list")
@on_store
async def list_schedules(cli: Cli) -> None:
    """List schedules with their rule, next and last tick."""
    found = await cli.operator.schedules.list()
    none = "there are no schedules; `windlass schedules add NAME TYPE '0 3 * * *'` adds one"
    cli.output.items(found, _columns(await cli.operator.now()), schedule_document, none=none)
    declared = [one.schedule.name for one in found if one.schedule.declared] if cli.app.types else []
    undeclared = [name for name in declared if name not in cli.app.schedules.names]
    if undeclared:
        cli.output.note(
            f"declared in code, but not by this app: {', '.join(undeclared)}; "
            f"if no other app declares them, remove them with `windlass schedules remove`"
        )


@schedules.command("show")
@click.argument("name")
@reveal_option("Show secret fields of the payload")
@on_store
async def show(cli: Cli, name: str, reveal: bool) -> None:
    """Show a schedule."""
    found = cli.operator.schedules
    status = await (found.reveal(name) if reveal else found.get(name))
    if cli.as_json:
        cli.output.document(schedule_document(status, reveal=reveal))
    else:
        cli.output.fields(_fields(status, await cli.operator.now(), reveal=reveal))


@schedules.command("add")
@click.argument("name")
@click.argument("type")
@click.argument("rule")
@click.argument("payload", required=False, metavar="[JSON]")
@click.option(
    "--zone", default="UTC", show_default=True, metavar="ZONE", help="Time zone of a cron expression"
)
@choice_option(
    "--missed",
    of=Missed,
    default=Missed.SKIP,
    help="Ticks missed while no keeper ran: skip them, fire the last one once, or fire all",
)
@number_option("--at-most", most=MAX_AT_MOST, help="With --missed all: only the last N ticks  [default: 100]")
@choice_option(
    "--overlap",
    of=Overlap,
    default=Overlap.ALLOW,
    help="Ticks while the task of an earlier tick has not ended: fire them, or skip them",
)
@click.option("--jitter", type=duration, help="Delay each task by a random time up to this  [default: none]")
@task_options
@click.option("--expires", type=duration, help="Time within which each task must start  [default: none]")
@click.option("--replace", "instead", is_flag=True, help="Replace the schedule of the same name")
@audit_options
@pass_cli
def add(
    cli: Cli,
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
    """Add a schedule that enqueues a task of TYPE by RULE.

    RULE is a quoted cron expression, a name such as @daily, or an interval such as 10m. With --app the
    payload is checked against the handler's parameters, and the type's queue, attempts and timeout are the
    defaults.
    """
    options: Any = {key: value for key, value in given.items() if value is not None}
    spec = declared_type(cli, type, undeclared=undeclared)
    data = checked_payload(payload or "{}", spec)

    async def work() -> None:
        operator = cli.operator.schedules
        made = await operator.make(name, type, rule, data, spec, **options)
        await operator.put(made, instead=instead)
        status = await operator.get(name)
        when = "" if status.next_at is None else f"; next: {_local_time(status.schedule, status.next_at)}"
        cli.output.say(f"added {name}{when}", schedule_document(status))
        if status.schedule.paused:
            cli.output.note(
                f"{name} is paused, as the schedule it replaces was; "
                f"`windlass schedules resume {name}` resumes it"
            )

    cli.run(work, create=True)


@name_command(schedules, "pause", "paused")
async def pause(cli: Cli, name: str) -> Document:
    """Pause schedules; tasks they have enqueued are not affected."""
    await cli.operator.schedules.pause(name)
    return schedule_document(await cli.operator.schedules.get(name))


@name_command(schedules, "resume", "resumed")
async def resume(cli: Cli, name: str) -> Document:
    """Resume schedules with their next tick.

    Ticks that came while they were paused are not fired.
    """
    await cli.operator.schedules.resume(name)
    return schedule_document(await cli.operator.schedules.get(name))


@schedules.command("trigger")
@click.argument("name")
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat within 7 days returns the first task")
@audit_options
@on_store
async def trigger(cli: Cli, name: str, key: str | None) -> None:
    """Enqueue the task of a schedule now and print its id.

    The ticks of the schedule are not affected.
    """
    enqueued = await cli.operator.schedules.trigger_once(name, key)
    cli.output.say(enqueued.id, {"id": enqueued.id, "created": enqueued.created})
    if not enqueued.created:
        cli.output.note("no task was created: the idempotency key was used before")


@name_command(schedules, "remove", "removed")
async def remove(cli: Cli, name: str) -> Document:
    """Remove schedules; tasks they have enqueued stay."""
    status = await cli.operator.schedules.get(name)
    await cli.operator.schedules.remove(name)
    if status.schedule.declared:
        note = f"{name} is declared in code; it is added again when its declaration changes"
        cli.output.note(note, warning=True)
    return {"name": name, "removed": True}


@schedules.command("next")
@click.argument("name")
@number_option("-n", "number", most=MAX_UPCOMING, default=5, help="Number of ticks")
@on_store
async def upcoming(cli: Cli, name: str, number: int) -> None:
    """List the next ticks of a schedule.

    They are shown in its time zone and in UTC.
    """
    schedule = (await cli.operator.schedules.get(name)).schedule
    now = await cli.operator.now()
    cli.output.items(
        await cli.operator.schedules.upcoming(name, number),
        (
            Column("tick", lambda tick: _local_time(schedule, tick)),
            Column("utc", iso),
            Column("", lambda tick: ago(tick, now)),
        ),
        lambda tick: {"name": name, "at": tick},
        none=f"{name} has no more ticks",
    )
    if schedule.paused:
        cli.output.note(f"{name} is paused; these ticks are not fired", warning=True)


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


def _local_time(schedule: Schedule, instant: datetime) -> str:
    """An instant in the schedule's time zone."""
    if schedule.cron is None:
        return iso(instant)
    return instant.astimezone(ZoneInfo(schedule.zone)).strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _fields(status: ScheduleStatus, now: datetime, *, reveal: bool) -> list[tuple[str, str | Styled]]:
    schedule = status.schedule
    bound = f", at most {schedule.at_most}" if schedule.missed is Missed.ALL else ""
    return [
        ("schedule", schedule.name),
        ("state", _state(status)),
        ("error", (status.error or "", "red")),
        ("rule", rule_text(schedule)),
        ("zone", schedule.zone if schedule.cron else ""),
        ("next", stamp(status.next_at, now)),
        ("last", stamp(status.last_at, now)),
        ("last task", status.task_id or ""),
        ("missed", f"{schedule.missed}{bound}"),
        ("overlap", str(schedule.overlap)),
        ("jitter", duration_text(schedule.jitter)),
        ("type", schedule.type),
        ("queue", schedule.queue),
        ("tenant", schedule.tenant),
        ("priority", str(schedule.priority)),
        ("attempts", str(schedule.max_attempts)),
        ("timeout", duration_text(schedule.timeout)),
        ("expires", duration_text(schedule.expires)),
        ("declared", "in code" if schedule.declared else "by an operator"),
        ("payload", json_text(schedule_document(status, reveal=reveal).payload)),
    ]
