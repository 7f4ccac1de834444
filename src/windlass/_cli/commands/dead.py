"""`windlass dead`: list, show, replay and discard dead letters."""

from typing import TYPE_CHECKING, Unpack

import click

from ..._model.filter import By
from ..._model.state import State
from ..._policy.input.payload import parse_payload
from ...errors import InvalidOption, Refused
from ..command import Cli, Commands, pass_cli
from ..filters import filter_options, finished_filter, is_filtered, page_of, page_options
from ..operator_actions import TaskAction, TaskSelection, action_options, apply_action
from ..options import rate, task_id
from ..task_tables import dead_columns
from .tasks import ListOptions, print_task, print_tasks

if TYPE_CHECKING:
    from ..._client.operator import Operator
    from ...app import App

_DEAD = (State.DEAD,)


@click.group(cls=Commands)
def dead() -> None:
    """List, show, replay and discard dead letters."""


@dead.command("list")
@filter_options("died")
@page_options
@click.option("--reveal", is_flag=True, help="Show secret fields of payloads")
@pass_cli
def list_dead(cli: Cli, reveal: bool, **options: Unpack[ListOptions]) -> None:
    """List dead letters, newest task first."""
    where = finished_filter(options, _DEAD)
    print_tasks(cli, where, page_of(options), dead_columns, reveal=reveal, none="no dead letters match")


@dead.command("show")
@click.argument("id", type=task_id)
@click.option("--reveal", is_flag=True, help="Show secret fields of the payload")
@pass_cli
def show(cli: Cli, id: str, reveal: bool) -> None:
    """Show a dead letter: its payload, last error and attempts."""

    async def work(app: "App") -> None:
        task = await app.operator.task(id)
        if task.state is not State.DEAD:
            raise Refused(f"task {id} is {task.state}, not dead; see `windlass tasks show {id}`")
        await print_task(cli, app, task, reveal=reveal)

    cli.run(work)


@dead.command("replay")
@action_options("replay")
@filter_options("died")
@click.option("--payload", metavar="JSON", help="New payload, for a single task")
@click.option("--rate", type=rate, help="At most this many per time: 5/s, 300/m  [default: all at once]")
@pass_cli
def replay(cli: Cli, payload: str | None, rate: float | None, **selection: Unpack[TaskSelection]) -> None:
    """Replay dead tasks by id or by filter.

    They become ready again, with their attempts counted from 0. By id, cancelled tasks can be replayed, too.
    """
    edited = None if payload is None else parse_payload(payload)
    if edited is not None and len(selection["ids"]) != 1:
        raise InvalidOption("--payload needs exactly one task id")

    async def replay_one(operator: "Operator", task_id: str, by: By) -> None:
        await operator.replay_one(task_id, by=by, payload=edited)

    action = TaskAction(
        verb="replay",
        past="replayed",
        one=replay_one,
        many=lambda operator, where, by, limit: operator.replay(where, by=by, per_second=rate, limit=limit),
    )
    where = finished_filter(selection, _DEAD)
    apply_action(cli, action, selection, where, filtered=is_filtered(selection))


@dead.command("discard")
@action_options("discard", why_required=True)
@filter_options("died")
@pass_cli
def discard(cli: Cli, **selection: Unpack[TaskSelection]) -> None:
    """Delete dead tasks for good, by id or by filter."""
    if cli.by is None or not cli.by.why.strip():
        raise click.UsageError("Discarding is final: give a reason with --why", click.get_current_context())

    async def discard_one(operator: "Operator", task_id: str, by: By) -> None:
        await operator.discard_one(task_id, by=by)

    action = TaskAction(
        verb="discard",
        past="discarded",
        one=discard_one,
        many=lambda operator, where, by, limit: operator.discard(where, by=by, limit=limit),
    )
    where = finished_filter(selection, _DEAD)
    apply_action(cli, action, selection, where, filtered=is_filtered(selection))
