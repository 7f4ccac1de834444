"""Signals: exceptions that a handler raises to retry, snooze or bury its task. They are not errors."""

from datetime import timedelta

from ._policy.input.options import parse_duration


class Signal(Exception):
    """The root of all signals."""


class Retry(Signal):
    """Retry the task, `after` this delay instead of the backoff's. The attempt counts."""

    def __init__(self, reason: str = "", *, after: timedelta | float | str | None = None) -> None:
        super().__init__(reason or "retry requested")
        self.after = None if after is None else parse_duration(after, "after")


class Snooze(Signal):
    """Run the task again after `delay`. The attempt does not count."""

    def __init__(self, delay: timedelta | float | str) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = parse_duration(delay, "delay")


class Fatal(Signal):
    """Bury the task at once: a retry cannot help."""


class Stop(Signal):
    """Raised by `Context.check` when the task is to be cancelled. Handlers must not swallow it."""
