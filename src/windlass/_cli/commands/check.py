"""`windlass check`: report problems with the settings, the store and its queues."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..._documents.queues import queue_documents
from ..._documents.store import finding_document
from ..._observe.overview import read_overview
from ..._policy.input.quote import counted
from ..._store.protocol import Finding, Severity
from ...config import read_settings
from ..command import Cli, Command, pass_cli
from ..exit_codes import ExitCode
from ..output import Column, Styled

if TYPE_CHECKING:
    from ...app import App

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


def _severity(finding: Finding) -> Styled:
    return str(finding.severity), _STYLES[finding.severity]


_COLUMNS = (
    Column[Finding]("severity", _severity),
    Column[Finding]("subject", lambda finding: finding.subject),
    Column[Finding]("finding", lambda finding: finding.message, elastic=True, wraps=True),
)


@click.command("check", cls=Command)
@pass_cli
def check(cli: Cli) -> None:
    """Check settings, store and queues.

    Exits with 1 if there is an error.
    """
    reading = read_settings(cli.file, flags=cli.flags)
    findings = [_finding(Severity.WARNING, "settings", text) for text in reading.warnings]
    findings += [_finding(Severity.ERROR, "settings", text) for text in reading.errors]
    if not reading.errors:
        findings += cli.run(lambda: _check_store(cli.app))
    cli.output.items(findings, _COLUMNS, finding_document, none="nothing was checked")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise click.exceptions.Exit(ExitCode.NEGATIVE)


async def _check_store(app: "App") -> list[Finding]:
    await app.store.open()
    promise = app.operator.promise
    severity = Severity.OK if promise.durability == "durable" else Severity.WARNING
    return [
        _finding(severity, "durability", f"{promise.durability}: {promise.why}"),
        *await app.operator.check(),
        *await _unserved_queues(app),
        *await _unsigned_webhooks(app),
    ]


async def _unserved_queues(app: "App") -> Sequence[Finding]:
    """Queues with ready tasks that no live worker serves."""
    overview = await read_overview(app.store)
    return [
        _finding(
            Severity.WARNING,
            "workers",
            f"no live worker serves queue {one.queue} ({counted(one.counts['ready'], 'ready task')})",
        )
        for one in queue_documents(overview, overview.settings)
        if one.counts["ready"] and not one.workers
    ]


async def _unsigned_webhooks(app: "App") -> Sequence[Finding]:
    """Webhooks whose receiver cannot tell who sent a message."""
    if app.alert_notifier.secret is not None:
        return []
    message = "messages to the webhook of alert {} are not signed; set WINDLASS_WEBHOOK_SECRET"
    alerts = [status.alert for status in await app.operator.alerts.list()]
    return [_finding(Severity.WARNING, "alerts", message.format(one.name)) for one in alerts if one.webhook]


def _finding(severity: Severity, subject: str, message: str) -> Finding:
    return Finding(severity=severity, subject=subject, message=message)
