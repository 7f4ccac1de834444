"""The options of tasks: what a task type declares, as the store has it too, and what a caller overrides."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from msgspec import Struct

from ..errors import InvalidOption
from .brief import Brief
from .queue import Retention
from .task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, MAX_DELAY

Unique: TypeAlias = bool | tuple[str, ...]
"""Whether tasks are unique: not, by their whole payload and priority, or by these fields of the payload."""


class Options(TypedDict, total=False):
    """The options of `using` and `send`, as callers write them. Checked by _policy/input/new_task.py."""

    queue: str
    tenant: str
    priority: int | str
    delay: timedelta | float | str
    run_at: datetime | Literal["now"]
    expires: datetime | timedelta | float | str | None
    max_attempts: int
    timeout: timedelta | float | str | None
    idempotency_key: str
    idempotency_for: timedelta | float | str
    unique: bool | Sequence[str]
    unique_for: timedelta | float | str | None
    secret: Sequence[str]  # payload fields that are never shown, besides those of the type
    after: Sequence[Any]  # handles or ids of tasks to wait for
    next: Any  # a Step or several; typed Any because steps are built by policy
    on_failure: Any  # the same, enqueued if the task dies
    trace: str


class Defaults(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """The options that a task type declares for all its tasks."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    expires: timedelta | None = None
    unique: Unique = False
    unique_for: timedelta | None = None
    secret: tuple[str, ...] = ()


class DeclaredType(Struct, frozen=True, gc=False, kw_only=True):
    """A task type as a program last declared it: what keepers, senders and other workers need of it.

    `backoff` has the numbers of a `Backoff`. A custom backoff is a function, of which `delays` keeps the
    seconds after the first attempts; the last one repeats.
    """

    name: str
    defaults: Defaults = Defaults()
    aliases: tuple[str, ...] = ()  # former names, under which tasks may still be stored
    backoff: dict[str, float] = {}
    delays: tuple[float, ...] = ()
    retention: Retention | None = None  # None: the store's default
    encrypted: bool = False  # its secret fields are encrypted, so programs without keys must not enqueue it

    def __post_init__(self) -> None:
        longest = MAX_DELAY.total_seconds()
        for number in (*self.backoff.values(), *self.delays):
            if not 0 <= number <= longest:
                raise InvalidOption(
                    f"the backoff of task type {self.name!r} has {number!r}; use 0 to {longest:.0f} seconds"
                )


def by_name_or_alias(types: Iterable[DeclaredType]) -> dict[str, DeclaredType]:
    """Index types by their names and aliases; a name takes precedence over another type's alias."""
    found = {alias: one for one in types for alias in one.aliases}
    return found | {one.name: one for one in types}
