"""`windlass shards`: list, add, drain, route and remove the shards of a store."""

import asyncio

import click
from msgspec.structs import asdict

from ..._model.record import QueueRoute, ShardStatus
from ..._policy.input.quote import counted
from ..command import Cli, Commands, on_store
from ..operator_actions import audit_options, name_command
from ..output import Column, Document

_LOOK_EVERY = 1.0  # seconds
_SHARDS = (
    Column[ShardStatus]("shard", lambda one: one.name),
    Column[ShardStatus]("state", lambda one: f"{one.state} (home)" if one.home else one.state),
    Column[ShardStatus]("tasks", lambda one: "?" if one.error else f"{one.tasks:,}", right=True),
    Column[ShardStatus]("not ended", lambda one: "?" if one.error else f"{one.unfinished:,}", right=True),
    Column[ShardStatus]("problem", lambda one: one.error, optional=True, elastic=True),
)
_ROUTES = (
    Column[tuple[str, QueueRoute]]("queue", lambda one: one[0]),
    Column[tuple[str, QueueRoute]]("shards", lambda one: ", ".join(one[1].over)),
    Column[tuple[str, QueueRoute]]("by", lambda one: "tenant" if one[1].by_tenant else "queue"),
)


@click.group(cls=Commands)
def shards() -> None:
    """List, add, drain, route and remove the shards of a store."""


@shards.command("list")
@on_store
async def list_shards(cli: Cli) -> None:
    """List the shards, whether they take new tasks, and how many tasks each has."""
    cli.output.items(await cli.app.shards().list(), _SHARDS, asdict, none="there are no shards")


@shards.command("routes")
@on_store
async def list_routes(cli: Cli) -> None:
    """List the queues that have a route of their own.

    Other queues are spread over the open shards by their names.
    """
    found = sorted((await cli.app.shards().routes()).queues.items())
    cli.output.items(
        found,
        _ROUTES,
        lambda one: {"queue": one[0], "shards": list(one[1].over), "by_tenant": one[1].by_tenant},
        none="no queue has a route of its own",
    )


@name_command(shards, "add", "added", metavar="SHARD")
async def add(cli: Cli, shard: str) -> Document:
    """Let a shard take its share of the queues: a new one of the file, or one that was drained.

    Its URL must be in the file on every machine before. Takes effect after 10 seconds. A queue that moves to
    it keeps its tasks where they are, and workers claim from both.
    """
    await cli.app.shards().add(shard, cli.by)
    return {"shard": shard, "state": "open"}


@name_command(shards, "remove", "removed", metavar="SHARD")
async def remove(cli: Cli, shard: str) -> Document:
    """Forget a shard that was drained and has no tasks left, ended ones included."""
    await cli.app.shards().remove(shard, cli.by)
    return {"shard": shard, "state": "removed"}


@shards.command("drain")
@click.argument("shard")
@click.option("--wait", is_flag=True, help="Report progress until all its tasks have ended")
@audit_options
@on_store
async def drain(cli: Cli, shard: str, *, wait: bool) -> None:
    """Let a shard take no new tasks; workers run off those that it has.

    Takes effect after 10 seconds. Queues that were on it go to the other shards.
    """
    admin = cli.app.shards()
    if not await admin.is_draining(shard):
        await admin.drain(shard, cli.by)
    last: ShardStatus | None = None
    while True:
        (status,) = [one for one in await admin.list() if one.name == shard]
        if status != last:
            left = f"{counted(status.unfinished, 'task')} not ended, {counted(status.tasks, 'task')} in all"
            cli.output.say(f"draining {shard}: {status.error or left}", asdict(status))
        last = status
        is_done = not status.error and status.unfinished == 0 and admin.seconds_until_effective == 0
        if is_done or not wait:
            return
        await asyncio.sleep(_LOOK_EVERY)


@shards.command("route")
@click.argument("queue")
@click.argument("over", nargs=-1, metavar="[SHARD]...")
@click.option("--by-tenant", is_flag=True, help="Spread the tenants of the queue over the shards")
@audit_options
@on_store
async def route(cli: Cli, queue: str, over: tuple[str, ...], *, by_tenant: bool) -> None:
    """Route a queue to a shard or, with --by-tenant, each of its tenants to one of several shards.

    Of several shards without --by-tenant, the name of the queue chooses one; without a SHARD, one of all that
    are open. Takes effect after 10 seconds; tasks that
    are stored already stay where they are.
    """
    await cli.app.shards().route(queue, over, cli.by, by_tenant=by_tenant)
    where = ", ".join(over) or "open shards"
    if len(over) != 1 and not by_tenant:
        where = f"one of {where}, which its name chooses"
    document: Document = {"queue": queue, "shards": list(over), "by_tenant": by_tenant}
    cli.output.say(f"routed {queue} to {where}{' by tenant' if by_tenant else ''}", document)
