"""`windlass queues`: list, pause, resume and configure queues."""

from typing import Any

import click
from msgspec.structs import replace

from ..._documents.queues import QueueDocument, SettingsDocument, queue_documents
from ..._model.filter import Dimension
from ..._model.queue import MAX_STRIPES, Fairness
from ..._model.state import State
from ..._observe.overview import COUNTED, read_overview
from ..._policy.input.quote import counted, suggestion
from ..command import Cli, Commands, on_store, pass_cli
from ..operator_actions import audit_options, name_command
from ..options import ALWAYS, STRICT, ageing, choice_option, name_and_number, number_option, window
from ..output import Column, Document, Styled
from ..text import iso, json_text, span


@click.group(cls=Commands)
def queues() -> None:
    """List, pause, resume and configure queues."""


@queues.command("list")
@on_store
async def list_queues(cli: Cli) -> None:
    """List queues with their tasks by state.

    `oldest` is how long the oldest ready task has been due.
    """
    overview = await read_overview(cli.app.store)
    found = queue_documents(overview, overview.settings)
    cli.output.items(found, _COLUMNS, none="there are no queues yet")


async def _warn_if_unused(cli: Cli, queue: str) -> None:
    """Warn if the queue holds no task in any state, and suggest one that does."""
    used = [count.values[0] for count in await cli.operator.count(None, (Dimension.QUEUE,))]
    if queue not in used:
        cli.output.note(f"queue {queue} has no tasks{suggestion(queue, used)}", warning=True)


@name_command(queues, "pause", "paused", metavar="QUEUE...", after=_warn_if_unused)
async def pause(cli: Cli, queue: str) -> Document:
    """Stop starting tasks of these queues; running tasks continue."""
    await cli.operator.pause(queue)
    return await _queue(cli, queue)


@name_command(queues, "resume", "resumed", metavar="QUEUE...", after=_warn_if_unused)
async def resume(cli: Cli, queue: str) -> Document:
    """Start tasks of these queues again."""
    await cli.operator.resume(queue)
    return await _queue(cli, queue)


@queues.command("stripe")
@click.argument("queue")
@click.argument("stripes", type=click.IntRange(1, MAX_STRIPES), metavar="N")
@audit_options
@on_store
async def stripe(cli: Cli, queue: str, stripes: int) -> None:
    """Spread new tasks of a queue over N stripes.

    Many workers then contend less. Order holds only within a stripe; with 1 the queue is in order again.
    Programs notice within seconds. An app that declares the number resets it when its declaration changes.
    """
    await cli.operator.stripe(queue, stripes)
    cli.output.say(f"{queue} has {counted(stripes, 'stripe')}", await _queue(cli, queue))
    await _warn_if_unused(cli, queue)


@queues.command("set")
@click.argument("queue")
@choice_option("--fairness", of=Fairness, help="Order between tenants")
@click.option(
    "--weight",
    "weights",
    multiple=True,
    type=name_and_number,
    metavar="TENANT=N",
    help="Turns of a tenant in each round (repeatable)  [default: 1]",
)
@click.option(
    "--share",
    "shares",
    multiple=True,
    type=name_and_number,
    metavar="LEVEL=N",
    help="Percent of claims for a priority level: high, medium or low (repeatable)",
)
@click.option(
    "--ageing", type=ageing, metavar="DURATION", help="Wait that outweighs one priority level; or `strict`"
)
@click.option(
    "--window",
    "windows",
    multiple=True,
    type=window,
    metavar="WINDOW",
    help="Hours in which tasks start, `mon-fri 22:00-06:00 Europe/Berlin` (repeatable); or `always`",
)
@number_option("--stripes", most=MAX_STRIPES, help=f"Stripes to spread new tasks over, 1 to {MAX_STRIPES}")
@audit_options
@pass_cli
def set_queue(cli: Cli, /, *, queue: str, **given: Any) -> None:
    """Set how a queue chooses the next task.

    With windows, tasks start only within them; one over midnight belongs to the day on which it opens.

    Options that are not given stay as they are. TENANT=default and LEVEL=default remove a weight or a share.
    A queue that an app declares is reset when its declaration changes.
    """
    changes: Any = {key: value for key, value in given.items() if value not in (None, ())}
    if not changes:
        raise click.UsageError("Give at least one option to set", click.get_current_context())
    for key in ("weights", "shares"):
        if key in changes:
            changes[key] = dict(changes[key])
    if changes.get("ageing") == STRICT:
        changes["ageing"] = None
    if ALWAYS in changes.get("windows", ()):
        if len(changes["windows"]) > 1:
            raise click.UsageError("--window always excludes other windows", click.get_current_context())
        changes["windows"] = None

    async def work() -> None:
        await cli.operator.set_queue(queue, **changes)
        document = await _queue(cli, queue)
        cli.output.say(f"{queue}: {_settings_text(document) or 'fifo'}", document)
        await _warn_if_unused(cli, queue)

    cli.run(work)


