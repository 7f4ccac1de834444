"""Acting: who and why; and on tasks, by id or by filter, with a question before many are touched."""

import getpass
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from .._model.filter import By, Filter
from ..errors import NotFound, Refused
from .exit_codes import ExitCode, report
from .options import stacked, task_id

if TYPE_CHECKING:
    from .._client.operator import Operator
    from ..app import App
    from .command import Asked

F = TypeVar("F", bound=Callable[..., Any])


class Deed(Struct, frozen=True, kw_only=True):
    """Something an operator does: to one task, which says why not, or to all that match."""

    verb: str
    past: str
    one: Callable[["Operator", str], Awaitable[str | None]]  # what else there is to say
    many: Callable[["Operator", Filter, int | None], Awaitable[int]]


def acting_options(verb: str, *, why_needed: bool = False) -> Callable[[F], F]:
    """The options of a command that acts."""
    why = "Why: kept in the audit log" + (" (required)." if why_needed else ".")
    return stacked(
        click.argument("ids", nargs=-1, type=task_id, metavar="[ID]..."),
        click.option("--all", "everything", is_flag=True, help=f"{verb.capitalize()} all that match."),
        click.option("--why", default="", metavar="TEXT", help=why),
        click.option("--who", metavar="NAME", help="Who: kept in the audit log (default: you@host)."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask before touching many."),
    )


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    from .command import Asked

    asked = context.ensure_object(Asked)
    asked.by = replace(asked.by or by(None, ""), **({option.name: value} if value else {}))


named = click.option(
    "--who", metavar="NAME", help="Who does it (default: you@host).", callback=_keep, expose_value=False
)
"""The option of a command that acts in somebody's name."""

audited = stacked(
    named,
    click.option(
        "--why", metavar="TEXT", help="Why: kept in the audit log.", callback=_keep, expose_value=False
    ),
)
"""The options of a command that changes something else than tasks: whom the audit log names, and why."""


def by(who: str | None, why: str) -> By:
    """Who acts: as told, or else the user and the host."""
    return By(who=who or _user_at_host(), why=why)


def perform(
    asked: "Asked", deed: Deed, ids: tuple[str, ...], where: Filter, *, chosen: bool, yes: bool
) -> None:
    """Do it to these ids, or to what matches once that is confirmed; `chosen`: somebody did ask for that."""
    context = click.get_current_context()
    if ids and chosen:
        raise click.UsageError("Give ids, or filters, but not both", context)
    if not ids and not chosen:
        raise click.UsageError(f"Which tasks? Give ids, filters, or --all to {deed.verb} every one", context)
    if ids:
        asked.run(lambda app: _each(asked, app, deed, ids))
    else:
        asked.run(lambda app: _matching(asked, app, deed, where, yes=yes))


async def _each(asked: "Asked", app: "App", deed: Deed, ids: tuple[str, ...]) -> None:
    """One by one; several that are refused are each told, and the others done all the same."""
    refused = False
    for one in ids:
        try:
            aside = await deed.one(app.operator, one)
        except (Refused, NotFound) as error:
            if len(ids) == 1:
                raise
            report(error.code, str(error), as_json=asked.as_json)
            refused = True
        else:
            asked.output.say(f"{deed.past} {one}{aside or ''}", {"id": one, "done": deed.past})
    if refused:
        raise click.exceptions.Exit(ExitCode.REFUSED)


async def _matching(asked: "Asked", app: "App", deed: Deed, where: Filter, *, yes: bool) -> None:
    counts = await app.operator.count(where)
    found, exact = sum(count.number for count in counts), all(count.exact for count in counts)
    if found and not yes and not _confirmed(deed, found, exact=exact):
        raise Refused(f"nothing was done to the {found:,} tasks that match; --yes skips the question")
    # No more than was agreed to, should others come to match meanwhile.
    done = await deed.many(app.operator, where, found if exact else None) if found else 0
    plural = "task" if done == 1 else "tasks"
    asked.output.say(f"{deed.past} {done:,} {plural}", {"done": deed.past, "number": done})
    if exact and done < found:
        asked.output.note(f"{found - done:,} that matched had moved on, or could not be {deed.past}")


def _confirmed(deed: Deed, found: int, *, exact: bool) -> bool:
    about, plural = "" if exact else "about ", "task" if found == 1 else "tasks"
    try:
        return click.confirm(f"{deed.verb} {about}{found:,} {plural}?", err=True)
    except click.Abort:  # no answer is no
        return False


def _user_at_host() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
