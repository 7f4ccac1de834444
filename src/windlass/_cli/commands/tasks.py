"""`windlass tasks`: list, show and cancel tasks."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

import click
from msgspec.structs import asdict, replace

from ..._documents.tasks import attempt_document, task_document
from ..._model.filter import MAX_PAGE, By, Filter, Page
from ..._model.state import ENDED, State
from ..._model.task import Task
from ..command import Cli, Commands, pass_cli
from ..filters import (
    FilterOptions,
    PageOptions,
    created_filter,
    filter_options,
    is_filtered,
    page_of,
    page_options,
)
from ..operator_actions import TaskAction, TaskSelection, action_options, apply_action
from ..options import task_id
from ..output import Column
from ..task_tables import attempt_columns, show_task, show_traceback, task_columns

if TYPE_CHECKING:
    from ..._client.operator import Operator
    from ...app import App

_state_option = click.option(
    "--state",
    "states",
    type=click.Choice([str(state) for state in State]),
    multiple=True,
    help="Only this state (repeatable)",
)


class ListOptions(FilterOptions, PageOptions):
    """The options of a list of tasks."""


@click.group(cls=Commands)
def tasks() -> None:
    """List, show and cancel tasks."""


@tasks.command("list")
@_state_option
@filter_options("created")
@page_options
@click.option("--reveal", is_flag=True, help="Show secret fields of payloads and results")
@pass_cli
def list_tasks(cli: Cli, states: tuple[str, ...], reveal: bool, **options: Unpack[ListOptions]) -> None:
    """List tasks, newest first."""
    where = created_filter(options, tuple(State(state) for state in states))
    print_tasks(cli, where, page_of(options), task_columns, reveal=reveal, none="no tasks match")


@tasks.command("show")
@click.argument("id", type=task_id)
@click.option("--reveal", is_flag=True, help="Show secret fields of payload and result")
@pass_cli
def show(cli: Cli, id: str, reveal: bool) -> None:
    """Show a task with its attempts."""

    async def work(app: "App") -> None:
        await print_task(cli, app, await app.operator.task(id), reveal=reveal)

    cli.run(work)


@tasks.command("attempts")
@click.argument("id", type=task_id)
@pass_cli
def attempts(cli: Cli, id: str) -> None:
    """List the attempts of a task, oldest first."""

    async def work(app: "App") -> None:
        task = await app.operator.task(id)
        made = await app.operator.attempts(task.id)
        now = await app.operator.now()
        cli.output.items(made, attempt_columns(now), attempt_document, none="no attempt has ended yet")

    cli.run(work)


@tasks.command("cancel")
@action_options("cancel")
@_state_option
@filter_options("created")
@pass_cli
def cancel(cli: Cli, states: tuple[str, ...], **selection: Unpack[TaskSelection]) -> None:
    """Cancel tasks by id or by filter.

    Pending tasks never start; running tasks are asked to stop.
    """

    async def cancel_one(operator: "Operator", task_id: str, by: By) -> str | None:
        state = await operator.cancel_one(task_id, by=by)
        return " (running: it was asked to stop)" if state is State.RUNNING else None

    action = TaskAction(
        verb="cancel",
        past="cancelled",
        one=cancel_one,
        many=lambda operator, where, by, limit: operator.cancel(where, by=by, limit=limit),
    )
    unended = tuple(state for state in State if state not in ENDED)
    where = created_filter(selection, tuple(State(state) for state in states) or unended)
    apply_action(cli, action, selection, where, filtered=bool(states) or is_filtered(selection))


def print_tasks(
    cli: Cli,
    where: Filter,
    page: Page,
    columns: Callable[[datetime], Sequence[Column[Task]]],
    *,
    reveal: bool,
    none: str,
) -> None:
    """Print a page of the tasks that match, and the cursor of the next page."""

    async def work(app: "App") -> None:
        found, cursor = await _find(app, where, page)
        table = columns(await app.operator.now())
        cli.output.items(found, table, lambda task: task_document(task, reveal=reveal), none=none)
        if cursor is not None:
            cli.output.note(f"more tasks match; --cursor {cursor} lists the next ones")

    cli.run(work)


async def _find(app: "App", where: Filter, page: Page) -> tuple[list[Task], str | None]:
    """Read a page that may be longer than the store's; return its tasks and the cursor of the next."""
    found: list[Task] = []
    cursor = page.cursor
    while len(found) < page.limit:
        room = min(page.limit - len(found), MAX_PAGE)
        part = await app.operator.find(where, replace(page, limit=room, cursor=cursor))
        found += part.items
        cursor = part.cursor
        if cursor is None:
            break
    return found, cursor


async def print_task(cli: Cli, app: "App", task: Task, *, reveal: bool) -> None:
    """Print a task with its attempts and its traceback."""
    made = await app.operator.attempts(task.id)
    if cli.as_json:
        entries = [attempt_document(attempt) for attempt in made]
        document = asdict(task_document(task, reveal=reveal))
        cli.output.document({**document, "attempts": entries})
        return
    now = await app.operator.now()
    show_task(cli.output, task, now, reveal=reveal)
    show_traceback(cli.output, task.error)
    if made:
        cli.output.heading("attempts")
        cli.output.items(made, attempt_columns(now), attempt_document, none="")
