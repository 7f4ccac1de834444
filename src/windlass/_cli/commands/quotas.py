"""`windlass quotas`: list, set and remove how much tenants may have stored."""

import click
from msgspec import Struct

from ..._documents.quotas import quota_document
from ..._model.limit import OTHERS, Quota, Use
from ..._policy.input.quote import counted, shorten
from ..._policy.quota import NEARLY_FULL, TenantUse, by_quota, format_size
from ..command import Cli, Commands, on_store, pass_cli
from ..operator_actions import audit_options, name_command
from ..options import size
from ..output import Column, Document, Styled

_FULLEST = 3
_MAX_TENANT = 24  # characters of a tenant in the table


class QuotaUse(Struct, frozen=True, kw_only=True):
    """A quota and who uses it, fullest first."""

    quota: Quota
    users: list[TenantUse]

    @property
    def fullest(self) -> Use:
        return self.users[0].use if self.users else Use()


@click.group(cls=Commands)
def quotas() -> None:
    """List, set and remove how much tenants may have stored."""


@quotas.command("list")
@on_store
async def list_quotas(cli: Cli) -> None:
    """List quotas and what is used of each.

    Counts every task, which may take seconds if there are millions.
    """
    found = {quota.name: quota for quota in await cli.operator.quotas.list()}
    users = by_quota(found, await cli.operator.quotas.uses()) if found else {}
    cli.output.items(
        [QuotaUse(quota=one, users=users[one.name]) for one in found.values()],
        _COLUMNS,
        lambda row: quota_document(row.quota, row.users),
        none="there are no quotas; `windlass quotas set TENANT --tasks N` sets one",
    )


@quotas.command("set")
@click.argument("tenant")
@click.option("--tasks", type=int, metavar="N", help="At most N tasks, ended ones included  [default: any]")
@click.option(
    "--bytes", type=size, metavar="SIZE", help="At most this much, such as 500MB or 2GiB  [default: any]"
)
@audit_options
@pass_cli
def set_quota(cli: Cli, /, *, tenant: str, tasks: int | None, bytes: int | None) -> None:
    """Set the quota of a tenant, replacing its present one.

    The TENANT "*" stands for every tenant without a quota of its own. Servers apply it within 2 seconds to
    everything that is enqueued over HTTP; what is stored already stays.
    """

    async def work() -> None:
        quota = await cli.operator.quotas.set(tenant, tasks=tasks, bytes=bytes)
        bounds = (
            "" if quota.tasks is None else counted(quota.tasks, "task"),
            "" if quota.bytes is None else format_size(quota.bytes),
        )
        whose = "every other tenant" if tenant == OTHERS else tenant
        text = f"quota of {whose}: {', '.join(filter(None, bounds))}"
        cli.output.say(text, quota_document(quota, ()))

    cli.run(work, create=True)


@name_command(quotas, "remove", "removed", metavar="TENANT")
async def remove(cli: Cli, tenant: str) -> Document:
    """Remove a quota."""
    await cli.operator.quotas.remove(tenant)
    return {"tenant": tenant, "removed": True}


def _tasks(row: QuotaUse) -> str:
    most = row.quota.tasks
    return f"{row.fullest.tasks:,}" if most is None else f"{row.fullest.tasks:,}/{most:,}"


def _bytes(row: QuotaUse) -> str:
    used, most = format_size(row.fullest.bytes), row.quota.bytes
    return used if most is None else f"{used}/{format_size(most)}"


def _share(row: QuotaUse) -> Styled:
    share = row.quota.share(row.fullest)
    return f"{share:.0%}", "yellow" if share >= NEARLY_FULL else ""


def _fullest(row: QuotaUse) -> str:
    if row.quota.name != OTHERS:
        return ""
    return ", ".join(
        f"{shorten(one.tenant, _MAX_TENANT) or '(none)'} {row.quota.share(one.use):.0%}"
        for one in row.users[:_FULLEST]
    )


_COLUMNS = (
    Column[QuotaUse]("tenant", lambda row: row.quota.name, elastic=True),
    Column[QuotaUse]("tasks", _tasks, right=True),
    Column[QuotaUse]("bytes", _bytes, right=True),
    Column[QuotaUse]("used", _share, right=True),
    Column[QuotaUse]("fullest", _fullest, elastic=True, optional=True),
)
