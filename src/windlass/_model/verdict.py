"""What shall become of a task: four verdicts, applied by the store if the lease still holds."""

from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from .lease import Claimed, Lease
from .task import Error, NewTask


class Complete(Struct, frozen=True, gc=False, kw_only=True, tag="complete"):
    """Done. The successors are enqueued in the same step."""

    result: bytes | None = None
    successors: tuple[NewTask, ...] = ()


class Reason(StrEnum):
    """Why a task is postponed. Only a retry keeps its attempt counted."""

    RETRY = "retry"
    SNOOZE = "snooze"
    RELEASE = "release"


class Postpone(Struct, frozen=True, gc=False, kw_only=True, tag="postpone"):
    """Not now: due again after `delay`. A task that was asked to stop ends in `cancelled` instead."""

    delay: timedelta
    reason: Reason
    error: Error | None = None


class Bury(Struct, frozen=True, gc=False, kw_only=True, tag="bury"):
    """Out of attempts, or beyond help: a dead letter."""

    error: Error


class Cancel(Struct, frozen=True, gc=False, kw_only=True, tag="cancel"):
    """Stopped on request."""

    error: Error | None = None


Verdict: TypeAlias = Complete | Postpone | Bury | Cancel


class Settlement(Struct, frozen=True, gc=False, kw_only=True):
    """A lease and the verdict that ends it. `outcome` and `duration` go into the attempt's line."""

    lease: Lease
    verdict: Verdict
    outcome: str
    duration: float = 0.0


class Receipt(StrEnum):
    """What became of one settlement."""

    APPLIED = "applied"
    REPEATED = "repeated"  # it had been applied before: harmless
    LOST = "lost"  # the lease is another's by now: nothing was changed


class Settled(Struct, frozen=True, gc=False, kw_only=True):
    """The answer to a settle: a receipt for each settlement, and what was claimed in the same step."""

    receipts: tuple[Receipt, ...] = ()
    claimed: tuple[Claimed, ...] = ()
