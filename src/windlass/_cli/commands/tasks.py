"""`windlass tasks`: find tasks, look into one, stop some."""

from typing import TYPE_CHECKING, Unpack

import click
from msgspec.structs import replace

from ..._model.filter import MAX_PAGE, Filter, Page
from ..._model.state import ENDED, State
from ..._model.task import Task
from ..command import Asked, Commands, pass_asked
from ..documents import attempt_document, task_document
from ..filters import Wanted, created, filter_options, is_set
from ..operator_actions import Deed, acting_options, by, perform
from ..options import LIMIT, task_id
from ..task_tables import attempt_columns, show_task, show_traceback, task_columns

if TYPE_CHECKING:
    from ..._client.operator import Operator
    from ...app import App

_STATES = click.Choice([str(state) for state in State])


@click.group(cls=Commands)
def tasks() -> None:
    """Find tasks, look into one, cancel some."""


@tasks.command("list")
@click.option("--state", "states", type=_STATES, multiple=True, help="In this state (repeatable).")
@filter_options("created")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.option(
    "--cursor", type=task_id, metavar="ID", help="Go on after this one, the last of the page before."
)
@click.option("--oldest", is_flag=True, help="Oldest first.")
@click.option("--reveal", is_flag=True, help="Show secrets in payloads and results.")
@pass_asked
def list_tasks(
    asked: Asked,
    states: tuple[str, ...],
    limit: int,
    cursor: str | None,
    oldest: bool,
    reveal: bool,
    **wanted: Unpack[Wanted],
) -> None:
    """List tasks, newest first."""
    where = created(wanted, tuple(State(state) for state in states))
    page = Page(limit=limit, cursor=cursor, newest_first=not oldest)

    async def work(app: "App") -> None:
        found, more = await gather(app, where, page)
        now = await app.operator.now()
        asked.output.items(
            found, task_columns(now), lambda task: task_document(task, reveal=reveal), none="no such tasks"
        )
        if more is not None:
            asked.output.note(f"there are more: --cursor {more}")

    asked.run(work)


@tasks.command("show")
@click.argument("id", type=task_id)
@click.option("--reveal", is_flag=True, help="Show secrets in payload and result.")
@pass_asked
def show(asked: Asked, id: str, reveal: bool) -> None:
    """Show everything about a task."""

    async def work(app: "App") -> None:
        await show_one(asked, app, await app.operator.task(id), reveal=reveal)

    asked.run(work)


@tasks.command("attempts")
@click.argument("id", type=task_id)
@pass_asked
def attempts(asked: Asked, id: str) -> None:
    """List the attempts of a task, oldest first."""

    async def work(app: "App") -> None:
        task = await app.operator.task(id)
        made = await app.operator.attempts(task.id)
        now = await app.operator.now()
        asked.output.items(made, attempt_columns(now), attempt_document, none="no attempt has ended yet")

    asked.run(work)


@tasks.command("cancel")
@acting_options("cancel")
@click.option("--state", "states", type=_STATES, multiple=True, help="In this state (repeatable).")
@filter_options("created")
@pass_asked
def cancel(
    asked: Asked,
    /,
    *,
    ids: tuple[str, ...],
    everything: bool,
    why: str,
    who: str | None,
    yes: bool,
    states: tuple[str, ...],
    **wanted: Unpack[Wanted],
) -> None:
    """Cancel tasks: pending ones never start, running ones are asked to stop."""
    someone = by(who, why)

    async def one(operator: "Operator", task_id: str) -> str | None:
        state = await operator.cancel_one(task_id, by=someone)
        return " (running: it has been asked to stop)" if state is State.RUNNING else None

    deed = Deed(
        verb="cancel",
        past="cancelled",
        one=one,
        many=lambda operator, where, limit: operator.cancel(where, by=someone, limit=limit),
    )
    unended = tuple(state for state in State if state not in ENDED)
    where = created(wanted, tuple(State(state) for state in states) or unended)
    perform(asked, deed, ids, where, chosen=everything or bool(states) or is_set(wanted), yes=yes)


async def gather(app: "App", where: Filter, page: Page) -> tuple[list[Task], str | None]:
    """So many tasks, a page of the store at a time, and the cursor for more."""
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


async def show_one(asked: Asked, app: "App", task: Task, *, reveal: bool) -> None:
    """A task with its attempts and its traceback."""
    made = await app.operator.attempts(task.id)
    if asked.as_json:
        entries = [attempt_document(attempt) for attempt in made]
        asked.output.document({**task_document(task, reveal=reveal), "attempts": entries})
        return
    now = await app.operator.now()
    show_task(asked.output, task, now, reveal=reveal)
    show_traceback(asked.output, task.error)
    if made:
        asked.output.heading("attempts")
        asked.output.items(made, attempt_columns(now), attempt_document, none="")
