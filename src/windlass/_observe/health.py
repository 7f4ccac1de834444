"""Check a store and how it is used: findings, good and bad, each with what to do about it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from .._model.alert import Alert
from .._model.limit import Quota, Use
from .._model.record import StuckHandler
from .._policy.input.quote import counted, first_named
from .._policy.order.windows import closed_until
from .._policy.quota import NEARLY_FULL, by_quota
from .._store.protocol import Durability, Finding, Promise, Severity
from .overview import Overview

_MAX_FINDINGS = 20  # of one kind about single queues or types; one more counts the others
_MAX_TYPES = 5  # that are named of a queue
_MAX_STUCK = 5  # handlers that are named


def check_durability(promise: Promise, found: Iterable[Finding]) -> Sequence[Finding]:
    """Put first what an acknowledged write survives; a warning unless that is a loss of power.

    What the store itself found about its durability is left out: the promise says the same.
    """
    severity = Severity.OK if promise.durability is Durability.DURABLE else Severity.WARNING
    first = _finding("durability", f"{promise.durability}: {promise.why}", severity)
    return [first, *(one for one in found if one.subject != first.subject)]


def check_queues(overview: Overview) -> Sequence[Finding]:
    """Report queues and types that no worker serves, queues closed by their windows, and stuck handlers.

    Of each kind some, then how many more there are: a store may have thousands of queues.
    """
    return [*_unserved(overview), *_closed(overview), *_unhandled(overview), *_stuck(overview)]


def _unserved(overview: Overview) -> Iterable[Finding]:
    unserved = sorted(overview.unserved().items())
    for queue, types in unserved[:_MAX_FINDINGS]:
        of = f"of type{'s' if len(types) > 1 else ''} {first_named(sorted(types), _MAX_TYPES)}"
        due = f"{counted(sum(types.values()), 'task')} due, {of}"
        yield _finding("workers", f"no live worker serves queue {queue} ({due})")
    if more := unserved[_MAX_FINDINGS:]:
        due = f"{counted(sum(sum(types.values()) for _, types in more), 'task')} due"
        yield _finding("workers", f"no live worker serves {counted(len(more), 'more queue')} ({due})")


def _closed(overview: Overview) -> Iterable[Finding]:
    settings = {one.name: one for one in overview.settings}
    for queue in islice(sorted(overview.closed), _MAX_FINDINGS):
        until = closed_until(settings[queue], overview.at)
        message = f"queue {queue} is closed until {until:%Y-%m-%dT%H:%M:%SZ} by its windows"
        yield _finding("windows", message, Severity.OK)
    if (more := len(overview.closed) - _MAX_FINDINGS) > 0:
        verb = "is" if more == 1 else "are"
        message = f"{counted(more, 'more queue')} {verb} closed by their windows"
        yield _finding("windows", message, Severity.OK)


def _unhandled(overview: Overview) -> Iterable[Finding]:
    unhandled = sorted(overview.unhandled().items())
    advice = "deploy its handler or, if it was renamed, add the name to aliases= of the new type"
    for (queue, type_name), number in unhandled[:_MAX_FINDINGS]:
        what = f"no live worker of queue {queue} handles task type {type_name}"
        yield _finding("types", f"{what} ({counted(number, 'pending task')}); {advice}")
    if more := unhandled[_MAX_FINDINGS:]:
        pending = counted(sum(number for _, number in more), "pending task")
        what = f"no live worker of their queue handles {counted(len(more), 'more task type')}"
        yield _finding("types", f"{what} ({pending})")


def _stuck(overview: Overview) -> Iterable[Finding]:
    stuck = [(session.worker.name, one) for session in overview.workers for one in session.worker.stuck]
    stuck.sort(key=lambda pair: -pair[1].overrun)
    for worker, one in stuck[:_MAX_STUCK]:
        yield _finding("stuck", _still_runs(worker, one))
    if (more := len(stuck) - _MAX_STUCK) > 0:
        run = "runs after its" if more == 1 else "run after their"
        text = f"{counted(more, 'other handler')} still {run} timeout: see `windlass workers --json`"
        yield _finding("stuck", text)


def _still_runs(worker: str, one: StuckHandler) -> str:
    where = f"{worker}, at {one.place}" if one.place else worker
    slot = "its slot is used again" if one.replaced else "it keeps its slot until it ends"
    what = f"the handler of {one.type} (task {one.task_id})"
    return f"{what} still runs {one.overrun:,.0f} s after its timeout on {where}; {slot}"


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
