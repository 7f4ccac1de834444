"""`windlass dead`: list, show, replay and discard dead letters."""

from datetime import timedelta

import click
from msgspec.structs import replace

from ..._client.tasks.failures import MAX_FAILURES
from ..._documents.tasks import failure_document
from ..._model.filter import Filter, Page
from ..._model.state import State
from ..._policy.input.payload import parse_payload
from ...errors import InvalidOption, Refused
from ..command import Cli, Commands, on_store, pass_cli
from ..filters import dead_filter_options, page_options
from ..operator_actions import TaskAction, action_options, apply_action, reveal_option
from ..options import duration, number_option, rate, task_id_or_prefix
from ..task_ids import whole_id
from ..task_tables import dead_columns, failure_columns
from .tasks import print_task, print_tasks

_DEAD = (State.DEAD,)


@click.group(cls=Commands)
def dead() -> None:
    """List, group, show, replay and discard dead letters."""


@dead.command("list")
@dead_filter_options
@page_options
@reveal_option("Show secret fields of payloads")
@on_store
async def list_dead(cli: Cli, where: Filter, page: Page, reveal: bool) -> None:
    """List dead letters, newest task first."""
    where = replace(where, states=_DEAD)
    await print_tasks(cli, where, page, dead_columns, reveal=reveal, none="no dead letters match")


@dead.command("show")
@click.argument("id", type=task_id_or_prefix)
@reveal_option("Show secret fields of the payload")
@on_store
async def show(cli: Cli, id: str, reveal: bool) -> None:
    """Show a dead letter: its payload, last error and attempts."""
    task = await cli.operator.task(await whole_id(cli.operator, id))
    if task.state is not State.DEAD:
        raise Refused(f"task {task.id} is {task.state}, not dead; see `windlass tasks show {task.id}`")
    await print_task(cli, task, reveal=reveal)


@dead.command("failures")
@dead_filter_options
@number_option("--limit", most=MAX_FAILURES, default=MAX_FAILURES, help="At most N failures")
@on_store
async def list_failures(cli: Cli, where: Filter, limit: int) -> None:
    """List what dead letters failed with, most frequent first.

    The tasks of a failure have the same type, the same error but for numbers, names and other values, and it
    came from the same function. `--failure ID` lists, replays or discards them.
    """
    found = await cli.operator.failures(where, limit=limit)
    columns = failure_columns(await cli.operator.now())
    cli.output.items(found, columns, failure_document, none="no dead letters match")


@dead.command("replay")
@action_options("replay")
@dead_filter_options
@click.option("--payload", metavar="JSON", help="New payload, for a single task")
@click.option("--rate", type=rate, help="At this rate: 5/s, 300/m  [default: all at once]")
@click.option("--spread", type=duration, help="Evenly over this time: 10m  [default: all at once]")
@pass_cli
def replay(
    cli: Cli,
    /,
    *,
    where: Filter,
    everything: bool,
    yes: bool,
    payload: str | None,
    rate: float | None,
    spread: timedelta | None,
) -> None:
    """Replay dead tasks by id or by filter.

    They become ready again, with their attempts counted from 0. By id, cancelled tasks can be replayed, too.
    With --rate or --spread they are scheduled one after another, and become ready without this command.
    """
    edited = None if payload is None else parse_payload(payload)
    if edited is not None and len(where.ids or ()) != 1:
        raise InvalidOption("--payload needs exactly one task id")
    if rate is not None and spread is not None:
        raise click.UsageError("Give --rate or --spread, not both", click.get_current_context())
    if where.ids and (rate is not None or spread is not None):
        raise click.UsageError("--rate and --spread need a filter or --all", click.get_current_context())
    action = TaskAction(
        verb="replay",
        past="replayed",
        states=_DEAD,
        one=lambda operator, task_id, by: operator.replay_one(task_id, by=by, payload=edited),
        many=lambda operator, where, by, limit: operator.replay(
            where, by=by, per_second=rate, spread=spread, limit=limit
        ),
    )
    apply_action(cli, action, where, everything=everything, yes=yes)


@dead.command("discard")
@action_options("discard", why_required=True)
@dead_filter_options
@pass_cli
def discard(cli: Cli, where: Filter, everything: bool, yes: bool) -> None:
    """Delete dead tasks for good, by id or by filter."""
    if cli.by is None or not cli.by.why.strip():
        raise click.UsageError("Discarding is final: give a reason with --why", click.get_current_context())
    action = TaskAction(
        verb="discard",
        past="discarded",
        states=_DEAD,
        one=lambda operator, task_id, by: operator.discard_one(task_id, by=by),
        many=lambda operator, where, by, limit: operator.discard(where, by=by, limit=limit),
    )
    apply_action(cli, action, where, everything=everything, yes=yes)
