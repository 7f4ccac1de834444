"""`windlass types`: the task types that apps have published to the store."""

from datetime import timedelta

import click

from ..._documents.task_types import type_document
from ..._model.options import DeclaredType
from ..._model.queue import Retention
from ..command import Cli, Commands, on_store
from ..operator_actions import name_command
from ..output import Column, Document
from ..text import span

_COLUMNS = (
    Column[DeclaredType]("type", lambda one: one.name, elastic=True, keeps_end=True),
    Column[DeclaredType]("queue", lambda one: one.defaults.queue, elastic=True),
    Column[DeclaredType]("attempts", lambda one: str(one.defaults.max_attempts), right=True),
    Column[DeclaredType]("timeout", lambda one: _period(one.defaults.timeout, ""), right=True),
    Column[DeclaredType]("kept", lambda one: _kept(one.retention)),
    Column[DeclaredType]("aliases", lambda one: ", ".join(one.aliases), elastic=True, optional=True),
)


@click.group(cls=Commands)
def types() -> None:
    """List and remove the task types that apps have published."""


@types.command("list")
@on_store
async def list_types(cli: Cli) -> None:
    """List task types with their queue, attempts and retention.

    Retention is for completed, cancelled and dead tasks, in this order.
    """
    none = "no app has published its task types; workers do so when they start"
    cli.output.items(await cli.operator.types(), _COLUMNS, type_document, none=none)


@name_command(types, "remove", "removed", metavar="TYPE...")
async def remove(cli: Cli, name: str) -> Document:
    """Remove types that no app declares any more.

    Their tasks stay, and follow the defaults. An app that declares the type publishes it again at its start.
    """
    await cli.operator.remove_type(name)
    return {"type": name, "done": "removed"}


def _kept(retention: Retention | None) -> str:
    if retention is None:
        return "default"
    periods = (retention.completed, retention.cancelled, retention.dead)
    return "/".join(_period(one, "ever") for one in periods)


def _period(value: timedelta | None, without: str) -> str:
    return without if value is None else span(value.total_seconds())
