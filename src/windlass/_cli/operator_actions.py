"""Commands that change something: who and why for the audit log; tasks chosen by id or by filter."""

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from .._client.operator import Operator
from .._model.filter import By, Filter
from .._model.state import State
from .._model.task import Task
from .._policy.input.quote import counted
from .._policy.secrets.shown import masked_task
from ..config import user_name
from ..errors import NotFound, Refused
from .command import Cli, interruptible, on_store
from .exit_codes import ExitCode, report
from .options import stacked, task_id_or_prefix
from .output import Document
from .task_ids import whole_id

F = TypeVar("F", bound=Callable[..., Any])


class TaskAction(Struct, frozen=True, kw_only=True):
    """What an operator does to tasks: to one, which raises if it cannot be done, or to all that match.

    `one` may return the state of the task. `many` takes the largest number of tasks to touch, None for any.
    `states` are those it applies to if the filter names none.
    """

    verb: str
    past: str
    states: tuple[State, ...]
    one: Callable[[Operator, str, By], Awaitable[State | None]]
    many: Callable[[Operator, Filter, By, int | None], Awaitable[int]]


def _keep_by(context: click.Context, option: click.Parameter, value: str | None) -> None:
    cli = context.ensure_object(Cli)
    cli.by = replace(cli.by or By(who=_user_at_host(), why=""), **({option.name: value} if value else {}))


def _by_option(name: str, metavar: str, text: str) -> Callable[[F], F]:
    return click.option(name, metavar=metavar, help=text, callback=_keep_by, expose_value=False)


who_option = _by_option("--who", "NAME", "Who does it  [default: USER@HOST]")
"""The option `--who` of audited commands."""

audit_options = stacked(who_option, _by_option("--why", "TEXT", "Reason, kept in the audit log"))
"""The options of a command that the audit log records: who and why."""


def reveal_option(what: str) -> Callable[[F], F]:
    """The option `--reveal` of a command that shows tasks or schedules; with it, the command is audited."""

    def keep(context: click.Context, _option: click.Parameter, value: bool) -> bool:
        cli = context.ensure_object(Cli)
        if value and cli.by is None:
            cli.by = By(who=_user_at_host())
        return value

    text = f"{what}; kept in the audit log"
    return click.option("--reveal", is_flag=True, help=text, callback=keep)


async def shown_tasks(cli: Cli, tasks: Sequence[Task], *, reveal: bool) -> Sequence[Task]:
    """Return tasks as they are shown: without secrets or, with `reveal`, recorded in the audit log."""
    if reveal:
        await cli.operator.reveal([task.id for task in tasks])
        return tasks
    return [masked_task(task) for task in tasks]


def action_options(verb: str, *, why_required: bool = False) -> Callable[[F], F]:
    """The options of a command that acts on tasks; it needs the options of a filter, too."""
    why = "Reason, kept in the audit log" + ("  [required]" if why_required else "")
    return stacked(
        click.argument("ids", nargs=-1, type=task_id_or_prefix, metavar="[ID]..."),
        click.option(
            "--all", "everything", is_flag=True, help=f"{verb.capitalize()} every task that matches"
        ),
        _by_option("--why", "TEXT", why),
        who_option,
        click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation"),
    )


def apply_action(cli: Cli, action: TaskAction, where: Filter, *, everything: bool, yes: bool) -> None:
    """Apply the action to the ids given, or to the tasks that match once the user confirms their number.

    It is a usage error to give ids and a filter, or neither of them nor --all (`everything`).
    """
    context = click.get_current_context()
    ids, by_filter = where.ids, everything or any(asdict(replace(where, ids=None)).values())
    if ids and by_filter:
        raise click.UsageError("Give ids or filters, not both", context)
    if not ids and not by_filter:
        raise click.UsageError(f"Give task ids, filters, or --all to {action.verb} every task", context)
    if ids:
        cli.run(lambda: _apply_to_each(cli, action, ids))
    else:
        where = replace(where, states=where.states or action.states)
        cli.run(lambda: _apply_to_matching(cli, action, where, yes=yes))


async def _apply_to_each(cli: Cli, action: TaskAction, ids: tuple[str, ...]) -> None:
    """Apply the action to one id after the other; of several, report those refused and do the rest."""
    assert cli.by is not None
    refused = False
    for one in ids:
        try:
            task_id = await whole_id(cli.operator, one)
            state = await action.one(cli.operator, task_id, cli.by)
        except (Refused, NotFound) as error:
            if len(ids) == 1:
                raise
            report(error.code, str(error), as_json=cli.as_json)
            refused = True
        else:
            remark = " (running: it was asked to stop)" if state is State.RUNNING else ""
            cli.output.say(f"{action.past} {task_id}{remark}", {"id": task_id, "done": action.past})
    if refused:
        raise click.exceptions.Exit(ExitCode.REFUSED)


async def _apply_to_matching(cli: Cli, action: TaskAction, where: Filter, *, yes: bool) -> None:
    assert cli.by is not None
    counts = await cli.operator.count(where)
    found, exact = sum(count.number for count in counts), all(count.exact for count in counts)
    about = f"{'' if exact else 'about '}{counted(found, 'task')}"
    if found and not yes and not confirmed(f"{action.verb} {about}?"):
        raise Refused(f"not confirmed; {about} left unchanged (--yes skips the question)")
    # No more than were confirmed, should others match by now.
    limit = found if exact else None
    done = await action.many(cli.operator, where, cli.by, limit) if found else 0
    cli.output.say(f"{action.past} {counted(done, 'task')}", {"done": action.past, "number": done})
    if exact and done < found:
        cli.output.note(
            f"{counted(found - done, 'task')} had changed meanwhile or could not be {action.past}"
        )


def confirmed(question: str) -> bool:
    """Ask on stderr; no answer (end of input, Ctrl-C) means no."""
    try:
        with interruptible():
            return click.confirm(question, err=True)
    except click.Abort:
        return False


def name_command(
    group: click.Group,
    verb: str,
    past: str,
    *,
    metavar: str = "NAME...",
    after: Callable[[Cli, str], Awaitable[None]] | None = None,
) -> Callable[[Callable[[Cli, str], Awaitable[Document]]], click.Command]:
    """Make an audited command of `act`, which acts on a name, or on several if the metavar ends in "...".

    Prints each name, or with --json the document that `act` returns; then calls `after`.
    """

    def decorate(act: Callable[[Cli, str], Awaitable[Document]]) -> click.Command:
        @group.command(verb, help=act.__doc__)
        @click.argument("names", nargs=-1 if metavar.endswith("...") else 1, required=True, metavar=metavar)
        @audit_options
        @on_store
        async def run(cli: Cli, names: str | tuple[str, ...]) -> None:
            for name in (names,) if isinstance(names, str) else names:
                cli.output.say(f"{past} {name}", await act(cli, name))
                if after is not None:
                    await after(cli, name)

        return run

    return decorate


def _user_at_host() -> str:
    return f"{user_name()}@{socket.gethostname()}"
