"""`windlass keys`: create, list and revoke API keys."""

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from ..._documents.keys import key_document, new_key_document
from ..._model.key import ApiKey, Scope
from ..command import Cli, Commands, pass_cli
from ..operator_actions import audit_options
from ..options import duration
from ..output import Column
from ..text import iso

if TYPE_CHECKING:
    from ...app import App


@click.group(cls=Commands)
def keys() -> None:
    """Create, list and revoke keys of the HTTP API."""


@keys.command("create")
@click.argument("label")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What the key allows (repeatable)",
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
@click.option("--rate", type=float, metavar="N", help="Requests per second and server  [default: unlimited]")
@click.option("--expires", type=duration, help="Time until the key expires  [default: never]")
@audit_options
@pass_cli
def create(
    cli: Cli,
    /,
    *,
    label: str,
    scopes: tuple[str, ...],
    tenant: str | None,
    queues: tuple[str, ...],
    rate: float | None,
    expires: timedelta | None,
) -> None:
    """Create a key and print it, this once."""

    async def work(app: "App") -> None:
        made = await app.operator.keys.create(
            label, scopes=scopes, tenant=tenant, queues=queues or None, rate=rate, expires_in=expires
        )
        cli.output.say(made.text, new_key_document(made.key, made.text))

    cli.run(work, create=True)


@keys.command("list")
@pass_cli
def list_keys(cli: Cli) -> None:
    """List keys by id, without their secrets."""

    async def work(app: "App") -> None:
        found = await app.operator.keys.list()
        none = "there are no keys; `windlass keys create LABEL --scope enqueue` creates one"
        cli.output.items(found, _COLUMNS, key_document, none=none)

    cli.run(work)


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@audit_options
@pass_cli
def revoke(cli: Cli, key_id: str) -> None:
    """Revoke a key; servers reject it within a second."""

    async def work(app: "App") -> None:
        await app.operator.keys.revoke(key_id)
        cli.output.say(f"revoked {key_id}", {"id": key_id, "revoked": True})

    cli.run(work)


_COLUMNS: list[Column[ApiKey]] = [
    Column("id", lambda key: key.name),
    Column("label", lambda key: key.label),
    Column("scopes", lambda key: ", ".join(key.scopes)),
    Column("tenant", lambda key: key.tenant or ""),
    Column("queues", lambda key: ", ".join(key.queues or ())),
    Column("rate", lambda key: "" if key.rate is None else f"{key.rate:g}/s"),
    Column("expires", lambda key: "" if key.expires_at is None else iso(key.expires_at)),
]
