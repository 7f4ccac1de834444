"""`windlass keys`: create, list, rotate and revoke API keys."""

from datetime import datetime
from typing import Any

import click

from ..._documents.keys import KeyDocument, key_document, new_key_document
from ..._documents.quotas import tenant_quota
from ..._model.key import ApiKey, Scope
from ..._policy.quota import quota_of
from ..command import Cli, Commands, on_store, pass_cli
from ..operator_actions import audit_options, name_command
from ..options import choice_option, duration, size
from ..output import Column, Document
from ..text import iso


@click.group(cls=Commands)
def keys() -> None:
    """Create, list, rotate and revoke keys of the HTTP API."""


@keys.command("create")
@click.argument("label")
@choice_option(
    "--scope", "scopes", multiple=True, required=True, of=Scope, help="What the key allows (repeatable)"
)
@click.option("--tenant", metavar="TENANT", help="Only this tenant  [default: any]")
@click.option(
    "--queue",
    "-q",
    "queues",
    multiple=True,
    metavar="QUEUE",
    help="Only this queue (repeatable)  [default: any]",
)
@click.option("--rate", type=float, metavar="N", help="Requests per second  [default: unlimited]")
@click.option("--task-rate", type=float, metavar="N", help="Tasks enqueued per second  [default: unlimited]")
@click.option(
    "--byte-rate", type=size, help="Bytes of tasks enqueued per second, as in 500KB  [default: unlimited]"
)
@click.option("--expires", "expires_in", type=duration, help="Time until the key expires  [default: never]")
@click.option(
    "--key",
    "idempotency_key",
    metavar="KEY",
    help="Idempotency key: a repeat fails and creates no second key",
)
@audit_options
@pass_cli
def create(cli: Cli, /, *, label: str, queues: tuple[str, ...], **options: Any) -> None:
    """Create a key and print it, this once."""

    async def work() -> None:
        made = await cli.operator.keys.create(label, queues=queues or None, **options)
        cli.output.say(made.text, new_key_document(made.key, made.text))

    cli.run(work, create=True)


@keys.command("list")
@click.option("--all", "inactive", is_flag=True, help="Also list keys that are revoked or expired")
@on_store
async def list_keys(cli: Cli, inactive: bool) -> None:
    """List keys by id, without their secrets."""
    none = "there are no keys; `windlass keys create LABEL --scope enqueue` creates one"
    found = await cli.operator.keys.list(inactive=inactive)
    quotas = {quota.name: quota for quota in await cli.operator.quotas.list()}
    limited = {key.tenant for key in found if key.tenant is not None and quota_of(quotas, key.tenant)}
    used = await cli.operator.quotas.uses() if limited else {}

    def document(key: ApiKey) -> KeyDocument:
        return key_document(key, tenant_quota(quotas, used, key.tenant))

    def share(key: ApiKey) -> str:
        quota = document(key).quota
        return "" if quota is None else f"{quota.in_use[0].share:.0%} used"

    cli.output.items(found, [*_COLUMNS, Column("quota", share, optional=True)], document, none=none)


@keys.command("rotate")
@click.argument("key_id", metavar="ID")
@click.option(
    "--overlap",
    type=duration,
    default="24h",
    show_default=True,
    help="Time that the former secret stays valid; 0s ends all former secrets at once",
)
@audit_options
@on_store
async def rotate(cli: Cli, key_id: str, overlap: Any) -> None:
    """Give a key a new secret, and print it this once.

    Its id, scopes and bounds stay.
    """
    made = await cli.operator.keys.rotate(key_id, overlap=overlap)
    cli.output.say(made.text, new_key_document(made.key, made.text))


@name_command(keys, "revoke", "revoked", metavar="ID")
async def revoke(cli: Cli, key_id: str) -> Document:
    """Revoke keys.

    Servers reject them within a second, and stay closed if it was the last.
    """
    await cli.operator.keys.revoke(key_id)
    return {"id": key_id, "revoked": True}


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}/s"


def _instant(at: datetime | None) -> str:
    return "" if at is None else iso(at)


_COLUMNS: list[Column[ApiKey]] = [
    Column("id", lambda key: key.name),
    Column("label", lambda key: key.label),
    Column("scopes", lambda key: ", ".join(key.scopes)),
    Column("tenant", lambda key: key.tenant or ""),
    Column("queues", lambda key: ", ".join(key.queues or ())),
    Column("rate", lambda key: _rate(key.rate)),
    Column("tasks", lambda key: _rate(key.task_rate)),
    Column("bytes", lambda key: _rate(key.byte_rate)),
    Column("expires", lambda key: _instant(key.expires_at)),
    Column("last used", lambda key: _instant(key.last_used_at)),
    Column("revoked", lambda key: _instant(key.revoked_at), optional=True),
]
