"""Commands that change something: who and why for the audit log; tasks chosen by id or by filter."""

import getpass
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from .._model.filter import By, Filter
from .._policy.input.quote import counted
from ..errors import NotFound, Refused
from .command import Cli
from .exit_codes import ExitCode, report
from .filters import FilterOptions
from .options import stacked, task_id
from .output import Document

if TYPE_CHECKING:
    from .._client.operator import Operator
    from ..app import App

F = TypeVar("F", bound=Callable[..., Any])


class TaskAction(Struct, frozen=True, kw_only=True):
    """What an operator does to tasks: to one, which raises if it cannot be done, or to all that match.

    `one` may return a remark. `many` takes the largest number of tasks to touch, None for any.
    """

    verb: str
    past: str
    one: Callable[["Operator", str, By], Awaitable[str | None]]
    many: Callable[["Operator", Filter, By, int | None], Awaitable[int]]


class TaskSelection(FilterOptions):
    """The options of `action_options` and `filter_options` together."""

    ids: tuple[str, ...]
    everything: bool
    yes: bool


def _keep_by(context: click.Context, option: click.Parameter, value: str | None) -> None:
    cli = context.ensure_object(Cli)
    cli.by = replace(cli.by or By(who=_user_at_host(), why=""), **({option.name: value} if value else {}))


def _by_option(name: str, metavar: str, text: str) -> Callable[[F], F]:
    return click.option(name, metavar=metavar, help=text, callback=_keep_by, expose_value=False)


who_option = _by_option("--who", "NAME", "Who does it  [default: USER@HOST]")
"""The option `--who` of audited commands."""

audit_options = stacked(who_option, _by_option("--why", "TEXT", "Reason, kept in the audit log"))
"""The options of a command that the audit log records: who and why."""


def action_options(verb: str, *, why_required: bool = False) -> Callable[[F], F]:
    """The options of a command that acts on tasks."""
    why = "Reason, kept in the audit log" + ("  [required]" if why_required else "")
    return stacked(
        click.argument("ids", nargs=-1, type=task_id, metavar="[ID]..."),
        click.option(
            "--all", "everything", is_flag=True, help=f"{verb.capitalize()} every task that matches"
        ),
        _by_option("--why", "TEXT", why),
        who_option,
        click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation"),
    )


def apply_action(
    cli: Cli, action: TaskAction, selection: TaskSelection, where: Filter, *, filtered: bool
) -> None:
    """Apply the action to the ids given, or to the tasks that match once the user confirms their number.

    `filtered`: whether an option of the filter was given; without ids, filter and --all it is a usage error.
    """
    context = click.get_current_context()
    ids, by_filter = selection["ids"], selection["everything"] or filtered
    if ids and by_filter:
        raise click.UsageError("Give ids or filters, not both", context)
    if not ids and not by_filter:
        raise click.UsageError(f"Give task ids, filters, or --all to {action.verb} every task", context)
    if ids:
        cli.run(lambda app: _apply_to_each(cli, app, action, ids))
    else:
        cli.run(lambda app: _apply_to_matching(cli, app, action, where, yes=selection["yes"]))


async def _apply_to_each(cli: Cli, app: "App", action: TaskAction, ids: tuple[str, ...]) -> None:
    """Apply the action to one id after the other; of several, report those refused and do the rest."""
    assert cli.by is not None
    refused = False
    for one in ids:
        try:
            remark = await action.one(app.operator, one, cli.by)
        except (Refused, NotFound) as error:
            if len(ids) == 1:
                raise
            report(error.code, str(error), as_json=cli.as_json)
            refused = True
        else:
            cli.output.say(f"{action.past} {one}{remark or ''}", {"id": one, "done": action.past})
    if refused:
        raise click.exceptions.Exit(ExitCode.REFUSED)


async def _apply_to_matching(cli: Cli, app: "App", action: TaskAction, where: Filter, *, yes: bool) -> None:
    assert cli.by is not None
    counts = await app.operator.count(where)
    found, exact = sum(count.number for count in counts), all(count.exact for count in counts)
    about = f"{'' if exact else 'about '}{counted(found, 'task')}"
    if found and not yes and not confirmed(f"{action.verb} {about}?"):
        raise Refused(f"not confirmed; {about} left unchanged (--yes skips the question)")
    # No more than were confirmed, should others match by now.
    limit = found if exact else None
    done = await action.many(app.operator, where, cli.by, limit) if found else 0
    cli.output.say(f"{action.past} {counted(done, 'task')}", {"done": action.past, "number": done})
    if exact and done < found:
        cli.output.note(
            f"{counted(found - done, 'task')} had changed meanwhile or could not be {action.past}"
        )


def confirmed(question: str) -> bool:
    """Ask on stderr; no answer (end of input) means no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return False


def for_each_name(
    cli: Cli, names: tuple[str, ...], past: str, act: Callable[["App", str], Awaitable[Document]]
) -> None:
    """Act on one name after the other, say so, and print the document that `act` returns with --json."""

    async def work(app: "App") -> None:
        for name in names:
            cli.output.say(f"{past} {name}", await act(app, name))

    cli.run(work)


def _user_at_host() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container whose user id has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
