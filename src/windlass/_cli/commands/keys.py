"""`windlass keys`: create, list and revoke API keys."""

from typing import Any

import click

from ..._documents.keys import key_document, new_key_document
from ..._model.key import ApiKey, Scope
from ..command import Cli, Commands, on_store, pass_cli
from ..operator_actions import audit_options, name_command
from ..options import choice_option, duration, size
from ..output import Column, Document
from ..text import iso


@click.group(cls=Commands)
def keys() -> None:
    """Create, list and revoke keys of the HTTP API."""


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
@audit_options
@pass_cli
def create(cli: Cli, /, *, label: str, queues: tuple[str, ...], **options: Any) -> None:
    """Create a key and print it, this once."""

    async def work() -> None:
        made = await cli.operator.keys.create(label, queues=queues or None, **options)
        cli.output.say(made.text, new_key_document(made.key, made.text))

    cli.run(work, create=True)


@keys.command("list")
@on_store
async def list_keys(cli: Cli) -> None:
    """List keys by id, without their secrets."""
    none = "there are no keys; `windlass keys create LABEL --scope enqueue` creates one"
    cli.output.items(await cli.operator.keys.list(), _COLUMNS, key_document, none=none)


@name_command(keys, "revoke", "revoked", metavar="ID")
async def revoke(cli: Cli, key_id: str) -> Document:
    """Revoke a key; servers reject it within a second."""
    await cli.operator.keys.revoke(key_id)
    return {"id": key_id, "revoked": True}


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}/s"


_COLUMNS: list[Column[ApiKey]] = [
    Column("id", lambda key: key.name),
    Column("label", lambda key: key.label),
    Column("scopes", lambda key: ", ".join(key.scopes)),
    Column("tenant", lambda key: key.tenant or ""),
    Column("queues", lambda key: ", ".join(key.queues or ())),
    Column("rate", lambda key: _rate(key.rate)),
    Column("tasks", lambda key: _rate(key.task_rate)),
    Column("bytes", lambda key: _rate(key.byte_rate)),
    Column("expires", lambda key: "" if key.expires_at is None else iso(key.expires_at)),
]