@queues.command("show")
@click.argument("queue")
@on_store
async def show(cli: Cli, queue: str) -> None:
    """Show the settings of a queue."""
    found = await _queue(cli, queue)
    if cli.as_json:
        cli.output.document(found)
    else:
        cli.output.fields(_fields(found))
    await _warn_if_unused(cli, queue)


async def _queue(cli: Cli, name: str) -> QueueDocument:
    """The document of one queue; an unknown one is empty and has the default settings."""
    overview = await read_overview(cli.app.store)
    overview = replace(overview, queues=tuple({*overview.queues, name}))
    return next(one for one in queue_documents(overview, overview.settings) if one.queue == name)


def _settings(queue: QueueDocument) -> SettingsDocument:
    assert queue.settings is not None  # null only for readers bound to a tenant
    return queue.settings


def _settings_text(queue: QueueDocument) -> str:
    """The settings that differ from the defaults, in a few words."""
    settings = _settings(queue)
    parts = [
        "" if settings.fairness is Fairness.FIFO else str(settings.fairness),
        counted(len(settings.weights), "weight") if settings.weights else "",
        ", ".join(f"{share}% {level}" for level, share in settings.shares.items()),
        "" if settings.ageing is None else f"ageing {span(settings.ageing)}",
        counted(settings.stripes, "stripe") if settings.stripes > 1 else "",
        "; ".join(settings.windows),
    ]
    return ", ".join(part for part in parts if part)


def _fields(queue: QueueDocument) -> list[tuple[str, str | Styled]]:
    settings = _settings(queue)
    weights = [f"{tenant or '(none)'} {weight}" for tenant, weight in settings.weights.items()]
    return [
        ("queue", queue.queue),
        ("paused", ("yes", "yellow") if queue.paused else "no"),
        ("windows", "\n".join(settings.windows) or "always"),
        ("closed until", "" if queue.closed_until is None else (iso(queue.closed_until), "yellow")),
        ("fairness", str(settings.fairness)),
        ("weights", "\n".join(weights)),
        ("shares", "\n".join(f"{level} {share}%" for level, share in settings.shares.items())),
        ("ageing", "strict" if settings.ageing is None else span(settings.ageing)),
        ("stripes", str(settings.stripes)),
        ("retention", "" if settings.retention is None else json_text(settings.retention)),
    ]


def _status(queue: QueueDocument) -> str:
    if queue.paused:
        return "paused"
    return "" if queue.closed_until is None else f"closed until {iso(queue.closed_until)}"


def _count_column(state: State) -> Column[QueueDocument]:
    style = "bold red" if state == "dead" else ""

    def cell(queue: QueueDocument) -> Styled:
        number = queue.counts[state.value]  # type: ignore[index]  # the states of COUNTED
        return f"{'' if queue.exact else '~'}{number:,}", style if number else "dim"

    return Column(str(state), cell, right=True)


_COLUMNS = (
    Column[QueueDocument]("queue", lambda queue: queue.queue, elastic=True),
    *(_count_column(state) for state in COUNTED),
    Column[QueueDocument](
        "oldest", lambda queue: span(queue.oldest_ready) if queue.counts["ready"] else "", right=True
    ),
    Column[QueueDocument]("", lambda queue: (_status(queue), "yellow")),
    Column[QueueDocument]("", _settings_text, elastic=True),
)
