"""`windlass queues`: list, pause, resume and configure queues."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
from msgspec.structs import replace

from ..._client.queues import require_queues
from ..._documents.queues import (
    QueueDocument,
    QueueTenantDocument,
    SettingsDocument,
    queue_documents,
    queue_tenants,
)
from ..._model.filter import Filter
from ..._model.queue import MAX_STRIPES, Fairness
from ..._model.state import State
from ..._observe.overview import COUNTED, read_overview, read_tenants
from ..._policy.input.quote import counted
from ..._store.protocol import Capability
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


create_option = click.option(
    "--create", is_flag=True, help="Set up a queue that no task, worker, task type or setting names yet"
)


async def _switch(
    cli: Cli, names: Sequence[str], act: Callable[..., Awaitable[None]], past: str, *, create: bool
) -> None:
    if not create:
        await require_queues(cli.app.store, names, new=True)  # of all, before the first one is changed
    for name in names:
        await act(name, create=True)
        cli.output.say(f"{past} {name}", await _queue(cli, name))


@queues.command("pause")
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@create_option
@audit_options
@on_store
async def pause(cli: Cli, names: tuple[str, ...], create: bool) -> None:
    """Stop starting tasks of these queues; running tasks continue."""
    await _switch(cli, names, cli.operator.pause, "paused", create=create)


@queues.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@create_option
@audit_options
@on_store
async def resume(cli: Cli, names: tuple[str, ...], create: bool) -> None:
    """Start tasks of these queues again."""
    await _switch(cli, names, cli.operator.resume, "resumed", create=create)


@name_command(queues, "remove", "removed", metavar="QUEUE...")
async def remove(cli: Cli, queue: str) -> Document:
    """Remove the settings of queues that are not used any more.

    Refused while a queue has tasks that have not ended or are dead, or a live worker serves it.
    """
    await cli.operator.remove_queue(queue)
    return {"queue": queue, "done": "removed"}


@queues.command("stripe")
@click.argument("queue")
@click.argument("stripes", type=click.IntRange(1, MAX_STRIPES), metavar="N")
@create_option
@audit_options
@on_store
async def stripe(cli: Cli, queue: str, stripes: int, create: bool) -> None:
    """Spread new tasks of a queue over N stripes.

    Many workers then contend less. Order holds only within a stripe; with 1 the queue is in order again.
    Programs notice within seconds. An app that declares the number resets it when its declaration changes.
    """
    await cli.operator.stripe(queue, stripes, create=create)
    cli.output.say(f"{queue} has {counted(stripes, 'stripe')}", await _queue(cli, queue))
    _note_stripes(cli, stripes)


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
@create_option
@audit_options
@pass_cli
def set_queue(cli: Cli, /, *, queue: str, create: bool, **given: Any) -> None:
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
        await cli.operator.set_queue(queue, create=create, **changes)
        document = await _queue(cli, queue)
        cli.output.say(f"{queue}: {_settings_text(document) or 'fifo'}", document)
        _note_stripes(cli, changes.get("stripes") or 1)

    cli.run(work)


@queues.command("show")
@click.argument("queue")
@on_store
async def show(cli: Cli, queue: str) -> None:
    """Show the settings of a queue."""
    await require_queues(cli.app.store, [queue])
    found = await _queue(cli, queue)
    if cli.as_json:
        cli.output.document(found)
    else:
        cli.output.fields(_fields(found))


@queues.command("tenants")
@click.argument("queue")
@number_option("-n", "number", most=1_000, default=20, help="Number of tenants")
@on_store
async def tenants(cli: Cli, queue: str, number: int) -> None:
    """List the tenants with most tasks ready or running in a queue.

    `oldest` is how long the oldest ready task has been due; `weight` is the tenant's turns in each round.
    """
    await require_queues(cli.app.store, [queue])
    settings = {one.name: one for one in await cli.operator.queues()}
    found = await read_tenants(cli.app.store, Filter(queues=(queue,)))
    listed = queue_tenants(found, settings.get(queue), number)
    cli.output.items(listed.items, _TENANT_COLUMNS, none=f"no task in {queue} is open or dead")
    if listed.number > len(listed.items):
        cli.output.note(f"{len(listed.items)} of {listed.number:,} tenants")


async def _queue(cli: Cli, name: str) -> QueueDocument:
    """The document of one queue; an unknown one is empty and has the default settings."""
    overview = await read_overview(cli.app.store)
    overview = replace(overview, queues=tuple({*overview.queues, name}))
    return next(one for one in queue_documents(overview, overview.settings) if one.queue == name)


def _note_stripes(cli: Cli, stripes: int) -> None:
    if stripes > 1 and Capability.STRIPE not in cli.app.store.capabilities:
        cli.output.note("stripes have no effect on this store; they are for Postgres", warning=True)


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


def _count_column(state: State) -> Column[Any]:
    style = "bold red" if state == "dead" else ""

    def cell(one: QueueDocument | QueueTenantDocument) -> Styled:
        number = one.counts[state.value]  # type: ignore[index]  # the states of COUNTED
        return f"{'' if one.exact else '~'}{number:,}", style if number else "dim"

    return Column(str(state), cell, right=True, optional=state in (State.WAITING, State.SCHEDULED))


_COLUMNS = (
    Column[QueueDocument]("queue", lambda queue: queue.queue, elastic=True),
    *(_count_column(state) for state in COUNTED),
    Column[QueueDocument](
        "oldest", lambda queue: span(queue.oldest_ready) if queue.counts["ready"] else "", right=True
    ),
    Column[QueueDocument]("", lambda queue: (_status(queue), "yellow")),
    Column[QueueDocument]("", _settings_text, elastic=True),
)

_TENANT_COLUMNS = (
    Column[QueueTenantDocument]("tenant", lambda one: one.tenant or ("(none)", "dim"), elastic=True),
    *(_count_column(state) for state in COUNTED),
    Column[QueueTenantDocument](
        "oldest", lambda one: span(one.oldest_ready) if one.counts["ready"] else "", right=True
    ),
    Column[QueueTenantDocument]("weight", lambda one: str(one.weight or ""), right=True),
)
