"""Check a store and how it is used: findings, good and bad, each with what to do about it."""

from collections.abc import Iterable, Mapping, Sequence

from .._model.alert import Alert
from .._model.limit import Quota, Use
from .._policy.input.quote import counted
from .._policy.order.windows import closed_until
from .._policy.quota import NEARLY_FULL, by_quota
from .._store.protocol import Durability, Finding, Promise, Severity
from .overview import Overview

_MAX_TYPES = 5  # that are named of a queue


def check_durability(promise: Promise, found: Iterable[Finding]) -> Sequence[Finding]:
    """Put first what an acknowledged write survives; a warning unless that is a loss of power.

    What the store itself found about its durability is left out: the promise says the same.
    """
    severity = Severity.OK if promise.durability is Durability.DURABLE else Severity.WARNING
    first = _finding("durability", f"{promise.durability}: {promise.why}", severity)
    return [first, *(one for one in found if one.subject != first.subject)]


def check_queues(overview: Overview) -> Sequence[Finding]:
    """Report queues and types that no worker serves, and queues that their windows keep closed."""
    unserved, settings = overview.unserved(), {one.name: one for one in overview.settings}
    findings = []
    for queue in sorted({*overview.queues, *settings}):
        if types := unserved.get(queue):
            tasks, names = counted(sum(types.values()), "task"), ", ".join(sorted(types)[:_MAX_TYPES])
            more = f" and {len(types) - _MAX_TYPES:,} more" if len(types) > _MAX_TYPES else ""
            what = f"{tasks} due, of type{'s' if len(types) > 1 else ''} {names}{more}"
            findings.append(_finding("workers", f"no live worker serves queue {queue} ({what})"))
        until = closed_until(settings.get(queue), overview.at)
        if until is not None:
            closed = f"queue {queue} is closed until {until:%Y-%m-%dT%H:%M:%SZ} by its windows"
            findings.append(_finding("windows", closed, Severity.OK))
    for (queue, type_name), number in sorted(overview.unhandled().items()):
        unhandled = f"no live worker of queue {queue} handles task type {type_name}"
        advice = "deploy its handler or, if it was renamed, add the name to aliases= of the new type"
        findings.append(_finding("types", f"{unhandled} ({counted(number, 'pending task')}); {advice}"))
    return findings


def check_quotas(quotas: Mapping[str, Quota], used: Mapping[str, Use]) -> Sequence[Finding]:
    """Warn of tenants that have nearly used up their quotas."""
    return [
        _finding(
            "quotas",
            f"{f'tenant {one.tenant}' if one.tenant else 'tasks without a tenant'}: "
            f"{quotas[name].share(one.use):.0%} of the quota is used",
        )
        for name, found in (by_quota(quotas, used) if quotas else {}).items()
        for one in found
        if quotas[name].share(one.use) >= NEARLY_FULL
    ]


def check_signatures(alerts: Iterable[Alert]) -> Sequence[Finding]:
    """Warn of webhooks, for a program that has no secret to sign their messages with."""
    unsigned = "messages to the webhook of alert {} are not signed; set WINDLASS_WEBHOOK_SECRET"
    return [_finding("alerts", unsigned.format(one.name)) for one in alerts if one.webhook]


def _finding(subject: str, message: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(severity=severity, subject=subject, message=message)
