"""Verdicts on claimed tasks, which the store applies if the lease is still valid."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from .brief import Brief
from .lease import Claimed, Lease, ProgressReport
from .task import Error, NewTask, Progress
from .transition import TaskTransition


class Complete(Brief, Struct, frozen=True, gc=False, kw_only=True, tag="complete"):
    """End as completed, and enqueue the successors in the same step; duplicates end cancelled."""

    result: bytes | None = None
    successors: tuple[NewTask, ...] = ()


class Reason(StrEnum):
    """Why a task is postponed. Only a retry counts its attempt."""

    RETRY = "retry"
    SNOOZE = "snooze"
    RELEASE = "release"


class Postpone(Struct, frozen=True, gc=False, kw_only=True, tag="postpone"):
    """Make due again after `delay`; a task that was requested to stop ends as cancelled instead."""

    delay: timedelta
    reason: Reason
    error: Error | None = None
    unhandled_since: datetime | None = None  # for the task; None: a worker had a handler


class Bury(Struct, frozen=True, gc=False, kw_only=True, tag="bury"):
    """End as a dead letter, out of attempts or beyond retry, and enqueue the successors in the same step."""

    error: Error
    successors: tuple[NewTask, ...] = ()


class Cancel(Struct, frozen=True, gc=False, kw_only=True, tag="cancel"):
    """End as cancelled."""

    error: Error | None = None


Verdict: TypeAlias = Complete | Postpone | Bury | Cancel


class Settlement(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """A lease and the verdict that ends it. `outcome` and `duration` go into the attempt's record.

    `progress` is the last that the handler reported; None leaves it as it is. `notes` are facts of the
    handler's choice, a JSON object, for the attempt's record.
    """

    lease: Lease
    verdict: Verdict
    outcome: str
    duration: float = 0.0
    progress: Progress | None = None
    notes: bytes | None = None


def last_reports(batch: Sequence[Settlement]) -> list[ProgressReport]:
    """Return the progress in these settlements, in the order of ids; of repeated ones the first counts."""
    if all(settlement.progress is None for settlement in batch):
        return []
    first: dict[Lease, Settlement] = {}
    for settlement in batch:
        first.setdefault(settlement.lease, settlement)
    reports = [ProgressReport(lease, one.progress) for lease, one in first.items() if one.progress]
    return sorted(reports, key=lambda report: report.lease.task_id)


class Receipt(StrEnum):
    """The result of one settlement."""

    APPLIED = "applied"
    REPEATED = "repeated"  # the same settlement was applied before; nothing was changed
    LOST = "lost"  # the lease is no longer valid; nothing was changed
    UNKNOWN = "unknown"  # the shard that has the task did not answer; settle it again


class Settled(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a settle: a receipt for each settlement, and the tasks claimed in the same transaction.

    `transitions` are those that no verdict names: of tasks that were unblocked or cancelled because one that
    they waited for ended, and of postponed tasks that ended as cancelled, having been asked to stop.
    `may_claim_more` if the claim was for more tasks than the store leases at once: others may be ready.
    """

    receipts: tuple[Receipt, ...] = ()
    claimed: tuple[Claimed, ...] = ()
    transitions: tuple[TaskTransition, ...] = ()
    may_claim_more: bool = False
