"""Outcomes of running a claimed task. Policy turns an outcome into a verdict."""

from datetime import timedelta
from typing import TypeAlias, get_args

from msgspec import Struct

from .brief import Brief
from .task import Error


class Returned(Brief, Struct, frozen=True, gc=False, tag=True):
    """The handler returned; `result` is JSON, or None when it returned nothing."""

    result: bytes | None = None


class Failed(Struct, frozen=True, gc=False, kw_only=True, tag=True):
    """The handler raised. `fatal`: a retry cannot help. `retry_after`: the delay that it requested."""

    error: Error
    fatal: bool = False
    retry_after: timedelta | None = None


class Snoozed(Struct, frozen=True, gc=False, tag=True):
    """The handler requested to run again later; the attempt does not count."""

    delay: timedelta


class TimedOut(Struct, frozen=True, gc=False):
    """The handler exceeded the task's timeout."""

    after: timedelta


class Interrupted(Struct, frozen=True, gc=False):
    """The worker is shutting down and releases the task; the attempt does not count."""


class Stopped(Struct, frozen=True, gc=False):
    """The handler stopped because the task was to be cancelled."""


class Crashed(Struct, frozen=True, gc=False, kw_only=True):
    """The process that ran it died: a parent saw its child die, or the lease expired."""

    error: Error


class Unhandled(Struct, frozen=True, gc=False):
    """This worker has no handler for the type, and no worker has had one for `age`."""

    age: timedelta


class Locked(Struct, frozen=True, gc=False):
    """This worker lacks keys that values of the task are encrypted with; `keys` are their ids."""

    keys: tuple[str, ...]


Outcome: TypeAlias = (
    Returned | Failed | Snoozed | TimedOut | Interrupted | Stopped | Crashed | Unhandled | Locked
)

_NAMES: dict[type, str] = {kind: kind.__name__.lower() for kind in get_args(Outcome)}


def name_of(outcome: Outcome) -> str:
    """The name of an outcome in attempt records."""
    return _NAMES[type(outcome)]
