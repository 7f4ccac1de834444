"""`windlass endpoints`: list and enable endpoints of webhooks that are disabled."""

from datetime import datetime

import click

from ..._documents.endpoints import endpoint_document
from ..._model.record import DisabledEndpoint
from ..command import Cli, Commands, on_store
from ..operator_actions import name_command
from ..output import Column, Document
from ..text import ago


@click.group(cls=Commands)
def endpoints() -> None:
    """List and enable endpoints of webhooks that are disabled."""


@endpoints.command("list")
@on_store
async def list_endpoints(cli: Cli) -> None:
    """List endpoints that responded with 410 Gone.

    `deliver_webhook` sends nothing more to them. Of a URL only scheme and host are shown; the task has all.
    """
    found = await cli.operator.endpoints.list()
    columns = _columns(await cli.operator.now())
    cli.output.items(found, columns, endpoint_document, none="no endpoint is disabled")


@name_command(endpoints, "enable", "enabled", metavar="ID...")
async def enable(cli: Cli, id: str) -> Document:
    """Enable endpoints, by the ids that `windlass endpoints list` shows.

    Workers heed it within 10 seconds. `windlass dead replay` sends what could not be sent meanwhile.
    """
    await cli.operator.endpoints.enable(id)
    return {"id": id, "enabled": True}


def _columns(now: datetime) -> tuple[Column[DisabledEndpoint], ...]:
    return (
        Column[DisabledEndpoint]("id", lambda one: one.name),
        Column[DisabledEndpoint]("endpoint", lambda one: one.endpoint, elastic=True),
        Column[DisabledEndpoint]("tenant", lambda one: one.tenant, optional=True),
        Column[DisabledEndpoint]("disabled", lambda one: ago(one.at, now), right=True),
        Column[DisabledEndpoint]("task", lambda one: one.task_id),
    )
