"""The options of an enqueue: what a task type declares and what a caller overrides."""

from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from msgspec import Struct

from .task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE


class Options(TypedDict, total=False):
    """The options of `using` and `send`, as callers write them. Checked by _policy/input/new_task.py."""

    queue: str
    tenant: str
    priority: int | str
    delay: timedelta | float | str
    run_at: datetime | Literal["now"]
    max_attempts: int
    timeout: timedelta | float | str | None
    idempotency_key: str
    idempotency_for: timedelta | float | str
    unique: bool
    next: Any  # a Step or several; typed Any because steps are built by policy
    trace: str


class Defaults(Struct, frozen=True, gc=False, kw_only=True):
    """The options that a task type declares for all its tasks."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    unique: bool = False
    secret: tuple[str, ...] = ()
