"""`windlass tasks`: list, show and cancel tasks."""

from collections.abc import Callable, Sequence
from datetime import datetime

import click
from msgspec.structs import asdict, replace

from ..._documents.tasks import attempt_document, task_document
from ..._documents.workers import last_stuck, worker_document
from ..._model.filter import MAX_PAGE, Filter, Page
from ..._model.state import ENDED, State
from ..._model.task import Task
from ..command import Cli, Commands, on_store, pass_cli
from ..filters import filter_options, page_options
from ..operator_actions import TaskAction, action_options, apply_action, reveal_option, shown_tasks
from ..options import task_id_or_prefix
from ..output import Column
from ..task_ids import whole_id
from ..task_tables import attempt_columns, show_task, task_columns


@click.group(cls=Commands)
def tasks() -> None:
    """List, show and cancel tasks."""


@tasks.command("list")
@filter_options
@page_options
@reveal_option("Show secret fields of payloads and results")
@on_store
async def list_tasks(cli: Cli, where: Filter, page: Page, reveal: bool) -> None:
    """List tasks, newest first."""
    await print_tasks(cli, where, page, task_columns, reveal=reveal, none="no tasks match")


@tasks.command("show")
@click.argument("id", type=task_id_or_prefix)
@reveal_option("Show secret fields of payload and result")
@on_store
async def show(cli: Cli, id: str, reveal: bool) -> None:
    """Show a task with its attempts."""
    task_id = await whole_id(cli.operator, id)
    await print_task(cli, await cli.operator.task(task_id), reveal=reveal)


@tasks.command("attempts")
@click.argument("id", type=task_id_or_prefix)
@on_store
async def attempts(cli: Cli, id: str) -> None:
    """List the attempts of a task, oldest first."""
    task = await cli.operator.task(await whole_id(cli.operator, id))
    made = await cli.operator.attempts(task.id)
    now = await cli.operator.now()
    cli.output.items(made, attempt_columns(now), attempt_document, none="no attempt has ended yet")


@tasks.command("cancel")
@action_options("cancel")
@filter_options
@pass_cli
def cancel(cli: Cli, where: Filter, everything: bool, yes: bool) -> None:
    """Cancel tasks by id or by filter.

    Pending tasks never start; running tasks are asked to stop.
    """
    action = TaskAction(
        verb="cancel",
        past="cancelled",
        states=tuple(state for state in State if state not in ENDED),
        one=lambda operator, task_id, by: operator.cancel_one(task_id, by=by),
        many=lambda operator, where, by, limit: operator.cancel(where, by=by, limit=limit),
    )
    apply_action(cli, action, where, everything=everything, yes=yes)


async def print_tasks(
    cli: Cli,
    where: Filter,
    page: Page,
    columns: Callable[[datetime], Sequence[Column[Task]]],
    *,
    reveal: bool,
    none: str,
) -> None:
    """Print a page of the tasks that match, which may be longer than the store's, and the next cursor."""
    found: list[Task] = []
    cursor = page.cursor
    while len(found) < page.limit:
        room = min(page.limit - len(found), MAX_PAGE)
        part = await cli.operator.find(where, replace(page, limit=room, cursor=cursor))
        found += part.items
        cursor = part.cursor
        if cursor is None:
            break
    table = columns(await cli.operator.now())
    shown = await shown_tasks(cli, found, reveal=reveal)
    cli.output.items(shown, table, lambda task: task_document(task, reveal=True), none=none)
    if cursor is not None:
        cli.output.note(f"more tasks match; --cursor {cursor} lists the next ones")


async def print_task(cli: Cli, task: Task, *, reveal: bool) -> None:
    """Print a task with its attempts and its traceback."""
    (task,) = await shown_tasks(cli, [task], reveal=reveal)
    made = await cli.operator.attempts(task.id)
    if cli.as_json:
        entries = [attempt_document(attempt) for attempt in made]
        document = asdict(task_document(task, reveal=True))
        cli.output.document({**document, "attempts": entries})
        return
    now = await cli.operator.now()
    workers = [] if task.timeout is None else await cli.operator.workers()
    show_task(cli.output, task, now, last_stuck([worker_document(one, now) for one in workers], task.id))
    if made:
        cli.output.heading("attempts")
        cli.output.items(made, attempt_columns(now), attempt_document, none="")
