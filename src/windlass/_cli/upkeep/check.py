"""`windlass check`: report problems with the settings, the store and its queues."""

import click

from ..._documents.queues import queue_documents
from ..._observe.damage import damaged_tasks
from ..._observe.overview import read_overview
from ..._policy.input.quote import counted
from ..._policy.quota import NEARLY_FULL, by_quota
from ..._store.protocol import Finding, Severity
from ...config import read_settings
from ..command import Cli, Command, pass_cli
from ..exit_codes import ExitCode
from ..output import Column
from ..text import iso

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


_COLUMNS = (
    Column[Finding]("severity", lambda finding: (str(finding.severity), _STYLES[finding.severity])),
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
    findings = [_finding("settings", text) for text in reading.warnings]
    findings += [_finding("settings", text, Severity.ERROR) for text in reading.errors]
    if not reading.errors:
        findings += cli.run(lambda: _check_store(cli))
    cli.output.items(findings, _COLUMNS, none="nothing was checked")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise click.exceptions.Exit(ExitCode.NEGATIVE)


async def _check_store(cli: Cli) -> list[Finding]:
    """Check the store; warn of queues and types without a worker, and of webhooks without a signature."""
    await cli.app.store.open()
    promise = cli.operator.promise
    severity = Severity.OK if promise.durability == "durable" else Severity.WARNING
    durability = _finding("durability", f"{promise.durability}: {promise.why}", severity)
    findings = [durability, *await cli.operator.check()]
    findings += await cli.operator.encryption.check()
    findings += await damaged_tasks(cli.app.store)
    overview = await read_overview(cli.app.store)
    for queue in queue_documents(overview, overview.settings):
        if queue.counts["ready"] and not queue.workers:
            ready = counted(queue.counts["ready"], "ready task")
            findings.append(_finding("workers", f"no live worker serves queue {queue.queue} ({ready})"))
        if queue.closed_until is not None:
            closed = f"queue {queue.queue} is closed until {iso(queue.closed_until)} by its windows"
            findings.append(_finding("windows", closed, Severity.OK))
    for (queue_name, type_name), number in sorted(overview.unhandled().items()):
        pending = counted(number, "pending task")
        unhandled = f"no live worker of queue {queue_name} handles task type {type_name} ({pending})"
        advice = "deploy its handler or, if it was renamed, add the name to aliases= of the new type"
        findings.append(_finding("types", f"{unhandled}; {advice}"))
    findings += await _check_quotas(cli)
    if cli.app.alert_notifier.secret is None:
        unsigned = "messages to the webhook of alert {} are not signed; set WINDLASS_WEBHOOK_SECRET"
        alerts = [status.alert for status in await cli.operator.alerts.list()]
        findings += [_finding("alerts", unsigned.format(one.name)) for one in alerts if one.webhook]
    return findings


async def _check_quotas(cli: Cli) -> list[Finding]:
    """Warn of tenants that have nearly used up their quotas."""
    quotas = {quota.name: quota for quota in await cli.operator.quotas.list()}
    users = by_quota(quotas, await cli.operator.quotas.uses()) if quotas else {}
    return [
        _finding(
            "quotas",
            f"{f'tenant {one.tenant}' if one.tenant else 'tasks without a tenant'}: "
            f"{quotas[name].share(one.use):.0%} of the quota is used",
        )
        for name, found in users.items()
        for one in found
        if quotas[name].share(one.use) >= NEARLY_FULL
    ]


def _finding(subject: str, message: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(severity=severity, subject=subject, message=message)
