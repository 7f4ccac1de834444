"""`windlass queues`: how full they are, and whether they flow. (F6)"""

from collections import defaultdict
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from ..._model.filter import Dimension, Filter
from ..._model.queue import MAX_STRIPES, Fairness, QueueSettings
from ..._model.state import State
from ..command import Asked, Commands, pass_asked
from ..documents import compact, plain, settings_document
from ..operator_actions import audited
from ..options import STRICT, ageing, numbered
from ..output import Column, Styled
from ..time_text import span

if TYPE_CHECKING:
    from ...app import App

_COUNTED = (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)


class Line(Struct, frozen=True, kw_only=True):
    """A queue, with what is in it."""

    settings: QueueSettings
    counts: dict[str, int]
    exact: bool  # False: some of the counts are estimates
    oldest: float | None  # seconds that the oldest ready task has been due


@click.group(cls=Commands)
def queues() -> None:
    """See how full queues are, pause and resume them, set whose turn it is in them."""


@queues.command("list")
@pass_asked
def list_queues(asked: Asked) -> None:
    """List queues with the number of tasks in each state."""

    async def work(app: "App") -> None:
        asked.output.items(await overview(app), _COLUMNS, _document, none="nothing is open in any queue")

    asked.run(work)


@queues.command("pause")
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@audited
@pass_asked
def pause(asked: Asked, queues: tuple[str, ...]) -> None:
    """Claim no more tasks of these queues; running ones go on."""

    async def work(app: "App") -> None:
        known = await names(app)
        for queue in queues:
            await app.operator.pause(queue)
            asked.output.say(f"paused {queue}", {"queue": queue, "paused": True})
            _doubt(asked, queue, known)

    asked.run(work)


@queues.command("resume")
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@audited
@pass_asked
def resume(asked: Asked, queues: tuple[str, ...]) -> None:
    """Let these queues flow again."""

    async def work(app: "App") -> None:
        for queue in queues:
            await app.operator.resume(queue)
            asked.output.say(f"resumed {queue}", {"queue": queue, "paused": False})

    asked.run(work)


@queues.command("stripe")
@click.argument("queue")
@click.argument("stripes", type=click.IntRange(1, MAX_STRIPES), metavar="N")
@audited
@pass_asked
def stripe(asked: Asked, queue: str, stripes: int) -> None:
    """Spread the new tasks of a queue over N stripes, so that many workers do not meet at one end.

    Order then holds only within a stripe. With 1 the queue is one line again. Programs notice within seconds;
    one that declares the number itself sets it back when that declaration changes.
    """

    async def work(app: "App") -> None:
        known = await names(app)
        await app.operator.stripe(queue, stripes)
        told = f"{queue} has {stripes} stripes" if stripes > 1 else f"{queue} is one line"
        asked.output.say(told, {"queue": queue, "stripes": stripes})
        _doubt(asked, queue, known)

    asked.run(work)


@queues.command("set")
@click.argument("queue")
@click.option(
    "--fairness", type=click.Choice([one.value for one in Fairness]), help="Whose turn it is among tenants."
)
@click.option(
    "--weight", "weights", multiple=True, type=numbered, metavar="TENANT=N", help="Turns in a round."
)
@click.option(
    "--share", "shares", multiple=True, type=numbered, metavar="LEVEL=N", help="Percent of the picks."
)
@click.option("--ageing", type=ageing, help="Waiting that a level is worth; or `strict`.")
@click.option("--stripes", type=click.IntRange(1, MAX_STRIPES), metavar="N", help="Lines to spread it over.")
@audited
@pass_asked
def set_queue(asked: Asked, /, *, queue: str, **given: Any) -> None:
    """Set how a queue chooses what runs next. What is not given stays as it is.

    TENANT=default and LEVEL=default take a weight or a share away. A queue that an app declares is set back
    only when its declaration changes.
    """
    changes: Any = {key: value for key, value in given.items() if value not in (None, ())}
    if not changes:
        raise click.UsageError("What is to be set? Give at least one option", click.get_current_context())
    for key in ("weights", "shares"):
        if key in changes:
            changes[key] = dict(changes[key])
    if changes.get("ageing") == STRICT:
        changes["ageing"] = None

    async def work(app: "App") -> None:
        known = await names(app)
        settings = await app.operator.set_queue(queue, **changes)
        asked.output.say(f"{queue}: {how(settings) or 'fifo'}", settings_document(settings))
        _doubt(asked, queue, known)

    asked.run(work)


