"""`windlass dead`: the dead letters, and what a person does with them. (L1, L2)"""

from typing import TYPE_CHECKING, Unpack

import click

from ..._model.filter import Page
from ..._model.state import State
from ..._policy.input.payload import parse_payload
from ...errors import InvalidOption, Refused
from ..command import Asked, Commands, pass_asked
from ..documents import task_document
from ..filters import Wanted, filter_options, finished, is_set
from ..operator_actions import Deed, acting_options, by, perform
from ..options import LIMIT, rate, task_id
from ..task_tables import dead_columns
from .tasks import gather, show_one

if TYPE_CHECKING:
    from ..._client.operator import Operator
    from ...app import App

_DEAD = (State.DEAD,)


@click.group(cls=Commands)
def dead() -> None:
    """Look at dead letters, replay or discard them."""


@dead.command("list")
@filter_options("died")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.option(
    "--cursor", type=task_id, metavar="ID", help="Go on after this one, the last of the page before."
)
@click.option("--oldest", is_flag=True, help="Oldest first.")
@click.option("--reveal", is_flag=True, help="Show secrets in payloads.")
@pass_asked
def list_dead(
    asked: Asked, limit: int, cursor: str | None, oldest: bool, reveal: bool, **wanted: Unpack[Wanted]
) -> None:
    """List dead letters, the newest task first."""
    page = Page(limit=limit, cursor=cursor, newest_first=not oldest)

    async def work(app: "App") -> None:
        found, more = await gather(app, finished(wanted, _DEAD), page)
        now = await app.operator.now()
        asked.output.items(
            found,
            dead_columns(now),
            lambda task: task_document(task, reveal=reveal),
            none="no such dead letters",
        )
        if more is not None:
            asked.output.note(f"there are more: --cursor {more}")

    asked.run(work)


@dead.command("show")
@click.argument("id", type=task_id)
@click.option("--reveal", is_flag=True, help="Show secrets in the payload.")
@pass_asked
def show(asked: Asked, id: str, reveal: bool) -> None:
    """Show a dead letter: its payload, its last error, its attempts."""

    async def work(app: "App") -> None:
        task = await app.operator.task(id)
        if task.state is not State.DEAD:
            raise Refused(f"task {id} is {task.state}, not dead; see `windlass tasks show {id}`")
        await show_one(asked, app, task, reveal=reveal)

    asked.run(work)


@dead.command("replay")
@acting_options("replay")
@filter_options("died")
@click.option("--payload", metavar="JSON", help="Replay one task with this payload instead.")
@click.option("--rate", type=rate, help="No faster than this: 5/s, 300/m.")
@pass_asked
def replay(
    asked: Asked,
    /,
    *,
    ids: tuple[str, ...],
    everything: bool,
    why: str,
    who: str | None,
    yes: bool,
    payload: str | None,
    rate: float | None,
    **wanted: Unpack[Wanted],
) -> None:
    """Bring dead tasks back: by id (cancelled ones too), by filter, or --all."""
    someone = by(who, why)
    edited = None if payload is None else parse_payload(payload)
    if edited is not None and len(ids) != 1:
        raise InvalidOption("an edited payload is for one task; name its id")

    async def one(operator: "Operator", task_id: str) -> None:
        await operator.replay_one(task_id, by=someone, payload=edited)

    deed = Deed(
        verb="replay",
        past="replayed",
        one=one,
        many=lambda operator, where, limit: operator.replay(where, by=someone, per_second=rate, limit=limit),
    )
    chosen = everything or is_set(wanted)
    perform(asked, deed, ids, finished(wanted, _DEAD), chosen=chosen, yes=yes)


@dead.command("discard")
@acting_options("discard", why_needed=True)
@filter_options("died")
@pass_asked
def discard(
    asked: Asked,
    /,
    *,
    ids: tuple[str, ...],
    everything: bool,
    why: str,
    who: str | None,
    yes: bool,
    **wanted: Unpack[Wanted],
) -> None:
    """Delete dead tasks for ever: by id, by filter, or --all. It takes a reason."""
    if not why.strip():
        raise click.UsageError("Discarding is for ever: say why with --why", click.get_current_context())
    someone = by(who, why)

    async def one(operator: "Operator", task_id: str) -> None:
        await operator.discard_one(task_id, by=someone)

    deed = Deed(
        verb="discard",
        past="discarded",
        one=one,
        many=lambda operator, where, limit: operator.discard(where, by=someone, limit=limit),
    )
    chosen = everything or is_set(wanted)
    perform(asked, deed, ids, finished(wanted, _DEAD), chosen=chosen, yes=yes)
