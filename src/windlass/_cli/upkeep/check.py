"""`windlass check`: report problems with the settings, the store and its queues."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import click

from ..._observe.damage import damaged_tasks
from ..._observe.health import check_durability, check_queues, check_quotas, check_signatures
from ..._observe.overview import read_overview
from ..._store.protocol import Finding, Severity
from ...config import read_settings
from ...errors import InvalidOption, StoreError
from ..command import Cli, Command, pass_cli
from ..exit_codes import ExitCode
from ..output import Column

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
    findings += _check_handlers(reading.settings.handlers)
    if not reading.errors:
        findings += cli.run(lambda: _check_store(cli))
    cli.output.items(findings, _COLUMNS, none="nothing was checked")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise click.exceptions.Exit(ExitCode.NEGATIVE)


def _check_handlers(tables: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Report what is wrong with the settings of ready-made handlers, or what they lack."""
    findings: list[Finding] = []
    for name, table in tables.items():
        from ...app import App
        from ...handlers.selection import include_configured

        try:
            include_configured(App("memory://"), {name: table})
        except InvalidOption as error:
            findings.append(_finding("handlers", str(error), Severity.ERROR))
    return findings


async def _check_store(cli: Cli) -> list[Finding]:
    """Check the store; warn of queues and types without a worker, and of webhooks without a signature."""
    store, operator = cli.app.store, cli.operator
    await store.open()
    findings = [_finding("store", cli.app.store_name, Severity.OK)]
    findings += check_durability(operator.promise, await operator.check())

    async def queues() -> Iterable[Finding]:
        return check_queues(await read_overview(store))

    async def quotas() -> Iterable[Finding]:
        found = {quota.name: quota for quota in await operator.quotas.list()}
        return check_quotas(found, await operator.quotas.uses()) if found else ()

    async def alerts() -> Iterable[Finding]:
        return check_signatures([status.alert for status in await operator.alerts.list()])

    findings += await _part("encryption", operator.encryption.check)
    findings += await _part("tasks", lambda: damaged_tasks(store))
    findings += await _part("queues", queues)
    findings += await _part("quotas", quotas)
    if cli.app.alert_notifier.secret is None:
        findings += await _part("alerts", alerts)
    return findings


async def _part(subject: str, check: Callable[[], Awaitable[Iterable[Finding]]]) -> list[Finding]:
    """Do a part of the check; report that it could not be done, as it may need a shard that is down."""
    try:
        return [*await check()]
    except StoreError as error:
        return [_finding(subject, f"could not be checked: {error}", Severity.ERROR)]


def _finding(subject: str, message: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(severity=severity, subject=subject, message=message)