@queues.command("show")
@click.argument("queue")
@pass_asked
def show(asked: Asked, queue: str) -> None:
    """Show how a queue is set."""

    async def work(app: "App") -> None:
        found = {settings.name: settings for settings in await app.operator.queues()}
        settings = found.get(queue) or QueueSettings(name=queue)
        if asked.as_json:
            asked.output.document(settings_document(settings))
        else:
            asked.output.fields(_fields(settings))
        _doubt(asked, queue, [*found, *await names(app)])

    asked.run(work)


def _doubt(asked: Asked, queue: str, known: list[str]) -> None:
    """A queue that nobody has used may be a slip of the pen."""
    if queue not in known:
        close = get_close_matches(queue, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        asked.output.note(f"no task of the queue {queue} has been seen{hint}", warning=True)


async def overview(app: "App") -> list[Line]:
    """Every queue that has tasks or settings."""
    counted: dict[str, dict[str, int]] = defaultdict(dict)
    oldest: dict[str, datetime] = {}
    estimated: set[str] = set()
    for count in await app.operator.count(Filter(states=_COUNTED), (Dimension.QUEUE, Dimension.STATE)):
        queue, state = count.values
        counted[queue][state] = count.number
        estimated |= set() if count.exact else {queue}
        if state == State.READY and count.oldest_at is not None:
            oldest[queue] = count.oldest_at
    settings = {found.name: found for found in await app.operator.queues()}
    now = await app.operator.now()
    return [
        Line(
            settings=settings.get(queue) or QueueSettings(name=queue),
            counts={str(state): counted[queue].get(state, 0) for state in _COUNTED},
            exact=queue not in estimated,
            oldest=max((now - oldest[queue]).total_seconds(), 0.0) if queue in oldest else None,
        )
        for queue in sorted({*counted, *settings})
    ]


async def names(app: "App") -> list[str]:
    """The queues that any task was ever in, as far as the store remembers."""
    counts = await app.operator.count(None, (Dimension.QUEUE,))
    return [count.values[0] for count in counts]


def how(settings: QueueSettings) -> str:
    """In a few words, what is not as in any queue."""
    ordering = settings.ordering
    parts = [
        "" if settings.fairness is Fairness.FIFO else str(settings.fairness),
        _plural(len(settings.weights), "weight") if settings.weights else "",
        ", ".join(f"{share}% {level}" for level, share in ordering.shares.items()),
        "" if ordering.ageing is None else f"ageing {span(ordering.ageing.total_seconds())}",
        _plural(settings.stripes, "stripe") if settings.stripes > 1 else "",
    ]
    return ", ".join(part for part in parts if part)


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _fields(settings: QueueSettings) -> list[tuple[str, str | Styled]]:
    ordering = settings.ordering
    return [
        ("queue", settings.name),
        ("paused", ("yes", "yellow") if settings.paused else "no"),
        ("fairness", str(settings.fairness)),
        (
            "weights",
            "\n".join(f"{tenant or '(none)'} {weight}" for tenant, weight in settings.weights.items()),
        ),
        ("shares", "\n".join(f"{level} {share}%" for level, share in ordering.shares.items())),
        ("ageing", "strict" if ordering.ageing is None else span(ordering.ageing.total_seconds())),
        ("stripes", str(settings.stripes)),
        ("retention", "" if settings.retention is None else compact(plain(settings.retention))),
    ]


def _document(line: Line) -> dict[str, Any]:
    return {
        **settings_document(line.settings),
        **line.counts,
        "exact": line.exact,
        "oldest_ready": line.oldest,
    }


def _number(state: State) -> Column[Line]:
    style = "bold red" if state is State.DEAD else ""

    def cell(line: Line) -> Styled:
        number = line.counts[state]
        return f"{'' if line.exact else '~'}{number:,}", style if number else "dim"

    return Column(str(state), cell, right=True)


_COLUMNS = (
    Column[Line]("queue", lambda line: line.settings.name, elastic=True),
    *(_number(state) for state in _COUNTED),
    Column[Line]("oldest", lambda line: "" if line.oldest is None else span(line.oldest), right=True),
    Column[Line]("", lambda line: ("paused", "yellow") if line.settings.paused else ""),
    Column[Line]("", lambda line: how(line.settings), elastic=True),
)
