"""What a handler may raise to steer its task. Signals are not errors."""

from datetime import timedelta

from ._policy.input.options import parse_duration


class Signal(Exception):
    """The root of all signals."""


class Retry(Signal):
    """Try again, `after` this long instead of what the backoff says. Counts as an attempt."""

    def __init__(self, reason: str = "", *, after: timedelta | float | str | None = None) -> None:
        super().__init__(reason or "retry asked for")
        self.after = None if after is None else parse_duration(after, "retry's delay")


class Snooze(Signal):
    """Come back later; this attempt does not count."""

    def __init__(self, delay: timedelta | float | str) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = parse_duration(delay, "snooze")


class Fatal(Signal):
    """Trying again cannot help: the task dies at once."""


class Stop(Signal):
    """Raised by `Context.check` when the task was asked to stop: let it pass through."""
