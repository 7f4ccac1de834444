"""What happened to a task that was claimed. Policy turns an outcome into a verdict."""

from datetime import timedelta
from typing import TypeAlias, get_args

from msgspec import Struct

from .task import Error


class Returned(Struct, frozen=True, gc=False):
    """The handler returned; `result` is JSON, or None when it returned nothing."""

    result: bytes | None = None


class Failed(Struct, frozen=True, gc=False, kw_only=True):
    """The handler raised. `fatal`: trying again cannot help. `retry_after`: it asked for this delay."""

    error: Error
    fatal: bool = False
    retry_after: timedelta | None = None


class Snoozed(Struct, frozen=True, gc=False):
    """The handler asked to be called later; the attempt does not count."""

    delay: timedelta


class TimedOut(Struct, frozen=True, gc=False):
    """The handler ran longer than it may."""

    after: timedelta


class Interrupted(Struct, frozen=True, gc=False):
    """The worker is shutting down and hands the task back; the attempt does not count."""


class Stopped(Struct, frozen=True, gc=False):
    """The handler stopped because somebody asked for the task to be cancelled."""


class Crashed(Struct, frozen=True, gc=False, kw_only=True):
    """The process that ran it died: a child's death seen by its parent, or a lease that ran out."""

    error: Error


class Unhandled(Struct, frozen=True, gc=False):
    """This worker has no handler for the type; nor had any for `age`."""

    age: timedelta


Outcome: TypeAlias = Returned | Failed | Snoozed | TimedOut | Interrupted | Stopped | Crashed | Unhandled

_NAMES: dict[type, str] = {kind: kind.__name__.lower() for kind in get_args(Outcome)}


def name_of(outcome: Outcome) -> str:
    """What the attempt log calls it."""
    return _NAMES[type(outcome)]
