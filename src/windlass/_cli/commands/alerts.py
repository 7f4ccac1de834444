"""`windlass alerts`: list, add, remove and test alerts on dead letters."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from ..._client.alerts import AlertStatus
from ..._documents.alerts import alert_document
from ..._model.alert import HOLD, MAX_COUNT
from ..._policy.alerts import webhook_origin
from ..command import Cli, Commands, on_store
from ..exit_codes import ExitCode
from ..operator_actions import audit_options, name_command, reveal_option
from ..options import duration, number_option, option_text
from ..output import Column, Document
from ..text import ago, duration_text


@click.group(cls=Commands)
def alerts() -> None:
    """List, add, remove and test alerts on dead letters."""


@alerts.command("list")
@reveal_option("Show webhook URLs with path and query")
@on_store
async def list_alerts(cli: Cli, reveal: bool) -> None:
    """List alerts with their state and number of dead letters."""
    alerts = cli.operator.alerts
    found = await (alerts.reveal() if reveal else alerts.list())
    columns = _columns(await cli.operator.now(), reveal=reveal)
    none = "there are no alerts; `windlass alerts add NAME --count 10 --window 5m` adds one"
    cli.output.items(found, columns, lambda one: alert_document(one, reveal=reveal), none=none)


@alerts.command("add")
@click.argument("name")
@click.option("--type", metavar="TYPE", help="Count only dead letters of this type  [default: any]")
@click.option("--queue", "-q", metavar="QUEUE", help="Count only dead letters of this queue  [default: any]")
@number_option("--count", most=MAX_COUNT, default=1, help="Raise the alert at N dead letters")
@click.option("--window", type=duration, help="Count only tasks that died within this time  [default: any]")
@click.option(
    "--hold",
    type=duration,
    help=f"Time below the count before the alert is cleared  [default: {option_text(HOLD)}]",
)
@click.option("--webhook", metavar="URL", help="URL to post messages to  [default: only log them]")
@audit_options
@on_store
async def add(cli: Cli, /, *, name: str, **options: Any) -> None:
    """Add an alert, or replace the one of the same name.

    The keeper applies it within seconds.
    """
    alert = await cli.operator.alerts.add(name, **options)
    cli.output.say(f"added {name}", alert_document(await cli.operator.alerts.get(name)))
    if alert.webhook is not None and cli.app.alert_notifier.secret is None:
        unsigned = "messages are not signed unless workers have WINDLASS_WEBHOOK_SECRET"
        cli.output.note(unsigned, warning=True)


@name_command(alerts, "remove", "removed")
async def remove(cli: Cli, name: str) -> Document:
    """Remove alerts.

    If one is raised, no "cleared" message is sent for it.
    """
    await cli.operator.alerts.remove(name)
    return {"name": name, "removed": True}


@alerts.command("test")
@click.argument("name")
@on_store
async def test(cli: Cli, name: str) -> None:
    """Post a test message to an alert's webhook.

    It is sent from this machine, in state "test". Exits with 1 if the webhook does not accept it.
    """
    secret, fetcher = cli.app.alert_notifier.secret, cli.app.alert_notifier.fetcher
    allowed = [str(network) for network in fetcher.allowed]
    answer = await cli.operator.alerts.test(name, secret=secret, allow_addresses=allowed)
    signed = secret is not None
    cli.output.say(
        f"{'accepted' if answer.taken else 'not accepted'} ({'' if signed else 'un'}signed): {answer.reason}",
        {
            "name": name,
            "taken": answer.taken,
            "signed": signed,
            "status": answer.status,
            "reason": answer.reason,
        },
    )
    if not answer.taken:
        raise click.exceptions.Exit(ExitCode.NEGATIVE)


def _columns(now: datetime, *, reveal: bool) -> Sequence[Column[AlertStatus]]:
    return (
        Column("alert", lambda one: one.alert.name, elastic=True),
        Column("state", lambda one: ("raised", "bold red") if one.raised else ("quiet", "green")),
        Column("since", lambda one: ago(one.alarm.raised_at, now)),
        Column("dead", lambda one: f"{'' if one.exact else '~'}{one.number:,}", right=True),
        Column("count", lambda one: f"{one.alert.count:,}", right=True),
        Column("window", lambda one: duration_text(one.alert.window), right=True),
        Column("type", lambda one: one.alert.type or "any", elastic=True, keeps_end=True),
        Column("queue", lambda one: one.alert.queue or "any"),
        Column("webhook", lambda one: _webhook(one, reveal=reveal), elastic=True, optional=True),
        Column("unsent", lambda one: str(len(one.alarm.unsent) or ""), right=True, optional=True),
    )


def _webhook(status: AlertStatus, *, reveal: bool) -> str:
    url = status.alert.webhook
    return "" if url is None else url if reveal else webhook_origin(url)
