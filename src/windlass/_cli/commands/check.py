"""`windlass check`: is anything wrong with settings, store and queues?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..._store.protocol import Finding, Severity
from ...config import read
from ..command import Asked, Command, pass_asked
from ..documents import finding_document
from ..exit_codes import ExitCode
from ..output import Column, Styled
from .queues import overview

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
@pass_asked
def check(asked: Asked) -> None:
    """Look for what is wrong with settings, store and queues; errors make it exit with 1."""
    reading = read(asked.file, flags=asked.flags)
    findings = [_finding(Severity.WARNING, "settings", text) for text in reading.warnings]
    findings += [_finding(Severity.ERROR, "settings", text) for text in reading.errors]
    if not reading.errors:
        findings += asked.run(_of_store)
    asked.output.items(findings, _COLUMNS, finding_document, none="nothing was looked at")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise click.exceptions.Exit(ExitCode.BAD_NEWS)


async def _of_store(app: "App") -> list[Finding]:
    await app.store.open()
    promise = app.operator.promise
    kept = Severity.OK if promise.durability == "durable" else Severity.WARNING
    return [
        _finding(kept, "durability", f"{promise.durability}: {promise.why}"),
        *await app.operator.check(),
        *await _unserved(app),
        *await _unsigned(app),
    ]


async def _unserved(app: "App") -> Sequence[Finding]:
    """Queues whose ready tasks nobody will claim."""
    now = await app.operator.now()
    served = {
        queue
        for session in await app.operator.workers()
        if session.expires_at > now
        for queue in session.worker.queues
    }
    return [
        _finding(
            Severity.WARNING,
            "workers",
            f"no live worker serves the queue {line.settings.name}, which has {line.counts['ready']:,} ready",
        )
        for line in await overview(app)
        if line.counts["ready"] and line.settings.name not in served
    ]


async def _unsigned(app: "App") -> Sequence[Finding]:
    """Webhooks whose messages anybody could have written."""
    if app.alert_notifier.secret is not None:
        return []
    told = "messages to the webhook of alert {} are not signed; set WINDLASS_WEBHOOK_SECRET"
    alerts = [status.alert for status in await app.operator.alerts.list()]
    return [_finding(Severity.WARNING, "alerts", told.format(one.name)) for one in alerts if one.webhook]


def _finding(severity: Severity, subject: str, message: str) -> Finding:
    return Finding(severity=severity, subject=subject, message=message)
