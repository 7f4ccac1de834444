"""`windlass keys`: who may use the HTTP API, and for what. (I3)"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ..._model.key import ApiKey, Scope
from ..command import Asked, Commands, pass_asked
from ..operator_actions import audited
from ..options import duration
from ..output import Column
from ..time_text import iso

if TYPE_CHECKING:
    from ...app import App


@click.group(cls=Commands)
def keys() -> None:
    """Make, list and revoke the keys of the HTTP API."""


@keys.command("create")
@click.argument("label")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What it allows (repeatable).",
)
@click.option("--tenant", help="Only for this tenant.")
@click.option("--queue", "-q", "queues", multiple=True, help="Only for this queue (repeatable).")
@click.option("--rate", type=float, help="So many requests a second, to each server (default: any number).")
@click.option("--expires", type=duration, help="Good for so long (default: until it is revoked).")
@audited
@pass_asked
def create(
    asked: Asked,
    /,
    *,
    label: str,
    scopes: tuple[str, ...],
    tenant: str | None,
    queues: tuple[str, ...],
    rate: float | None,
    expires: timedelta | None,
) -> None:
    """Make a key. It is shown once: keep it where secrets are kept."""

    async def work(app: "App") -> None:
        made = await app.operator.keys.create(
            label, scopes=scopes, tenant=tenant, queues=queues or None, rate=rate, expires_in=expires
        )
        asked.output.say(made.text, {"key": made.text, **_document(made.key)})

    asked.run_anywhere(work)


@keys.command("list")
@pass_asked
def list_keys(asked: Asked) -> None:
    """List keys: their ids, never their secrets."""

    async def work(app: "App") -> None:
        found = await app.operator.keys.list()
        none = "there are no keys; `windlass keys create LABEL --scope enqueue` makes one"
        asked.output.items(found, _COLUMNS, _document, none=none)

    asked.run(work)


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@audited
@pass_asked
def revoke(asked: Asked, key_id: str) -> None:
    """Take a key back; servers refuse it within a second."""

    async def work(app: "App") -> None:
        await app.operator.keys.revoke(key_id)
        asked.output.say(f"revoked {key_id}", {"revoked": key_id})

    asked.run(work)


def _document(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.name,
        "label": key.label,
        "scopes": [scope.value for scope in key.scopes],
        "tenant": key.tenant,
        "queues": None if key.queues is None else list(key.queues),
        "rate": key.rate,
        "created_at": iso(key.created_at),
        "expires_at": None if key.expires_at is None else iso(key.expires_at),
    }


_COLUMNS: list[Column[ApiKey]] = [
    Column("id", lambda key: key.name),
    Column("label", lambda key: key.label),
    Column("scopes", lambda key: ", ".join(key.scopes)),
    Column("tenant", lambda key: key.tenant or ""),
    Column("queues", lambda key: ", ".join(key.queues or ())),
    Column("rate", lambda key: "" if key.rate is None else f"{key.rate:g}/s"),
    Column("expires", lambda key: "" if key.expires_at is None else iso(key.expires_at)),
]
